"""Check the metadata and the tensors of a file with saved weights, one field at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from regard.attention.score_checks import describe_type
from regard.errors import RegardError, format_json

MAX_DEPTH = 100  # nesting of weights and rules
MAX_POSITION = 2**24  # of the first key of joined weights, and size of an axis of a tensor without elements
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def get_kind(record: Any, subject: str, kinds: Iterable[str], field: str = "kind") -> str:
    """Return the kind of an object; raise a `RegardError` if it has none or an unknown one."""
    if not isinstance(record, dict):
        raise RegardError(f"{subject}: expected an object, got {format_json(record)}")
    if record.get(field) not in [*kinds]:
        raise RegardError(f"{subject}: expected one of {', '.join(kinds)}, got {format_json(record.get(field))}")
    return str(record[field])


def check_fields(record: dict[str, Any], subject: str, names: Iterable[str]) -> None:
    """Raise a `RegardError` unless an object has exactly these fields, beside its kind."""
    expected = {"kind", *names}
    if record.keys() != expected:
        name = min(record.keys() ^ expected)
        raise RegardError(f'{subject}: {"missing" if name in expected else "unknown"} field "{name}"')


def take_tensor(tensors: dict[str, Tensor], name: Any, dtypes: tuple[torch.dtype, ...], min_axes: int = 0) -> Tensor:
    """Remove a tensor from `tensors` and return it; raise a `RegardError` if it is missing or of another type."""
    tensor = tensors.pop(name, None) if isinstance(name, str) else None
    if tensor is None:
        raise RegardError(f"missing tensor {format_json(name)}")
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise RegardError(f"{name}: expected {expected}, got {describe_type(tensor)}")
    if tensor.ndim < min_axes or (tensor.numel() == 0 and max(tensor.shape) > MAX_POSITION):
        raise RegardError(f"{name}: unexpected shape {tuple(tensor.shape)}")
    return tensor


def refuse_unused(tensors: dict[str, Tensor]) -> None:
    """Raise a `RegardError` for a tensor that the metadata does not describe."""
    if tensors:
        raise RegardError(f"unexpected tensor {format_json(min(tensors))}")


def as_integer(value: Any, subject: str, minimum: int, maximum: int) -> int:
    """Return an integer within bounds, or raise a `RegardError`."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise RegardError(f"{subject} must be an integer from {minimum} to {maximum}, got {format_json(value)}")
    return value


def as_boolean(value: Any, subject: str) -> bool:
    """Return a boolean, or raise a `RegardError`."""
    if not isinstance(value, bool):
        raise RegardError(f"{subject} must be true or false, got {format_json(value)}")
    return value


def as_number(value: Any, subject: str) -> float:
    """Return a finite number, or raise a `RegardError`."""
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise RegardError(f"{subject} must be a finite number, got {format_json(value)}")
    return float(value)


def check_depth(record: Any) -> None:
    """Raise a `RegardError` if a description is nested more deeply than code that walks it can go."""
    level, depth = [record], 0
    while level:
        if depth > MAX_DEPTH:
            raise RegardError(f"weights or rules are nested more than {MAX_DEPTH} deep")
        level = [
            part
            for parent in level
            for part in (parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ())
        ]
        depth += 1
