"""Text with shaded words as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

from regard.views.display import display_width, truncate
from regard.views.shades import choose_text_color, shade_to_rgb, to_hex
from regard.views.svg.writer import GLYPH, MARGIN, add, add_scale, new_drawing, sanitize_xml, serialize_svg
from regard.views.words import build_shaded_words, wrap_words

COLUMNS = 80  # characters per line
PITCH = 26.0  # line height in pixels


def draw_words_svg(words: Sequence[str], weights: Any, *, title: str = "") -> str:
    """Return the text as SVG; every word has its weight in `data-weight` and in its tooltip."""
    text = build_shaded_words(words, weights, title)
    lines = wrap_words([(truncate(word, COLUMNS), index) for index, word in enumerate(text.words)], COLUMNS)
    top = MARGIN + (PITCH if text.title else 0.0)
    width = 2 * MARGIN + GLYPH * max((sum(display_width(word) + 1 for word, _ in line) for line in lines), default=0)
    drawing = new_drawing(max(width, 260.0), top + PITCH * (len(lines) + 1), text.title)
    for line_number, line in enumerate(lines):
        left, y = MARGIN, top + PITCH * line_number
        for word, index in line:
            wide = GLYPH * display_width(word)
            draw_word(drawing, word, text.shades[index], float(text.weights[index]), (left, y, wide))
            left += wide + GLYPH
    add_scale(drawing, MARGIN, top + PITCH * len(lines) + 4, text.top)
    return serialize_svg(drawing)


def draw_word(drawing: Element, word: str, shade: float, weight: float, box: tuple[float, float, float]) -> None:
    """Draw a word centered on its shade, stretched to fit it in any font."""
    left, top, wide = box
    color = shade_to_rgb(shade)
    group = add(drawing, "g", data_weight=f"{weight:.9g}")
    add(group, "title", f"{word}: {weight:.4g}")
    rectangle = {"x": left - 3, "y": top, "width": wide + 6, "height": PITCH - 6, "rx": 3}
    add(group, "rect", fill=to_hex(color), **rectangle)
    style = {
        "font_family": "ui-monospace, monospace",
        "text_anchor": "middle",
        "textLength": wide,
        "lengthAdjust": "spacingAndGlyphs",
    }
    middle = {"x": left + wide / 2, "y": top + PITCH - 12}
    add(group, "text", sanitize_xml(word), fill=to_hex(choose_text_color(color)), **middle, **style)
