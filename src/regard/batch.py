"""Batch and TextBatch: padded batches of sentence pairs and of text segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.layers.lengths import SequenceLengths, to_device

PAD, UNKNOWN, BOS, EOS = range(4)
"""Ids of the special tokens in every vocabulary."""


class Pair(NamedTuple):
    """Token ids of a source and its target, without <bos> and <eos>; the target is optional.

    For a model that copies, `copy_ids` are the target ids of the source tokens. Tokens that the target vocabulary
    lacks have the ids after its last, in the order of their first occurrence.
    """

    source: Sequence[int]
    target: Sequence[int] | None = None
    copy_ids: Sequence[int] | None = None


Moved = TypeVar("Moved", bound="Movable")


class Movable:
    """Base of dataclasses of tensors that can be moved to a device."""

    def to(self: Moved, device: str | torch.device) -> Moved:
        """Return a copy on a device, moved asynchronously."""
        return replace(self, **{name: move_value(value, device) for name, value in vars(self).items()})  # type: ignore[type-var]


@dataclass(frozen=True)
class Batch(Movable):
    """A batch of sentence pairs, padded with PAD.

    Sources end in <eos>. `target_in` starts with <bos>, `target_out` ends in <eos>. Without targets (for prediction),
    the target fields are None. With `copy_ids`, for models that copy, <eos> copies <eos>.
    """

    source: Int[Tensor, "batch source"]
    source_lengths: SequenceLengths
    target_in: Int[Tensor, "batch target"] | None = None
    target_out: Int[Tensor, "batch target"] | None = None
    target_lengths: Int[Tensor, " batch"] | None = None
    copy_ids: Int[Tensor, "batch source"] | None = None
    copy_size: int = 0  # one more than the largest of the copy ids

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class TextBatch(Movable):
    """A batch of text segments: input tokens and the next token of each, PAD where nothing is predicted.

    Rows continue those of the previous segment, unless they are `fresh`.
    """

    tokens: Int[Tensor, "rows time"]
    targets: Int[Tensor, "rows time"]
    fresh: bool = True

    def __len__(self) -> int:
        return len(self.tokens)


def move_value(value: Any, device: str | torch.device) -> Any:
    """Move tensors in a value to a device; return other values unchanged."""
    if isinstance(value, tuple):
        return tuple(move_value(item, device) for item in value)
    if isinstance(value, Tensor):
        return to_device(value, device)
    return value.to(device) if isinstance(value, (Movable, SequenceLengths)) else value


def collate(pairs: Sequence[Pair]) -> Batch:
    """Build a batch from pairs, with targets if every pair has one.

    Args:
        pairs: Token ids of sources and targets.

    Example:
        >>> collate([Pair([4, 5], [6])]).source
        tensor([[4, 5, 3]])
    """
    source, lengths = pad_rows([[*pair.source, EOS] for pair in pairs])
    source_lengths = SequenceLengths.of(lengths)
    copy_ids, copy_size = None, 0
    copied = [[*pair.copy_ids, EOS] for pair in pairs if pair.copy_ids is not None]
    if copied and len(copied) == len(pairs):
        copy_ids, copy_size = pad_rows(copied)[0], 1 + max(map(max, copied))
    targets = [pair.target for pair in pairs if pair.target is not None]
    if len(targets) < len(pairs):
        return Batch(source, source_lengths, copy_ids=copy_ids, copy_size=copy_size)
    target_in, target_lengths = pad_rows([[BOS, *target] for target in targets])
    target_out, _ = pad_rows([[*target, EOS] for target in targets])
    return Batch(source, source_lengths, target_in, target_out, target_lengths, copy_ids, copy_size)


def pad_rows(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "batch longest"], Int[Tensor, " batch"]]:
    """Pad rows of ids to one tensor, and return it with their lengths."""
    lengths = [len(row) for row in rows]
    max_length = max(lengths, default=0)
    padded_ids = chain.from_iterable([*row, *[PAD] * (max_length - len(row))] for row in rows)
    flat = torch.from_numpy(np.fromiter(padded_ids, np.int64))  # twice as fast as torch.tensor of a list
    return flat.reshape(len(rows), max_length), torch.tensor(lengths, dtype=torch.long)
