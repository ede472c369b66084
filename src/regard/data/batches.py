"""Batches by a budget of tokens, of sentences of like length, in an order that a seed decides.

The batches of an epoch are a function of lengths, seed and epoch alone, so training
goes on from any place by its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError

POOL = 100
"""Sentences are sorted by length within pools of about so many batches, so that batches differ between epochs."""


@dataclass(frozen=True)
class Plan:
    """The batches of one epoch, each the places of its examples in the corpus."""

    batches: tuple[tuple[int, ...], ...]
    padding: float  # the share of all places that is padding

    def __len__(self) -> int:
        return len(self.batches)


def plan(lengths: Sequence[tuple[int, int]], *, tokens: int, seed: int = 0, epoch: int = 0) -> Plan:
    """The batches of an epoch; no side of a batch has more than `tokens` places, padding included.

    Args:
        lengths: Tokens of source and target of every example, <bos> or <eos> included.
        tokens: The budget of each side. An example that is longer stands alone.
        seed: What decides the order, with `epoch`.
        epoch: How often the corpus has been seen before.
    """
    if tokens < 1:
        raise RegardError(f"batches: a budget of {tokens} tokens is too small; 1 is the least")
    if not len(lengths):
        return Plan((), 0.0)
    sizes = np.asarray(lengths, dtype=np.int64).reshape(-1, 2)
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = like_lengths(sizes, random, POOL * tokens)
    batches = cut(order, sizes, tokens)
    shuffled = [batches[place] for place in random.permutation(len(batches))]
    places = sum(int(sizes[list(batch)].max(0).sum()) * len(batch) for batch in shuffled)
    return Plan(tuple(shuffled), 1 - int(sizes.sum()) / places if places else 0.0)


def like_lengths(sizes: NDArray[np.int64], random: np.random.Generator, pool: int) -> NDArray[np.int64]:
    """All places in a random order, sorted by length within pools of about `pool` tokens."""
    order = random.permutation(len(sizes))
    pools = np.cumsum(sizes[order].max(1)) // pool
    longest = sizes[order].max(1)
    return order[np.lexsort((sizes[order].min(1), longest, pools))]


def cut(order: NDArray[np.int64], sizes: NDArray[np.int64], tokens: int) -> list[tuple[int, ...]]:
    """Cut an order into batches that are full, but not over the budget."""
    batches: list[tuple[int, ...]] = []
    batch: list[int] = []
    longest = 0
    for place in order.tolist():
        size = int(sizes[place].max())
        if batch and max(longest, size) * (len(batch) + 1) > tokens:
            batches.append(tuple(batch))
            batch, longest = [], 0
        batch.append(place)
        longest = max(longest, size)
    return [*batches, tuple(batch)]
