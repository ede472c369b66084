"""Plan batches of sentences of similar length under a token budget, in seeded random order.

The batches of an epoch depend only on lengths, seed and epoch, so training can resume at
any batch index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError

POOL_BATCHES = 100
"""Pool size, in batches: sentences are sorted by length within a pool, so batches differ between epochs."""


NAMED = 3  # texts of a batch shown in an error message


@dataclass(frozen=True)
class BatchPlan:
    """The batches of one epoch, each a tuple of example indices."""

    batches: tuple[tuple[int, ...], ...]
    padding: float  # padding as a share of all positions

    def __len__(self) -> int:
        return len(self.batches)


def plan_epoch(
    lengths: Sequence[tuple[int, int]] | NDArray[np.int64], *, batch_tokens: int, seed: int = 0, epoch: int = 0
) -> BatchPlan:
    """Plan the batches of an epoch, with at most `batch_tokens` positions per side, padding included.

    Args:
        lengths: Number of source and target tokens of every example, including <bos> or <eos>.
        batch_tokens: Token budget of each side. A longer example becomes a batch by itself.
        seed: Seed of the random order, combined with `epoch`.
        epoch: Number of completed epochs.

    Returns:
        The batches in training order, and the share of padding.
    """
    if batch_tokens < 1:
        raise RegardError(f"batch_tokens must be at least 1, got {batch_tokens}")
    if not len(lengths):
        return BatchPlan((), 0.0)
    sizes = np.asarray(lengths, dtype=np.int64).reshape(-1, 2)
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    batches = split_by_budget(order_by_length(sizes, random, POOL_BATCHES * batch_tokens), sizes.max(1), batch_tokens)
    shuffled = tuple(tuple(batches[index].tolist()) for index in random.permutation(len(batches)))
    return BatchPlan(shuffled, padding_share(batches, sizes))


def order_by_length(sizes: NDArray[np.int64], random: np.random.Generator, pool_tokens: int) -> NDArray[np.int64]:
    """Return all indices in random order, sorted by length within pools of about `pool_tokens` tokens.

    The longer side counts as the length. Pairs of equal length are sorted by the difference
    between their sides, in alternating direction, so neighbors are similar on both sides.
    """
    order = random.permutation(len(sizes))
    source, target = sizes[order].T
    lengths = np.maximum(source, target)
    balance = np.where(lengths % 2 == 0, source - target, target - source)
    return order[np.lexsort((balance, lengths, np.cumsum(lengths) // pool_tokens))]


def split_by_budget(order: NDArray[np.int64], lengths: NDArray[np.int64], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Split an order of indices into the fullest batches that stay within the budget."""
    cuts: list[int] = []
    start = width = 0
    for index, size in enumerate(lengths[order].tolist()):
        width = max(width, size)
        if index > start and width * (index + 1 - start) > batch_tokens:
            cuts.append(index)
            start, width = index, size
    return np.split(order, cuts)


def batch_name(texts: Iterable[str]) -> str:
    """Describe a batch for an error message: its first few texts and the number of others."""
    shown = list(texts)
    more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    return f"of {', '.join(shown[:NAMED])}{more}"


def padding_share(batches: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64]) -> float:
    """Return padding as a share of all positions of all batches."""
    positions = sum(len(batch) * int(sizes[batch].max(0).sum()) for batch in batches)
    return 1 - int(sizes.sum()) / positions if positions else 0.0
