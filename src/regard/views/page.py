"""Self-contained HTML page of an attention map, with inline record, style and script.

    Path("look.html").write_text(build_map_page(attention_map))

The script bundles the modules of `static/` into one.
"""

from __future__ import annotations

import json
import re
from html import escape

from regard.errors import unknown_name
from regard.views.attention_map import AttentionMap, IndexOrMean, check_map, to_slice
from regard.views.display import sanitize_text
from regard.views.document import build_document, read_static

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
MOST_WEIGHTS = 1_000_000  # a page of a larger map has only the largest weights per row
MOST_KEPT, LEAST_KEPT = 64, 4  # bounds for the number of weights kept per row

FRAME_HEIGHT = 640  # height in a notebook, in pixels


def build_map_page(
    picture: AttentionMap, *, view: str = "matrix", layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
) -> str:
    """Return the page as HTML, opening with this view, layer and head. Very large maps are reduced to top weights."""
    check_map("build_map_page", picture)
    first = " ".join(
        f'data-{name}="{value}"' for name, value in resolve_initial_view(picture, view, layer, head).items()
    )
    record = json.dumps(limit_weights(picture).record())
    for sign in "<>&":  # so that no token can close the script element
        record = record.replace(sign, f"\\u{ord(sign):04x}")
    body = f'<main id="view" {first}></main>\n<script type="application/json" id="record">{record}</script>'
    style = read_static("page.css") + read_static("viewer.css")
    return build_document(sanitize_text(picture.title) or "Attention", body, style=style, script=bundle_modules("page"))


def resolve_initial_view(
    picture: AttentionMap, view: str, layer: IndexOrMean, head: IndexOrMean
) -> dict[str, int | str]:
    """Return the initial state of the viewer, or raise `RegardError` for an unknown view, layer or head."""
    views = VIEWS if picture.alternatives else VIEWS[:-1]  # the last view, time, requires alternatives
    if view not in views:
        raise unknown_name("view", view, views)
    return {
        "view": view,
        "layer": resolve_choice("layer", layer, picture.layers),
        "head": resolve_choice("head", head, picture.heads),
    }


def resolve_choice(name: str, choice: IndexOrMean, count: int) -> int | str:
    """Return a layer or head as an index from 0, or "mean"."""
    start = to_slice(name, choice, count).start
    return "mean" if choice in ("mean", None) else start


def build_iframe(picture: AttentionMap) -> str:
    """Return the page in a sandboxed iframe for notebooks."""
    page = escape(build_map_page(picture))
    style = f"width: 100%; height: {FRAME_HEIGHT}px; border: 0"
    return f'<iframe sandbox="allow-scripts" title="Attention map" style="{style}" srcdoc="{page}"></iframe>'


def limit_weights(picture: AttentionMap) -> AttentionMap:
    """Return the map, reduced to its largest weights if it is too large for a page."""
    layers, heads, rows, columns = picture.weights.shape
    if picture.top_k is None and layers * heads * rows * columns > MOST_WEIGHTS:
        return picture.keep_top(max(LEAST_KEPT, min(MOST_KEPT, MOST_WEIGHTS // (layers * heads * rows))))
    return picture


def bundle_modules(*extra: str) -> str:
    """Bundle the modules of the viewer and extra ones into one script."""
    text = "\n".join(read_static(f"{name}.js") for name in (*MODULES, *extra))
    return re.sub(r"^import .*;\n|^export (?!default)", "", text, flags=re.MULTILINE)
