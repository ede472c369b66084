"""The elements of an SVG file, and the measures that the drawings share."""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from regard.views.display import REPLACEMENT, broken, cut, display_width, harmless
from regard.views.shades import RAMP, hexadecimal, rgb

FONT = 12.0  # pixels
GLYPH = 7.3  # the width to leave for a character of that size; the font is the reader's
LINE = 20.0  # from one line of text to the next
MARGIN = 12.0
LABEL = 40  # a word longer than this is cut
TITLE = 4  # and a title that takes more lines than this

TEXT, GREY, LINK = "#1f2328", "#bbbbbb", "#d55e00"

NO_CHARACTER = re.compile("[\ufffe\uffff]")  # the rest of what XML forbids is no part of a harmless text


def paper(width: float, height: float, title: str) -> Element:
    """A drawing with nothing on it but its title; a tooltip has all of it, where it is longer than there is room.

    The size has room for one line of title. For further ones the paper grows upwards, above 0, so that nothing
    else moves.
    """
    lines = broken(title, int((width - 2 * MARGIN) / GLYPH), TITLE) or [""]
    above = LINE * (len(lines) - 1)
    height += above
    view = f"0 {number(-above)} {number(width)} {number(height)}"
    size = {"width": number(width), "height": number(height), "viewBox": view}
    font = {"font-family": "system-ui, sans-serif", "font-size": number(FONT), "fill": TEXT}
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **size, **font})
    add(root, "title", title or "Attention")
    add(root, "rect", y=-above, width=width, height=height, fill="#ffffff")
    for place, line in enumerate(lines):
        add(root, "text", line, x=MARGIN, y=MARGIN + FONT - above + LINE * place, font_weight="600")
    return root


def add(inside: Element, tag: str, text: str = "", /, **attributes: Any) -> Element:
    """Append an element, with numbers as lengths; an underscore in an attribute's name stands for a hyphen."""
    names = {
        name.rstrip("_").replace("_", "-"): value if isinstance(value, str) else number(value)
        for name, value in attributes.items()
    }
    element = SubElement(inside, tag, names)
    element.text = plain(text) or None
    return element


def add_scale(inside: Element, left: float, top: float, most: float) -> None:
    """The shades from nothing to the darkest, and the weight that is the darkest."""
    add(inside, "text", "0", x=left, y=top + 10)
    for step in range(len(RAMP)):
        colour = hexadecimal(rgb(step / (len(RAMP) - 1)))
        add(inside, "rect", x=left + 14 + 12 * step, y=top, width=12, height=12, fill=colour)
    add(inside, "text", f"{most:g}", x=left + 20 + 12 * len(RAMP), y=top + 10)


def svg_text(root: Element) -> str:
    """A drawing as a file."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def number(value: float) -> str:
    """A length in pixels, to the hundredth."""
    return f"{round(value, 2):g}"


def plain(text: str) -> str:
    """A text as XML may hold it."""
    return NO_CHARACTER.sub(REPLACEMENT, text)


def shown(word: str) -> str:
    """A word as it is written beside a drawing."""
    return plain(cut(harmless(word), LABEL))


def room(words: tuple[str, ...]) -> float:
    """The width to leave for the longest of some words."""
    return GLYPH * max(display_width(shown(word)) for word in words)
