"""HTML pages that are whole in themselves: nothing is loaded, and nothing runs but what is written into them.

A Content-Security-Policy names the style and the script of the page by their hashes, so
that markup which came in with a word could neither run nor fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib import resources


def static(name: str) -> str:
    """A style or script of the package."""
    return resources.files("regard.views").joinpath("static", name).read_text(encoding="utf-8")


def document(title: str, body: str, *, style: str, script: str = "") -> str:
    """A page of a body that is markup already; the title is text."""
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy(style, script)}">',
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


def policy(style: str, script: str) -> str:
    """What the page may do: show this style, run this script, and no more."""
    runs = f"script-src '{digest(script)}'; " if script else ""
    return f"default-src 'none'; {runs}style-src '{digest(style)}'; base-uri 'none'; form-action 'none'"


def digest(text: str) -> str:
    """The hash by which a policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
