"""Parse the index of `weights[...]` into positions along each axis."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from regard.attention.score_checks import describe_type
from regard.attention.visible import Index
from regard.errors import RegardError


def expand_index(index: Any, rank: int) -> list[Any]:
    """Return one index entry per axis."""
    parts = [parse_position(part) for part in (index if isinstance(index, tuple) else (index,))]
    ellipses = [axis for axis, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise RegardError(f"weights[...]: expected at most one ellipsis, got {len(ellipses)}")
    if len(parts) - len(ellipses) > rank:
        raise RegardError(f"weights[...]: expected at most {rank} indices, got {len(parts)}")
    axis = ellipses[0] if ellipses else len(parts)
    filling = [slice(None)] * (rank - len(parts) + len(ellipses))
    return [*parts[:axis], *filling, *parts[axis + len(ellipses) :]]


def parse_position(part: Any) -> Any:
    """Return an index entry, with any integer type as an int and a list as a tensor."""
    if isinstance(part, (slice, EllipsisType)):
        return part
    original = part
    try:
        if isinstance(part, list):
            part = torch.tensor(part, dtype=None if part else torch.long)
        if isinstance(part, bool):
            raise TypeError
        if not isinstance(part, Tensor) or part.ndim == 0:
            return operator.index(part)
        if part.is_floating_point() or part.is_complex():
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        type_name = (
            f"a tensor of {describe_type(original)}" if isinstance(original, Tensor) else type(original).__name__
        )
        message = f"weights[...]: expected integers, slices, or lists or tensors of integers, got {type_name}"
        raise RegardError(message) from None
    if part.dtype == torch.bool and part.ndim > 1:
        raise RegardError(f"weights[...]: expected a bool tensor with 1 axis, got {part.ndim} axes")
    return part


def select_leading(tensor: Tensor, batch: Sequence[int], leading: Sequence[Any]) -> Tensor:
    """Return the part of a tensor (*#batch, rows, columns) that index entries for the axes of *batch select."""
    return tensor.expand(*batch, *tensor.shape[-2:])[tuple(leading)]


def resolve_index(part: Any, size: int, device: torch.device) -> tuple[Index, Any]:
    """Return the positions an index entry selects, and the entry that selects them from these positions."""
    if isinstance(part, int):
        if not -size <= part < size:
            raise RegardError(f"weights[...]: index {part} is out of range for an axis of size {size}")
        return slice(part % size, part % size + 1), 0
    if isinstance(part, slice):
        chosen = range(*part.indices(size))
        if chosen.step == 1:
            return slice(chosen.start, max(chosen.start, chosen.stop)), slice(None)
        return torch.tensor(chosen, dtype=torch.long, device=device), slice(None)
    if part.dtype == torch.bool and len(part) != size:
        raise RegardError(f"weights[...]: expected a bool tensor of length {size}, got {len(part)}")
    positions = (part.nonzero()[:, 0] if part.dtype == torch.bool else part.long()).to(device)
    if positions.numel() and not (-size <= int(positions.min()) and int(positions.max()) < size):
        raise RegardError(
            f"weights[...]: indices from {int(positions.min())} to {int(positions.max())} "
            f"are out of range for an axis of size {size}"
        )
    flat = positions.flatten() % size if size else positions.flatten()
    return flat, torch.arange(flat.numel(), device=device).reshape(positions.shape)
