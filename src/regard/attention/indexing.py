"""What may stand between the brackets of `weights[...]`, as positions of each axis."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from regard.attention.score_checks import kind
from regard.attention.visible import Index
from regard.errors import RegardError


def full_index(index: Any, rank: int) -> list[Any]:
    """One entry for each axis."""
    parts = [checked_position(part) for part in (index if isinstance(index, tuple) else (index,))]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise RegardError(f"weights[...]: found {len(dots)} ellipses; one is taken, which fills up the axes not named")
    if len(parts) - len(dots) > rank:
        raise RegardError(f"weights[...]: {len(parts)} positions for {rank} axes")
    place = dots[0] if dots else len(parts)
    filling = [slice(None)] * (rank - len(parts) + len(dots))
    return [*parts[:place], *filling, *parts[place + len(dots) :]]


def checked_position(part: Any) -> Any:
    """An index entry, any whole number as an int, a list as a tensor."""
    if isinstance(part, (slice, EllipsisType)):
        return part
    given = part
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
        found = f"a tensor of {kind(given)}" if isinstance(given, Tensor) else type(given).__name__
        told = f"weights[...]: found {found}; whole numbers, slices, and lists or tensors of whole numbers are taken"
        raise RegardError(told) from None
    if part.dtype == torch.bool and part.ndim > 1:
        raise RegardError(f"weights[...]: a bool tensor of {part.ndim} axes; one for each axis is taken")
    return part


def picked(part: Any, size: int, device: torch.device) -> tuple[Index, Any]:
    """The positions that an index entry asks for, and the entry that finds them among just these."""
    if isinstance(part, int):
        if not -size <= part < size:
            raise RegardError(f"weights[...]: there is no position {part} among {size}")
        return slice(part % size, part % size + 1), 0
    if isinstance(part, slice):
        chosen = range(*part.indices(size))
        if chosen.step == 1:
            return slice(chosen.start, max(chosen.start, chosen.stop)), slice(None)
        return torch.tensor(chosen, dtype=torch.long, device=device), slice(None)
    if part.dtype == torch.bool and len(part) != size:
        raise RegardError(f"weights[...]: a bool tensor of {len(part)} for an axis of {size}")
    wanted = (part.nonzero()[:, 0] if part.dtype == torch.bool else part.long()).to(device)
    if wanted.numel() and not (-size <= int(wanted.min()) and int(wanted.max()) < size):
        raise RegardError(
            f"weights[...]: a position from {int(wanted.min())} to {int(wanted.max())} is not among {size}"
        )
    flat = wanted.flatten() % size if size else wanted.flatten()
    return flat, torch.arange(flat.numel(), device=device).reshape(wanted.shape)
