"""Find pairs with swapped source and target, by the character trigrams of each side.

A naive Bayes classifier over trigrams scores how much a text looks like each side. If the
sides look too similar (as when words are reversed), nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from regard.data.example import Example

BUCKETS = 2**16  # trigrams are hashed, so memory does not grow with the corpus
CHUNK_TEXTS = 4096  # texts processed together
MIN_MEAN_LEANING = 0.3  # mean log-odds per trigram, in nats, needed to tell the sides apart
MIN_LEANING = 15.0  # log-odds of a text, in nats, needed to report it


@dataclass(frozen=True)
class SwappedPairs:
    """Indices of pairs that look swapped, and whether the whole validation data does."""

    train: Sequence[int] = ()
    valid: Sequence[int] = ()
    all_valid: bool = False


def find_swapped(train: Sequence[Example], valid: Sequence[Example]) -> SwappedPairs:
    """Find pairs whose source looks like a target and whose target looks like a source.

    Each half of the training data is scored by the other half, so no pair influences its own score.
    """
    halves = train[0::2], train[1::2]
    first, second = (count_trigrams(half) for half in halves)
    leaning = np.empty((len(train), 2))
    leaning[0::2] = compute_leaning(compute_log_odds(second), halves[0])
    leaning[1::2] = compute_leaning(compute_log_odds(first), halves[1])
    distinct = compute_mean_leaning(leaning, train)
    if distinct < MIN_MEAN_LEANING:
        return SwappedPairs()
    valid_leaning = compute_leaning(compute_log_odds(first + second), valid)
    if compute_mean_leaning(valid_leaning, valid) < -distinct / 2:
        return SwappedPairs(find_wrong_way(leaning), (), True)
    return SwappedPairs(find_wrong_way(leaning), find_wrong_way(valid_leaning))


def find_wrong_way(leaning: Float[np.ndarray, "pairs sides"]) -> list[int]:
    """Return the indices of pairs where both sides clearly look like the other side."""
    return [int(index) for index in np.flatnonzero((leaning[:, 0] > MIN_LEANING) & (leaning[:, 1] < -MIN_LEANING))]


def compute_mean_leaning(leaning: Float[np.ndarray, "pairs sides"], examples: Sequence[Example]) -> float:
    """Return the mean log-odds per trigram in favor of its side, in nats; negative favors the other side."""
    trigrams = sum(len(example.source) + len(example.target) for example in examples)
    return float(leaning[:, 1].sum() - leaning[:, 0].sum()) / max(trigrams, 1)


def compute_leaning(
    odds: Float[np.ndarray, " buckets"], examples: Sequence[Example]
) -> Float[np.ndarray, "pairs sides"]:
    """Return the log-odds of source and target of each pair being a target, summed over trigrams."""
    leaning = np.zeros((len(examples), 2))
    for side, texts in enumerate(list_texts(examples)):
        parts = [np.bincount(owner, odds[bucket], size) for bucket, owner, size in iter_trigram_chunks(texts)]
        leaning[:, side] = np.concatenate(parts) if parts else 0.0
    return leaning


def compute_log_odds(counts: Float[np.ndarray, "sides buckets"]) -> Float[np.ndarray, " buckets"]:
    """Return the log-odds of each trigram occurring in a target rather than a source; 0 if unseen."""
    smooth = counts + 0.5
    source, target = np.log(smooth / smooth.sum(axis=1, keepdims=True))
    return np.where(counts.any(axis=0), target - source, 0.0)


def count_trigrams(examples: Sequence[Example]) -> Float[np.ndarray, "sides buckets"]:
    """Count each trigram in the sources and in the targets."""
    counts = np.zeros((2, BUCKETS))
    for side, texts in zip(counts, list_texts(examples), strict=True):
        for bucket, _, _ in iter_trigram_chunks(texts):
            side += np.bincount(bucket, minlength=BUCKETS)
    return counts


def list_texts(examples: Sequence[Example]) -> tuple[list[str], list[str]]:
    """Return sources and targets."""
    return [example.source for example in examples], [example.target for example in examples]


def iter_trigram_chunks(
    texts: Sequence[str],
) -> Iterator[tuple[Int[np.ndarray, " runs"], Int[np.ndarray, " runs"], int]]:
    """Yield, per chunk of texts, the bucket and text index of each trigram, and the number of texts."""
    for start in range(0, len(texts), CHUNK_TEXTS):
        some = texts[start : start + CHUNK_TEXTS]
        yield *hash_trigrams(some), len(some)


def hash_trigrams(texts: Sequence[str]) -> tuple[Int[np.ndarray, " runs"], Int[np.ndarray, " runs"]]:
    """Return the bucket and text index of each trigram, with a space added before and after each text."""
    framed = "".join(f" {text} " for text in texts).encode("utf-32-le", "surrogatepass")
    letters = np.frombuffer(framed, np.uint32).astype(np.uint64)
    mixed = (letters[:-2] * 0x9E3779B1 + letters[1:-1] * 0x85EBCA77 + letters[2:] * 0xC2B2AE3D) >> 15
    lengths = np.array([len(text) for text in texts])
    owner = np.repeat(np.arange(len(texts)), lengths + 2)[:-2]
    starts = np.cumsum(lengths + 2) - (lengths + 2)
    inside = np.arange(len(owner)) - starts[owner] < lengths[owner]  # not across the end of a text
    return (mixed[inside] % BUCKETS).astype(np.int64), owner[inside]
