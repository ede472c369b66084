"""Batch and TextBatch: sentences, or segments of texts, side by side as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.layers.lengths import SequenceLengths, moved

PAD, UNKNOWN, BOS, EOS = range(4)
"""The first four numbers of every vocabulary."""


class Pair(NamedTuple):
    """A source and its target as numbers, without <bos> and <eos>; the target may be unknown."""

    source: Sequence[int]
    target: Sequence[int] | None = None


Moved = TypeVar("Moved", bound="Movable")


class Movable:
    """A dataclass of tensors."""

    def to(self: Moved, device: str | torch.device) -> Moved:
        """The same in the memory of a device, which the CPU does not wait for."""
        return replace(self, **{name: on_device(value, device) for name, value in vars(self).items()})  # type: ignore[type-var]


@dataclass(frozen=True)
class Batch(Movable):
    """Sources that end in <eos>, and targets as they go in (<bos> first) and as they shall come out (<eos> last).

    The end of shorter ones is filled with PAD. Without targets, to predict them, the last three are None.
    """

    source: Int[Tensor, "batch source"]
    source_lengths: SequenceLengths
    target_in: Int[Tensor, "batch target"] | None = None
    target_out: Int[Tensor, "batch target"] | None = None
    target_lengths: Int[Tensor, " batch"] | None = None

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class TextBatch(Movable):
    """Segments of texts: the tokens as they go in, and that which follows each, PAD where none is asked for.

    Rows go on where those of the segment before ended, unless they are `fresh`.
    """

    tokens: Int[Tensor, "rows time"]
    targets: Int[Tensor, "rows time"]
    fresh: bool = True

    def __len__(self) -> int:
        return len(self.tokens)


def on_device(value: Any, device: str | torch.device) -> Any:
    """A part of a batch in the memory of a device; what is no tensor, nor has any, as it is."""
    if isinstance(value, tuple):
        return tuple(on_device(each, device) for each in value)
    if isinstance(value, Tensor):
        return moved(value, device)
    return value.to(device) if isinstance(value, (Movable, SequenceLengths)) else value


def collate(pairs: Sequence[Pair]) -> Batch:
    """One batch of all pairs; targets only if every pair has one."""
    source, lengths = padded([[*pair.source, EOS] for pair in pairs])
    source_lengths = SequenceLengths.of(lengths)
    targets = [pair.target for pair in pairs if pair.target is not None]
    if len(targets) < len(pairs):
        return Batch(source, source_lengths)
    target_in, target_lengths = padded([[BOS, *target] for target in targets])
    target_out, _ = padded([[*target, EOS] for target in targets])
    return Batch(source, source_lengths, target_in, target_out, target_lengths)


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "batch longest"], Int[Tensor, " batch"]]:
    """Rows of numbers as one tensor, filled up at the end, and their lengths."""
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    filled = chain.from_iterable([*row, *[PAD] * (longest - len(row))] for row in rows)
    flat = torch.from_numpy(np.fromiter(filled, np.int64))  # torch reads a Python list at half the speed
    return flat.reshape(len(rows), longest), torch.tensor(lengths, dtype=torch.long)
