"""Files as Hugging Face's libraries write and read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import RegardError
from regard.files import reading, write_bytes


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


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors as a file that says it is torch's, without which Transformers would not read it."""
    from safetensors.torch import save

    apart = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, save(apart, {"format": "pt"}))
