"""An attention map as one HTML file, whole in itself: the record, the style and the script are written into it.

    Path("look.html").write_text(map_page(picture))

The script is that of `static/`, whose modules are joined into one, since a file has no
others to import from.
"""

from __future__ import annotations

import json
import re
from html import escape

from regard.errors import unknown_name
from regard.views.attention_map import AttentionMap, Choice, check_map, chosen
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
VIEWS = ("matrix", "lines", "heads", "words", "time")
MOST_WEIGHTS = 1_000_000  # with more, a page holds the largest of each row,
MOST_KEPT, LEAST_KEPT = 64, 4  # so many of them

FRAME_HEIGHT = 640  # pixels, in a notebook


def map_page(picture: AttentionMap, *, view: str = "matrix", layer: Choice = "mean", head: Choice = "mean") -> str:
    """The page as text, and what it shows first. A map of very many weights is shown by the largest of each row."""
    check_map("map_page", picture)
    first = " ".join(f'data-{name}="{value}"' for name, value in shown_first(picture, view, layer, head).items())
    record = json.dumps(slim(picture).record())
    for sign in "<>&":  # so that no token can end the element that holds it
        record = record.replace(sign, f"\\u{ord(sign):04x}")
    body = f'<main id="view" {first}></main>\n<script type="application/json" id="record">{record}</script>'
    style = static("page.css") + static("viewer.css")
    return document(harmless(picture.title) or "Attention", body, style=style, script=joined_modules("page"))


def shown_first(picture: AttentionMap, view: str, layer: Choice, head: Choice) -> dict[str, int | str]:
    """What a viewer shows first, as it knows it, or a `RegardError` for what the map has not."""
    views = VIEWS if picture.alternatives else VIEWS[:-1]  # without them there is no time to show
    if view not in views:
        raise unknown_name("view", view, views)
    return {
        "view": view,
        "layer": counted("layer", layer, picture.layers),
        "head": counted("head", head, picture.heads),
    }


def counted(name: str, choice: Choice, count: int) -> int | str:
    """A layer or head by its number from 0, or "mean"."""
    start = chosen(name, choice, count).start
    return "mean" if choice in ("mean", None) else start


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
