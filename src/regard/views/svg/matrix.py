"""The matrix as SVG: source words above, target words on the left, a shaded cell for each pair."""

from __future__ import annotations

import math
from xml.etree.ElementTree import Element

import numpy as np
from jaxtyping import Float32

from regard.views.attention_map import AttentionMap, Choice, check_map
from regard.views.display import harmless
from regard.views.shades import ceiling, hexadecimal, rgb
from regard.views.svg.pixels import shade_picture
from regard.views.svg.writer import FONT, GREY, LINE, LINK, MARGIN, add, add_scale, paper, room, shown, svg_text

CELL, LONGEST = 24.0, 1600.0  # pixels: the side of a cell while there are few, and of the whole when there are many
MOST_CELLS = 10_000  # with more, the cells are one picture instead of an element each
SLANT = math.sqrt(0.5)  # column words stand at 45 degrees


def matrix_svg(picture: AttentionMap, *, layer: Choice = "mean", head: Choice = "mean") -> str:
    """The map as an SVG file; every cell has its weight as `data-weight` and in its tooltip."""
    check_map("matrix_svg", picture)
    weights = picture.select(layer, head)
    cell = min(CELL, LONGEST / max(weights.shape))
    wide, high = cell * weights.shape[1], cell * weights.shape[0]
    left, slanted = MARGIN + room(picture.rows) + 6, SLANT * room(picture.columns)
    top = MARGIN + LINE + slanted + 10
    width = max(left + wide + slanted, 260.0) + MARGIN
    caption = harmless(picture.caption(layer, head))
    drawing = paper(width, top + high + LINE + MARGIN, caption)
    board = add(drawing, "g", transform=f"translate({left:.2f} {top:.2f})")
    draw_cells(board, picture, weights, cell)
    draw_words(board, picture, cell)
    draw_links(board, picture, cell)
    add_scale(drawing, left, top + high + 12, ceiling(weights))
    return svg_text(drawing)


def draw_cells(
    board: Element, picture: AttentionMap, weights: Float32[np.ndarray, "rows columns"], cell: float
) -> None:
    """A square for every weight, or where there are too many, one picture of all."""
    most = ceiling(weights)
    if weights.size > MOST_CELLS:
        href = shade_picture(weights, most, int(LONGEST))
        wide, high = cell * weights.shape[1], cell * weights.shape[0]
        style = {"preserveAspectRatio": "none", "style": "image-rendering: pixelated"}
        add(board, "image", width=wide, height=high, href=href, **style)
        return
    for (row, column), weight in np.ndenumerate(weights):
        place = {"x": cell * column, "y": cell * row, "width": cell, "height": cell}
        colour = hexadecimal(rgb(min(1.0, float(weight) / most)))
        square = add(board, "rect", fill=colour, data_weight=f"{weight:.9g}", **place)
        names = f"{shown(picture.rows[row])} → {shown(picture.columns[column])}"
        add(square, "title", f"{names}: {weight:.4g}")


def draw_words(board: Element, picture: AttentionMap, cell: float) -> None:
    """Source words above, target words on the left; where they would overlap, only some of them."""
    size = max(6.0, min(FONT, 0.75 * cell))
    step = math.ceil(1.4 * size / cell)
    frame = {"width": cell * len(picture.columns), "height": cell * len(picture.rows)}
    add(board, "rect", fill="none", stroke=GREY, stroke_width=0.6, **frame)
    for row in range(0, len(picture.rows), step):
        style = {"text_anchor": "end", "dominant_baseline": "central", "font_size": size}
        add(board, "text", shown(picture.rows[row]), x=-6, y=cell * (row + 0.5), **style)
    for column in range(0, len(picture.columns), step):
        turn = f"translate({cell * (column + 0.6):.2f} -6) rotate(-45)"
        add(board, "text", shown(picture.columns[column]), transform=turn, font_size=size)


def draw_links(board: Element, picture: AttentionMap, cell: float) -> None:
    """A frame inside every cell that is linked in the true alignment."""
    line = min(2.0, cell / 8)
    for column, row in sorted(picture.links or ()):
        place = {"x": cell * column + line / 2, "y": cell * row + line / 2}
        size = {"width": cell - line, "height": cell - line}
        add(board, "rect", class_="link", fill="none", stroke=LINK, stroke_width=line, **place, **size)
