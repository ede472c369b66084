"""An attention map as one HTML file, whole in itself: the record, the style and the script are written into it.

    Path("look.html").write_text(map_page(picture))

The script is that of `static/`, whose modules are joined into one, since a file has no
others to import from.
"""

from __future__ import annotations

import json
import re
from html import escape

from regard.views.attention_map import AttentionMap, check_map
from regard.views.display import harmless
from regard.views.document import document, static

MODULES = (
    "labels",
    "shades",
    "record",
    "board",
    "controls",
    "listbox",
    "matrix",
    "lines",
    "heads",
    "words",
    "time",
    "viewer",
)
MOST_WEIGHTS = 1_000_000  # with more, a page holds the largest of each row,
MOST_KEPT, LEAST_KEPT = 64, 4  # so many of them

FRAME_HEIGHT = 640  # pixels, in a notebook


def map_page(picture: AttentionMap) -> str:
    """The page as text. A map of very many weights is shown by the largest of each row."""
    check_map("map_page", picture)
    record = json.dumps(slim(picture).record())
    for sign in "<>&":  # so that no token can end the element that holds it
        record = record.replace(sign, f"\\u{ord(sign):04x}")
    body = f'<main id="view"></main>\n<script type="application/json" id="record">{record}</script>'
    style = static("page.css") + static("viewer.css")
    return document(harmless(picture.title) or "Attention", body, style=style, script=joined_modules("page"))


def frame(picture: AttentionMap) -> str:
    """The page in a frame, as a notebook shows it; nothing in it can reach the notebook."""
    page = escape(map_page(picture))
    style = f"width: 100%; height: {FRAME_HEIGHT}px; border: 0"
    return f'<iframe sandbox="allow-scripts" title="Attention map" style="{style}" srcdoc="{page}"></iframe>'


def slim(picture: AttentionMap) -> AttentionMap:
    """The map, or where it has too many weights for a page, its largest."""
    layers, heads, rows, columns = picture.weights.shape
    if picture.kept is None and layers * heads * rows * columns > MOST_WEIGHTS:
        return picture.keep_top(max(LEAST_KEPT, min(MOST_KEPT, MOST_WEIGHTS // (layers * heads * rows))))
    return picture


def joined_modules(*last: str) -> str:
    """The modules of the viewer, and further ones, as one."""
    text = "\n".join(static(f"{name}.js") for name in (*MODULES, *last))
    return re.sub(r"^import .*;\n|^export (?!default)", "", text, flags=re.MULTILINE)
