"""A text as SVG, its words shaded by their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

from regard.views.display import cut, display_width
from regard.views.shades import hexadecimal, ink, rgb
from regard.views.svg.writer import GLYPH, MARGIN, add, add_scale, paper, plain, svg_text
from regard.views.words import shaded, wrapped

COLUMNS = 80  # characters of a line
PITCH = 26.0  # pixels from one line to the next


def words_svg(words: Sequence[str], weights: Any, *, title: str = "") -> str:
    """The text as an SVG file; every word has its weight as `data-weight` and in its tooltip."""
    text = shaded(words, weights, title)
    lines = wrapped([(cut(word, COLUMNS), place) for place, word in enumerate(text.words)], COLUMNS)
    top = MARGIN + (PITCH if text.title else 0.0)
    width = 2 * MARGIN + GLYPH * max((sum(display_width(word) + 1 for word, _ in line) for line in lines), default=0)
    drawing = paper(max(width, 260.0), top + PITCH * (len(lines) + 1), text.title)
    for line_number, line in enumerate(lines):
        left, y = MARGIN, top + PITCH * line_number
        for word, place in line:
            wide = GLYPH * display_width(word)
            draw_word(drawing, word, text.shades[place], float(text.weights[place]), (left, y, wide))
            left += wide + GLYPH
    add_scale(drawing, MARGIN, top + PITCH * len(lines) + 4, text.top)
    return svg_text(drawing)


def draw_word(drawing: Element, word: str, shade: float, weight: float, place: tuple[float, float, float]) -> None:
    """A word in the middle of its shade, made to fit it whatever the font."""
    left, top, wide = place
    colour = rgb(shade)
    group = add(drawing, "g", data_weight=f"{weight:.9g}")
    add(group, "title", f"{word}: {weight:.4g}")
    box = {"x": left - 3, "y": top, "width": wide + 6, "height": PITCH - 6, "rx": 3}
    add(group, "rect", fill=hexadecimal(colour), **box)
    style = {
        "font_family": "ui-monospace, monospace",
        "text_anchor": "middle",
        "textLength": wide,
        "lengthAdjust": "spacingAndGlyphs",
    }
    middle = {"x": left + wide / 2, "y": top + PITCH - 12}
    add(group, "text", plain(word), fill=hexadecimal(ink(colour)), **middle, **style)
