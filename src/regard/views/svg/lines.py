"""Lines view as SVG: rows (queries) on the left, columns (keys) on the right, and a line for each weight."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np
from jaxtyping import Float32

from regard.views.attention_map import AttentionMap, IndexOrMean, check_map
from regard.views.display import sanitize_text
from regard.views.shades import RAMP, ceiling, to_hex
from regard.views.svg.writer import LINE, LINK, MARGIN, add, format_label, measure_labels, new_drawing, serialize_svg

BETWEEN = 220.0  # distance of the two columns of words, in pixels
THINNEST, THICKEST = 0.8, 3.2
FAINTEST = 0.01  # relative to the maximum; fainter lines are not drawn
BLUE = to_hex(RAMP[7])


def draw_lines_svg(picture: AttentionMap, *, layer: IndexOrMean = "mean", head: IndexOrMean = "mean") -> str:
    """Return the map as SVG; every line has its weight in `data-weight` and in its tooltip."""
    check_map("draw_lines_svg", picture)
    caption = sanitize_text(picture.caption(layer, head))
    left = MARGIN + measure_labels(picture.rows)
    top = MARGIN + LINE + 8
    width = max(left + BETWEEN + measure_labels(picture.columns), 260.0) + MARGIN
    high = LINE * max(len(picture.rows), len(picture.columns))
    drawing = new_drawing(width, top + high + MARGIN, caption)
    draw_lines(drawing, picture, picture.select(layer, head), left + 6, top)
    for words, x, anchor in ((picture.rows, left, "end"), (picture.columns, left + BETWEEN, "start")):
        for index, word in enumerate(words):
            style = {"text_anchor": anchor, "dominant_baseline": "central"}
            add(drawing, "text", format_label(word), x=x, y=top + LINE * (index + 0.5), **style)
    return serialize_svg(drawing)


def draw_lines(
    drawing: Element, picture: AttentionMap, weights: Float32[np.ndarray, "rows columns"], left: float, top: float
) -> None:
    """Draw a line for every visible weight, the strongest on top, and dashed lines for the gold alignment."""
    vmax = ceiling(weights)
    ends = {"x1": left, "x2": left + BETWEEN - 12}
    visible_cells = np.argwhere(weights >= FAINTEST * vmax)
    for row, column in visible_cells[np.argsort(weights[tuple(visible_cells.T)], kind="stable")].tolist():
        weight = float(weights[row, column])
        shade = min(1.0, weight / vmax)
        heights = {"y1": top + LINE * (row + 0.5), "y2": top + LINE * (column + 0.5)}
        style = {"stroke": BLUE, "stroke_opacity": shade, "stroke_width": THINNEST + (THICKEST - THINNEST) * shade}
        line = add(drawing, "line", data_weight=f"{weight:.9g}", **ends, **heights, **style)
        names = f"{format_label(picture.rows[row])} → {format_label(picture.columns[column])}"
        add(line, "title", f"{names}: {weight:.4g}")
    for column, row in sorted(picture.links or ()):
        heights = {"y1": top + LINE * (row + 0.5), "y2": top + LINE * (column + 0.5)}
        style = {"stroke": LINK, "stroke_width": 2, "stroke_dasharray": "6 6"}
        add(drawing, "line", class_="link", **ends, **heights, **style)
