"""Save an attention map as a heat map: source words above, target words on the left.

    save_matrix(attention_map, "look.png")  # or .svg, .pdf

PNG and PDF require matplotlib.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.files import write_bytes, write_text
from regard.views.attention_map import PICTURES, AttentionMap, IndexOrMean, check_map
from regard.views.display import ELLIPSIS, sanitize_text, split_graphemes
from regard.views.shades import RAMP, ceiling
from regard.views.svg.matrix import draw_matrix_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DATES: dict[str, dict[str, Any]] = {  # metadata to omit, for reproducible files
    ".png": {},
    ".pdf": {"CreationDate": None},
}

CELL, LARGEST_CELL, SHORTEST, LONGEST = 0.34, 0.6, 4.0, 24.0  # inches: a cell, and the longer side of the matrix
FONT, SMALLEST_FONT, LARGEST_FONT = 10.0, 4.0, 13.0  # points
DOTS = 130  # per inch
LABEL = 40  # maximum characters of a label
LINK = "#D55E00"

FAMILIES = (  # tried in this order for every character; the first comes with matplotlib
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans Arabic",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Nirmala UI",
    "WenQuanYi Zen Hei",
)


def save_matrix(
    picture: AttentionMap, path: str | Path, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
) -> Path:
    """Save the map as .png, .svg or .pdf (atomically).

    Args:
        picture: The attention map.
        path: The file to write.
        layer: Layer index, or "mean".
        head: Head index, or "mean".

    Returns:
        The path.

    Raises:
        RegardError: The suffix is not supported, matplotlib is missing, or the file cannot be written.
    """
    check_map("save_matrix", picture)
    path = Path(path)
    suffix = check_suffix(path)
    if suffix == ".svg":
        write_text(path, draw_matrix_svg(picture, layer=layer, head=head))
        return path
    content = io.BytesIO()
    with use_matplotlib():
        figure = build_figure(picture, layer=layer, head=head)
        figure.savefig(content, format=suffix[1:], metadata=DATES[suffix], bbox_inches="tight", pad_inches=0.1)
    write_bytes(path, content.getvalue())
    return path


def check_suffix(path: Path) -> str:
    """Return the lowercase suffix of a picture, or raise `RegardError` if it is not supported."""
    suffix = path.suffix.lower()
    if suffix not in PICTURES:
        raise RegardError(f'{path}: expected {", ".join(PICTURES[:-1])} or {PICTURES[-1]}, got "{path.suffix}"')
    return suffix


def build_figure(picture: AttentionMap, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> Figure:
    """Build a matplotlib figure of the map.

    The labels and the color bar are outside the figure area: save it with `bbox_inches="tight"`.
    """
    with use_matplotlib():
        from matplotlib.figure import Figure

        longer = max(len(picture.rows), len(picture.columns))
        cell = min(max(CELL, min(LARGEST_CELL, SHORTEST / longer)), LONGEST / longer)
        width, height = cell * len(picture.columns), cell * len(picture.rows)
        figure = Figure(figsize=(width, height), dpi=DOTS, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        image = draw_cells(axes, picture, layer, head)
        draw_words(axes, picture, cell * 72)
        draw_links(axes, picture, cell * 72)
        draw_colorbar(figure, image)
        per_line = max(24, int(width * 72 / (0.55 * (FONT + 1))))  # so that the title is as wide as the cells
        title = textwrap.fill(sanitize_text(picture.caption(layer, head)), per_line)
        axes.set_title(title, loc="left", fontsize=FONT + 1, pad=8, parse_math=False)
    return figure


@contextmanager
def use_matplotlib() -> Iterator[None]:
    """Configure matplotlib for any script and for reproducible files, or raise `RegardError` if it is missing."""
    try:
        from matplotlib import font_manager, rc_context
    except ImportError:
        raise RegardError("pictures require matplotlib: pip install matplotlib") from None
    installed = set(font_manager.fontManager.get_font_names())
    style: dict[Any, Any] = {
        "font.family": [family for family in FAMILIES if family in installed],
        "text.usetex": False,
        "svg.hashsalt": "regard",
    }
    with rc_context(style), warnings.catch_warnings():
        # Words without a matching font are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def draw_cells(axes: Axes, picture: AttentionMap, layer: IndexOrMean, head: IndexOrMean) -> AxesImage:
    """Draw the weights as a heat map."""
    from matplotlib.colors import LinearSegmentedColormap

    weights = picture.select(layer, head)
    colormap = LinearSegmentedColormap.from_list("regard", [[part / 255 for part in color] for color in RAMP])
    return axes.imshow(weights, cmap=colormap, vmin=0, vmax=ceiling(weights), interpolation="nearest", aspect="auto")


def draw_words(axes: Axes, picture: AttentionMap, cell: float) -> None:
    """Draw source words above and target words on the left, skipping some if there is no room for all."""
    size = max(SMALLEST_FONT, min(FONT * max(1, cell / (CELL * 72)), LARGEST_FONT, 0.6 * cell))
    step = math.ceil(1.4 * size / cell)  # width of a line of text at 45 degrees
    for axis, words in ((axes.xaxis, picture.columns), (axes.yaxis, picture.rows)):
        axis.set_ticks(range(0, len(words), step), labels=format_labels(words[::step]), fontsize=size, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=4)
    for label in axes.get_xticklabels():
        label.set(rotation=45, ha="left", va="baseline", rotation_mode="anchor")
    for spine in axes.spines.values():
        spine.set(color="#BBBBBB", linewidth=0.6)


def format_labels(words: Sequence[str]) -> list[str]:
    """Sanitize and shorten the labels."""
    parts = [split_graphemes(sanitize_text(word)) for word in words]
    return ["".join(part if len(part) <= LABEL else [*part[: LABEL - 1], ELLIPSIS]) for part in parts]


def draw_links(axes: Axes, picture: AttentionMap, cell: float) -> None:
    """Draw a frame around every cell of the gold alignment."""
    from matplotlib.patches import Rectangle

    line = min(3.0, cell / 8)
    inset = line / cell / 2  # keeps the frame inside its cell
    for column, row in sorted(picture.links or ()):
        corner, side = (column - 0.5 + inset, row - 0.5 + inset), 1 - 2 * inset
        axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=LINK, linewidth=line))


def draw_colorbar(figure: Figure, image: AxesImage) -> None:
    """Draw the color scale to the right of the cells."""
    width, height = figure.get_size_inches()
    long = max(height, 1.0) / height
    bar = figure.colorbar(image, cax=figure.add_axes((1 + 0.15 / width, 1 - long, 0.12 / width, long)))
    top = image.get_clim()[1]
    bar.set_ticks([0, top], labels=["0", f"{top:g}"], fontsize=FONT - 1)
    bar.outline.set_visible(False)
