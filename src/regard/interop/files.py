"""Files as Hugging Face's libraries write and read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import RegardError
from regard.files import read_json, write_bytes


def read_json_table(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise RegardError(f"{path}: holds no table")
    return found


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors as a file that says it is torch's, without which Transformers would not read it."""
    from safetensors.torch import save

    apart = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, save(apart, {"format": "pt"}))
