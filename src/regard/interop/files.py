"""Files as Hugging Face's libraries write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files import reading


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    with reading(path):
        content = path.read_bytes()
    try:
        found = json.loads(content)
    except ValueError as error:
        raise RegardError(f"{path}: is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RegardError(f"{path}: holds no table")
    return found
