"""The files of the page: all that are in the package, by their addresses, read once.

Whatever a request asks for is looked up among these, so no path can lead anywhere else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FOLDERS = ("serve/static", "views/static")
PAGES = {"/": "/serve/static/index.html", "/docs": "/serve/static/docs.html"}


@dataclass(frozen=True)
class File:
    """What is sent for an address."""

    content: bytes
    kind: str
    tag: str  # by which a browser knows that its copy is the same


def page_files() -> dict[str, File]:
    """Files by address. They lie as in the package, so that modules find one another."""
    found = {}
    for folder in FOLDERS:
        for file in resources.files("regard").joinpath(folder).iterdir():
            content = file.read_bytes()
            digest = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[f"/{folder}/{file.name}"] = File(content, KINDS[file.name.rpartition(".")[2]], digest)
    return found | {address: found[file] for address, file in PAGES.items()}
