"""Measure how monotonic the alignment of sources and targets is, before any model is trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ITERATIONS = 5
DIAGONAL = 1.0  # how much more likely a position on the diagonal is than one at the other end, in nats


def measure_monotonicity(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """Return the share of steps of a target that do not move back in its source, from 0 to 1.

    Tokens are aligned by translation probabilities (Brown et al. 1993, model 1), learned from these pairs alone. Among
    source tokens that explain a target token equally well, the one nearest to the diagonal is taken.

    Args:
        pairs: Source and target token ids of each pair.

    Returns:
        1.0 for targets that follow their sources from left to right, about 0 for reversed ones. 0.0 if no target has
        two tokens.
    """
    sized = [(np.asarray(source), np.asarray(target)) for source, target in pairs if len(source) and len(target)]
    if not sized:
        return 0.0
    table = learn_translations(sized)
    forward = steps = 0
    for source, target in sized:
        positions = align(table, source, target)
        forward += int((np.diff(positions) >= 0).sum())
        steps += len(positions) - 1
    return forward / max(1, steps)


def learn_translations(pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> NDArray[np.float64]:
    """Return the probability of each target token given a source token, (source tokens, target tokens), by EM."""
    shape = tuple(max(int(pair[side].max()) for pair in pairs) + 1 for side in (0, 1))
    table = np.full(shape, 1 / shape[1])
    for _ in range(ITERATIONS):
        counts = np.zeros(shape)
        for source, target in pairs:
            places = np.ix_(source, target)
            np.add.at(counts, places, table[places] / table[places].sum(0))
        table = counts / np.maximum(counts.sum(1, keepdims=True), 1e-300)
    return table


def align(table: NDArray[np.float64], source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the source position of each target token."""
    distance = np.abs(np.arange(len(source))[:, None] / len(source) - np.arange(len(target)) / len(target))
    return (table[np.ix_(source, target)] * np.exp(-DIAGONAL * distance)).argmax(0)
