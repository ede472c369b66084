"""SVG elements and measurements shared by the drawings."""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from regard.views.display import REPLACEMENT, display_width, sanitize_text, truncate, wrap_text
from regard.views.shades import RAMP, shade_to_rgb, to_hex

FONT = 12.0  # pixels
GLYPH = 7.3  # estimated width of a character of that size
LINE = 20.0  # line height
MARGIN = 12.0
LABEL = 40  # maximum columns of a label
TITLE = 4  # maximum lines of a title

TEXT, GREY, LINK = "#1f2328", "#bbbbbb", "#d55e00"

NO_CHARACTER = re.compile("[\ufffe\uffff]")  # other characters that XML forbids are removed by `sanitize_text`


def new_drawing(width: float, height: float, title: str) -> Element:
    """Create a drawing with a title; the full title is also the tooltip.

    `height` includes one line of title. For more lines the drawing grows upward, to negative y, so that nothing
    else moves.
    """
    lines = wrap_text(title, int((width - 2 * MARGIN) / GLYPH), TITLE) or [""]
    above = LINE * (len(lines) - 1)
    height += above
    view = f"0 {format_length(-above)} {format_length(width)} {format_length(height)}"
    size = {"width": format_length(width), "height": format_length(height), "viewBox": view}
    font = {"font-family": "system-ui, sans-serif", "font-size": format_length(FONT), "fill": TEXT}
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **size, **font})
    add(root, "title", title or "Attention")
    add(root, "rect", y=-above, width=width, height=height, fill="#ffffff")
    for index, line in enumerate(lines):
        add(root, "text", line, x=MARGIN, y=MARGIN + FONT - above + LINE * index, font_weight="600")
    return root


def add(parent: Element, tag: str, text: str = "", /, **attributes: Any) -> Element:
    """Append an element. Numbers are formatted as lengths; underscores in attribute names become hyphens."""
    names = {
        name.rstrip("_").replace("_", "-"): value if isinstance(value, str) else format_length(value)
        for name, value in attributes.items()
    }
    element = SubElement(parent, tag, names)
    element.text = sanitize_xml(text) or None
    return element


def add_scale(parent: Element, left: float, top: float, vmax: float) -> None:
    """Add the color scale with its maximum."""
    add(parent, "text", "0", x=left, y=top + 10)
    for step in range(len(RAMP)):
        color = to_hex(shade_to_rgb(step / (len(RAMP) - 1)))
        add(parent, "rect", x=left + 14 + 12 * step, y=top, width=12, height=12, fill=color)
    add(parent, "text", f"{vmax:g}", x=left + 20 + 12 * len(RAMP), y=top + 10)


def serialize_svg(root: Element) -> str:
    """Serialize a drawing to an SVG file."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def format_length(value: float) -> str:
    """Format a length in pixels with two decimals."""
    return f"{round(value, 2):g}"


def sanitize_xml(text: str) -> str:
    """Replace characters that XML does not allow."""
    return NO_CHARACTER.sub(REPLACEMENT, text)


def format_label(word: str) -> str:
    """Sanitize and shorten a label."""
    return sanitize_xml(truncate(sanitize_text(word), LABEL))


def measure_labels(words: tuple[str, ...]) -> float:
    """Return the width of the longest label."""
    return GLYPH * max(display_width(format_label(word)) for word in words)
