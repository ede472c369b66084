"""Matrix view as SVG: source words above, target words on the left, a shaded cell for each pair."""

from __future__ import annotations

import math
from xml.etree.ElementTree import Element

import numpy as np
from jaxtyping import Float32

from regard.views.attention_map import AttentionMap, IndexOrMean, check_map
from regard.views.display import sanitize_text
from regard.views.shades import ceiling, shade_to_rgb, to_hex
from regard.views.svg.pixels import encode_png_url
from regard.views.svg.writer import (
    FONT,
    GREY,
    LINE,
    LINK,
    MARGIN,
    add,
    add_scale,
    format_label,
    measure_labels,
    new_drawing,
    serialize_svg,
)

CELL, LONGEST = 24.0, 1600.0  # maximum side of a cell and of the whole matrix, in pixels
MOST_CELLS = 10_000  # a larger matrix is drawn as one image
SLANT = math.sqrt(0.5)  # column labels are rotated by 45 degrees


def draw_matrix_svg(picture: AttentionMap, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
    """Return the map as SVG; every cell has its weight in `data-weight` and in its tooltip."""
    check_map("draw_matrix_svg", picture)
    weights = picture.select(layer, head)
    cell = min(CELL, LONGEST / max(weights.shape))
    wide, high = cell * weights.shape[1], cell * weights.shape[0]
    left, slanted = MARGIN + measure_labels(picture.rows) + 6, SLANT * measure_labels(picture.columns)
    top = MARGIN + LINE + slanted + 10
    width = max(left + wide + slanted, 260.0) + MARGIN
    caption = sanitize_text(picture.caption(layer, head))
    drawing = new_drawing(width, top + high + LINE + MARGIN, caption)
    board = add(drawing, "g", transform=f"translate({left:.2f} {top:.2f})")
    add_cells(board, picture, weights, cell)
    add_words(board, picture, cell)
    add_links(board, picture, cell)
    add_scale(drawing, left, top + high + 12, ceiling(weights))
    return serialize_svg(drawing)


def add_cells(board: Element, picture: AttentionMap, weights: Float32[np.ndarray, "rows columns"], cell: float) -> None:
    """Add a rectangle for every weight, or one image if there are too many."""
    vmax = ceiling(weights)
    if weights.size > MOST_CELLS:
        href = encode_png_url(weights, vmax, int(LONGEST))
        wide, high = cell * weights.shape[1], cell * weights.shape[0]
        style = {"preserveAspectRatio": "none", "style": "image-rendering: pixelated"}
        add(board, "image", width=wide, height=high, href=href, **style)
        return
    for (row, column), weight in np.ndenumerate(weights):
        box = {"x": cell * column, "y": cell * row, "width": cell, "height": cell}
        color = to_hex(shade_to_rgb(min(1.0, float(weight) / vmax)))
        square = add(board, "rect", fill=color, data_weight=f"{weight:.9g}", **box)
        names = f"{format_label(picture.rows[row])} → {format_label(picture.columns[column])}"
        add(square, "title", f"{names}: {weight:.4g}")


def add_words(board: Element, picture: AttentionMap, cell: float) -> None:
    """Add the labels, skipping some if they would overlap."""
    size = max(6.0, min(FONT, 0.75 * cell))
    step = math.ceil(1.4 * size / cell)
    frame = {"width": cell * len(picture.columns), "height": cell * len(picture.rows)}
    add(board, "rect", fill="none", stroke=GREY, stroke_width=0.6, **frame)
    for row in range(0, len(picture.rows), step):
        style = {"text_anchor": "end", "dominant_baseline": "central", "font_size": size}
        add(board, "text", format_label(picture.rows[row]), x=-6, y=cell * (row + 0.5), **style)
    for column in range(0, len(picture.columns), step):
        turn = f"translate({cell * (column + 0.6):.2f} -6) rotate(-45)"
        add(board, "text", format_label(picture.columns[column]), transform=turn, font_size=size)


def add_links(board: Element, picture: AttentionMap, cell: float) -> None:
    """Add a frame to every cell of the gold alignment."""
    line = min(2.0, cell / 8)
    for column, row in sorted(picture.links or ()):
        corner = {"x": cell * column + line / 2, "y": cell * row + line / 2}
        size = {"width": cell - line, "height": cell - line}
        add(board, "rect", class_="link", fill="none", stroke=LINK, stroke_width=line, **corner, **size)
