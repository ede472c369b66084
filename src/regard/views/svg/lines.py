"""The lines as SVG: those who look on the left, what is looked at on the right, and a line for each weight."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np
from jaxtyping import Float32

from regard.views.attention_map import AttentionMap, Choice, check_map
from regard.views.display import harmless
from regard.views.shades import RAMP, ceiling, hexadecimal
from regard.views.svg.writer import LINE, LINK, MARGIN, add, paper, room, shown, svg_text

BETWEEN = 220.0  # pixels from one column of words to the other
THINNEST, THICKEST = 0.8, 3.2
FAINTEST = 0.01  # of the strongest: a line fainter than this could not be seen
BLUE = hexadecimal(RAMP[7])


def lines_svg(picture: AttentionMap, *, layer: Choice = "mean", head: Choice = "mean") -> str:
    """The map as an SVG file; every line has its weight as `data-weight` and in its tooltip."""
    check_map("lines_svg", picture)
    caption = harmless(picture.caption(layer, head))
    left = MARGIN + room(picture.rows)
    top = MARGIN + LINE + 8
    width = max(left + BETWEEN + room(picture.columns), 260.0) + MARGIN
    high = LINE * max(len(picture.rows), len(picture.columns))
    drawing = paper(width, top + high + MARGIN, caption)
    draw_lines(drawing, picture, picture.select(layer, head), left + 6, top)
    for words, x, anchor in ((picture.rows, left, "end"), (picture.columns, left + BETWEEN, "start")):
        for place, word in enumerate(words):
            style = {"text_anchor": anchor, "dominant_baseline": "central"}
            add(drawing, "text", shown(word), x=x, y=top + LINE * (place + 0.5), **style)
    return svg_text(drawing)


def draw_lines(
    drawing: Element, picture: AttentionMap, weights: Float32[np.ndarray, "rows columns"], left: float, top: float
) -> None:
    """A line for every weight that can be seen, the strongest on top, and dashes for the true alignment."""
    most = ceiling(weights)
    ends = {"x1": left, "x2": left + BETWEEN - 12}
    seen = np.argwhere(weights >= FAINTEST * most)
    for row, column in seen[np.argsort(weights[tuple(seen.T)], kind="stable")].tolist():
        weight = float(weights[row, column])
        shade = min(1.0, weight / most)
        heights = {"y1": top + LINE * (row + 0.5), "y2": top + LINE * (column + 0.5)}
        style = {"stroke": BLUE, "stroke_opacity": shade, "stroke_width": THINNEST + (THICKEST - THINNEST) * shade}
        line = add(drawing, "line", data_weight=f"{weight:.9g}", **ends, **heights, **style)
        names = f"{shown(picture.rows[row])} → {shown(picture.columns[column])}"
        add(line, "title", f"{names}: {weight:.4g}")
    for column, row in sorted(picture.links or ()):
        heights = {"y1": top + LINE * (row + 0.5), "y2": top + LINE * (column + 0.5)}
        style = {"stroke": LINK, "stroke_width": 2, "stroke_dasharray": "6 6"}
        add(drawing, "line", class_="link", **ends, **heights, **style)
