"""Self-contained HTML pages that load nothing from elsewhere.

The Content-Security-Policy allows only the inline style and script, by their hashes, so
markup injected by a token could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib import resources


def read_static(name: str) -> str:
    """Read a style or script file of the package."""
    return resources.files("regard.views").joinpath("static", name).read_text(encoding="utf-8")


def build_document(title: str, body: str, *, style: str, script: str = "", images: bool = False) -> str:
    """Build an HTML page. `body` is HTML, `title` is plain text; `images` allows pictures inside the page."""
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{build_policy(style, script, images)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        body,
        *([f'<script type="module">{script}</script>'] if script else []),
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def build_policy(style: str, script: str, images: bool = False) -> str:
    """Return a Content-Security-Policy that allows only this style and script, and pictures in data URLs."""
    script_rule = f"script-src '{hash_source(script)}'; " if script else ""
    image_rule = "img-src data:; " if images else ""
    rules = f"{script_rule}{image_rule}style-src '{hash_source(style)}'"
    return f"default-src 'none'; {rules}; base-uri 'none'; form-action 'none'"


def hash_source(text: str) -> str:
    """Return the CSP hash source of an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
