"""An attention map as a picture for a page: source words above, target words on the left, a shaded cell for each pair.

    save_matrix(picture, "look.png")  # or .svg, .pdf

Only the SVG is drawn without matplotlib.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.files import write_bytes, write_text
from regard.views.attention_map import PICTURES, AttentionMap, Choice, check_map
from regard.views.display import ELLIPSIS, clusters, harmless
from regard.views.shades import RAMP, ceiling
from regard.views.svg.matrix import matrix_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DATES: dict[str, dict[str, Any]] = {  # the metadata to leave out, so that the same picture is the same file
    ".png": {},
    ".pdf": {"CreationDate": None},
}

CELL, LONGEST = 0.34, 24.0  # inches: the side of a cell while there are few, and of the whole when there are many
FONT, SMALLEST_FONT = 10.0, 4.0  # points
DOTS = 130  # an inch
LABEL = 40  # a word longer than this is cut
LINK = "#D55E00"

FAMILIES = (  # tried in turn for every character; the first comes with matplotlib
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


def save_matrix(picture: AttentionMap, path: str | Path, *, layer: Choice = "mean", head: Choice = "mean") -> Path:
    """Draw the map into a .png, .svg or .pdf file, whole or not at all; returns the path."""
    check_map("save_matrix", picture)
    path = Path(path)
    ending = check_ending(path)
    if ending == ".svg":
        write_text(path, matrix_svg(picture, layer=layer, head=head))
        return path
    content = io.BytesIO()
    with drawing():
        figure = matrix_figure(picture, layer=layer, head=head)
        figure.savefig(content, format=ending[1:], metadata=DATES[ending], bbox_inches="tight", pad_inches=0.1)
    write_bytes(path, content.getvalue())
    return path


def check_ending(path: Path) -> str:
    """The ending of a picture's name, or a `RegardError` for one that means no picture."""
    ending = path.suffix.lower()
    if ending not in PICTURES:
        raise RegardError(f'{path}: pictures are written as {", ".join(PICTURES)}; found "{path.suffix}"')
    return ending


def matrix_figure(picture: AttentionMap, *, layer: Choice = "mean", head: Choice = "mean") -> Figure:
    """The map as a matplotlib figure of one cell matrix, which fills it, with words and colour bar around.

    Words stand outside the figure's own area: save it with `bbox_inches="tight"`.
    """
    with drawing():
        from matplotlib.figure import Figure

        cell = min(CELL, LONGEST / max(len(picture.rows), len(picture.columns)))
        width, height = cell * len(picture.columns), cell * len(picture.rows)
        figure = Figure(figsize=(width, height), dpi=DOTS, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        image = draw_cells(axes, picture, layer, head)
        draw_words(axes, picture, cell * 72)
        draw_links(axes, picture, cell * 72)
        draw_bar(figure, image)
        axes.set_title(harmless(picture.caption(layer, head)), loc="left", fontsize=FONT + 1, pad=8, parse_math=False)
    return figure


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib set so that any word can be drawn, and the same picture is the same file."""
    try:
        from matplotlib import font_manager, rc_context
    except ImportError:
        raise RegardError("the picture needs matplotlib: pip install 'regard[plot]'") from None
    installed = set(font_manager.fontManager.get_font_names())
    style: dict[Any, Any] = {
        "font.family": [family for family in FAMILIES if family in installed],
        "text.usetex": False,
        "svg.hashsalt": "regard",
    }
    with rc_context(style), warnings.catch_warnings():
        # A word in a script that no font here has is drawn as boxes: the picture is worth having all the same.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def draw_cells(axes: Axes, picture: AttentionMap, layer: Choice, head: Choice) -> AxesImage:
    """The weights, a square for each."""
    from matplotlib.colors import LinearSegmentedColormap

    weights = picture.select(layer, head)
    colours = LinearSegmentedColormap.from_list("regard", [[part / 255 for part in colour] for colour in RAMP])
    return axes.imshow(weights, cmap=colours, vmin=0, vmax=ceiling(weights), interpolation="nearest", aspect="auto")


def draw_words(axes: Axes, picture: AttentionMap, cell: float) -> None:
    """Source words above, target words on the left; where they would be too small to read, only some of them."""
    size = max(SMALLEST_FONT, min(FONT, 0.6 * cell))
    step = math.ceil(1.4 * size / cell)  # at 45 degrees a line of text needs that much width
    for axis, words in ((axes.xaxis, picture.columns), (axes.yaxis, picture.rows)):
        axis.set_ticks(range(0, len(words), step), labels=shown(words[::step]), fontsize=size, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=4)
    for label in axes.get_xticklabels():
        label.set(rotation=45, ha="left", va="baseline", rotation_mode="anchor")
    for spine in axes.spines.values():
        spine.set(color="#BBBBBB", linewidth=0.6)


def shown(words: Sequence[str]) -> list[str]:
    """The words as they are written beside the cells."""
    parts = [clusters(harmless(word)) for word in words]
    return ["".join(part if len(part) <= LABEL else [*part[: LABEL - 1], ELLIPSIS]) for part in parts]


def draw_links(axes: Axes, picture: AttentionMap, cell: float) -> None:
    """A frame around every cell that is linked in the true alignment."""
    from matplotlib.patches import Rectangle

    line = min(2.0, cell / 8)
    inset = line / cell / 2  # the frame lies inside its cell
    for column, row in sorted(picture.links or ()):
        corner, side = (column - 0.5 + inset, row - 0.5 + inset), 1 - 2 * inset
        axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=LINK, linewidth=line))


def draw_bar(figure: Figure, image: AxesImage) -> None:
    """The shades from nothing to the darkest, on the right of the cells."""
    width, height = figure.get_size_inches()
    long = max(height, 1.0) / height
    bar = figure.colorbar(image, cax=figure.add_axes((1 + 0.15 / width, 1 - long, 0.12 / width, long)))
    top = image.get_clim()[1]
    bar.set_ticks([0, top], labels=["0", f"{top:g}"], fontsize=FONT - 1)
    bar.outline.set_visible(False)
