"""Static files of the web page, by URL path, read from the package once.

Requests are looked up in this table, so no path can escape the package.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FOLDERS = ("serve/static", "views/static")
PAGES = {"/": "/serve/static/index.html", "/docs": "/serve/static/docs.html"}


@dataclass(frozen=True)
class StaticFile:
    """Content and headers of a static file."""

    content: bytes
    media_type: str
    etag: str  # ETag header, a hash of the content


def load_page_files() -> dict[str, StaticFile]:
    """Return the static files by URL path. Paths mirror the package, so relative imports work."""
    files = {}
    for folder in FOLDERS:
        for file in resources.files("regard").joinpath(folder).iterdir():
            content = file.read_bytes()
            digest = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[f"/{folder}/{file.name}"] = StaticFile(content, MEDIA_TYPES[file.name.rpartition(".")[2]], digest)
    return files | {address: files[file] for address, file in PAGES.items()}
