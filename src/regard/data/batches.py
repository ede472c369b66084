"""Batches by a budget of tokens, of sentences of like length, in an order that a seed decides.

The batches of an epoch are a function of lengths, seed and epoch alone, so training
goes on from any place by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError

POOL = 100
"""Sentences are sorted by length within pools of about so many batches, so that batches differ between epochs."""


NAMED = 3  # texts of a batch that are named in an error


@dataclass(frozen=True)
class Plan:
    """The batches of one epoch, each the places of its examples in the corpus."""

    batches: tuple[tuple[int, ...], ...]
    padding: float  # the share of all places that is padding

    def __len__(self) -> int:
        return len(self.batches)


def plan(lengths: Sequence[tuple[int, int]] | NDArray[np.int64], *, tokens: int, seed: int = 0, epoch: int = 0) -> Plan:
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
    batches = cut(like_lengths(sizes, random, POOL * tokens), sizes.max(1), tokens)
    shuffled = tuple(tuple(batches[place].tolist()) for place in random.permutation(len(batches)))
    return Plan(shuffled, padding_share(batches, sizes))


def like_lengths(sizes: NDArray[np.int64], random: np.random.Generator, pool: int) -> NDArray[np.int64]:
    """All places in a random order, sorted by length within pools of about `pool` tokens.

    The longer side decides. Among pairs of one length those whose source is longer stand
    at one end, and the ends take turns, so that neighbours are alike on both sides.
    """
    order = random.permutation(len(sizes))
    source, target = sizes[order].T
    longest = np.maximum(source, target)
    lean = np.where(longest % 2 == 0, source - target, target - source)
    return order[np.lexsort((lean, longest, np.cumsum(longest) // pool))]


def cut(order: NDArray[np.int64], longest: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
    """Cut an order into batches that are full, but not over the budget."""
    cuts: list[int] = []
    start = most = 0
    for here, size in enumerate(longest[order].tolist()):
        most = max(most, size)
        if here > start and most * (here + 1 - start) > tokens:
            cuts.append(here)
            start, most = here, size
    return np.split(order, cuts)


def batch_name(texts: Iterable[str]) -> str:
    """The texts of a batch in an error: the first few, and how many more there are."""
    shown = list(texts)
    more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    return f"of {', '.join(shown[:NAMED])}{more}"


def padding_share(batches: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64]) -> float:
    """The share of all places of all batches that is padding."""
    places = sum(len(batch) * int(sizes[batch].max(0).sum()) for batch in batches)
    return 1 - int(sizes.sum()) / places if places else 0.0
