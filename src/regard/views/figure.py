"""Save a figure of one or several panels as PNG or SVG, with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")  # color-blind safe
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.hashsalt": "regard",  # for reproducible files
}
FORMATS = (".png", ".svg")


def check_matplotlib() -> None:
    """Raise a `RegardError` if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise RegardError("pictures require matplotlib: pip install matplotlib") from None


def check_picture_path(path: Path) -> None:
    """Raise a `RegardError` for a picture that cannot be drawn: an unknown format, or no matplotlib."""
    if path.suffix not in FORMATS:
        raise RegardError(f'{path}: expected .png or .svg, got "{path.suffix}"')
    check_matplotlib()


def save_figure(path: Path, draw: Callable[[Sequence[Axes]], None], *, panels: int = 1) -> Path:
    """Draw panels side by side, at most two in a row, and save them; return the path."""
    check_picture_path(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(panels, 2)
    rows = -(-panels // columns)
    content = io.BytesIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(5.2 * columns, 3.8 * rows), dpi=130, layout="constrained")
        draw(figure.subplots(rows, columns, squeeze=False).flatten().tolist())
        figure.savefig(content, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else {})
    write_bytes(path, content.getvalue())
    return path
