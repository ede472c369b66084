"""Tells the two sides of a corpus apart by their letters, to find pairs the wrong way round.

Runs of three characters are counted on each side, and a text leans to the side on which
its runs are more frequent (naive Bayes). Sides that are alike, as when words are reversed,
cannot be told apart, and then nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from regard.data.example import Example

BUCKETS = 2**16  # runs are counted by a hash, so that memory does not grow with the corpus
CHUNK = 4096  # texts looked at together
DISTINCT = 0.3  # how much a run must lean to its own side on average, in nats, for sides to be told apart
SURE = 15.0  # how much a text must lean to the other side, in nats, to stand out


@dataclass(frozen=True)
class Swapped:
    """Places of pairs that look exchanged, counted from 0, and whether the validation data does as a whole."""

    train: Sequence[int] = ()
    valid: Sequence[int] = ()
    all_valid: bool = False


def find_swapped(train: Sequence[Example], valid: Sequence[Example]) -> Swapped:
    """Look for pairs whose source looks like a target and whose target looks like a source.

    Each half of the training data is judged by the other, so that no pair speaks for itself.
    """
    halves = train[0::2], train[1::2]
    first, second = (count_runs(half) for half in halves)
    leaning = np.empty((len(train), 2))
    leaning[0::2] = lean(log_odds(second), halves[0])
    leaning[1::2] = lean(log_odds(first), halves[1])
    distinct = mean_lean(leaning, train)
    if distinct < DISTINCT:
        return Swapped()
    theirs = lean(log_odds(first + second), valid)
    if mean_lean(theirs, valid) < -distinct / 2:
        return Swapped(wrong_way(leaning), (), True)
    return Swapped(wrong_way(leaning), wrong_way(theirs))


def wrong_way(leaning: Float[np.ndarray, "pairs sides"]) -> list[int]:
    """Pairs of which both sides clearly lean to the other."""
    return [int(place) for place in np.flatnonzero((leaning[:, 0] > SURE) & (leaning[:, 1] < -SURE))]


def mean_lean(leaning: Float[np.ndarray, "pairs sides"], examples: Sequence[Example]) -> float:
    """How much a run leans to its own side, in nats; below zero, to the other."""
    runs = sum(len(example.source) + len(example.target) for example in examples)
    return float(leaning[:, 1].sum() - leaning[:, 0].sum()) / max(runs, 1)


def lean(odds: Float[np.ndarray, " buckets"], examples: Sequence[Example]) -> Float[np.ndarray, "pairs sides"]:
    """How much source and target of each pair lean to the target side: log-odds summed over runs."""
    leaning = np.zeros((len(examples), 2))
    for side, texts in enumerate(texts_of(examples)):
        parts = [np.bincount(owner, odds[bucket], size) for bucket, owner, size in chunks(texts)]
        leaning[:, side] = np.concatenate(parts) if parts else 0.0
    return leaning


def log_odds(counts: Float[np.ndarray, "sides buckets"]) -> Float[np.ndarray, " buckets"]:
    """How much more likely each run is in a target than in a source; zero for one that never came."""
    smooth = counts + 0.5
    source, target = np.log(smooth / smooth.sum(axis=1, keepdims=True))
    return np.where(counts.any(axis=0), target - source, 0.0)


def count_runs(examples: Sequence[Example]) -> Float[np.ndarray, "sides buckets"]:
    """How often each run comes in the sources and in the targets."""
    counts = np.zeros((2, BUCKETS))
    for side, texts in zip(counts, texts_of(examples), strict=True):
        for bucket, _, _ in chunks(texts):
            side += np.bincount(bucket, minlength=BUCKETS)
    return counts


def texts_of(examples: Sequence[Example]) -> tuple[list[str], list[str]]:
    """Sources and targets."""
    return [example.source for example in examples], [example.target for example in examples]


def chunks(texts: Sequence[str]) -> Iterator[tuple[Int[np.ndarray, " runs"], Int[np.ndarray, " runs"], int]]:
    """For some texts at a time, the bucket and the text of each run, and how many texts there are."""
    for start in range(0, len(texts), CHUNK):
        some = texts[start : start + CHUNK]
        yield *runs_of(some), len(some)


def runs_of(texts: Sequence[str]) -> tuple[Int[np.ndarray, " runs"], Int[np.ndarray, " runs"]]:
    """The bucket of each run of three characters, a space put before and after each text, and the text it is in."""
    framed = "".join(f" {text} " for text in texts).encode("utf-32-le", "surrogatepass")
    letters = np.frombuffer(framed, np.uint32).astype(np.uint64)
    mixed = (letters[:-2] * 0x9E3779B1 + letters[1:-1] * 0x85EBCA77 + letters[2:] * 0xC2B2AE3D) >> 15
    lengths = np.array([len(text) for text in texts])
    owner = np.repeat(np.arange(len(texts)), lengths + 2)[:-2]
    starts = np.cumsum(lengths + 2) - (lengths + 2)
    inside = np.arange(len(owner)) - starts[owner] < lengths[owner]  # not over the end of one text into the next
    return (mixed[inside] % BUCKETS).astype(np.int64), owner[inside]
