"""Batch and TextBatch: sentences, or segments of texts, side by side as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

PAD, UNKNOWN, BOS, EOS = range(4)
"""The first four numbers of every vocabulary."""


class Pair(NamedTuple):
    """A source and its target as numbers, without <bos> and <eos>; the target may be unknown."""

    source: Sequence[int]
    target: Sequence[int] | None = None


@dataclass(frozen=True)
class Batch:
    """Sources that end in <eos>, and targets as they go in (<bos> first) and as they shall come out (<eos> last).

    The end of shorter ones is filled with PAD. Without targets, to predict them, the last three are None.
    """

    source: Int[Tensor, "batch source"]
    source_lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, "batch target"] | None = None
    target_out: Int[Tensor, "batch target"] | None = None
    target_lengths: Int[Tensor, " batch"] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def to(self, device: str | torch.device) -> Batch:
        """The same batch in the memory of a device."""
        found: dict[str, Any] = {name: t if t is None else moved(t, device) for name, t in vars(self).items()}
        return Batch(**found)


@dataclass(frozen=True)
class TextBatch:
    """Segments of texts: the tokens as they go in, and that which follows each, PAD where none is asked for.

    Rows go on where those of the segment before ended, unless they are `fresh`.
    """

    tokens: Int[Tensor, "rows time"]
    targets: Int[Tensor, "rows time"]
    fresh: bool = True

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: str | torch.device) -> TextBatch:
        """The same batch in the memory of a device."""
        return TextBatch(moved(self.tokens, device), moved(self.targets, device), self.fresh)


def moved(tensor: Tensor, device: str | torch.device) -> Tensor:
    """A tensor on a device; a GPU fetches it from pinned memory while the CPU goes on."""
    fetched = torch.device(device).type == "cuda" and tensor.is_cpu
    return tensor.pin_memory().to(device, non_blocking=True) if fetched else tensor.to(device)


def collate(pairs: Sequence[Pair]) -> Batch:
    """One batch of all pairs; targets only if every pair has one."""
    source, source_lengths = padded([[*pair.source, EOS] for pair in pairs])
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
