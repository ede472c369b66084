"""Scores of test items one by one: bootstrap intervals, paired tests and scores by length, for every task.

Each metric here is a function of counts summed over the items, so a bootstrap sample needs only the counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.errors import RegardError, unknown_name
from regard.metrics.language import safe_exp
from regard.metrics.significance import (
    SEED,
    ScoreFunction,
    assess_difference,
    bleu_from_counts,
    chrf_from_counts,
    f1_from_counts,
    ratio,
    score_samples,
)

SAMPLES = 1000
"""Number of bootstrap samples."""


class ItemMetric(NamedTuple):
    """A metric of summed counts."""

    title: str
    score: ScoreFunction
    higher_is_better: bool
    decimals: int


def mean_loss(counts: Float[np.ndarray, " counts"]) -> float:
    """Return the first count divided by the second: nats per token."""
    return ratio(counts[:2])


def perplexity(counts: Float[np.ndarray, " counts"]) -> float:
    """Return the perplexity of summed nats and tokens."""
    return safe_exp(mean_loss(counts))


def bits_per_character(counts: Float[np.ndarray, " counts"]) -> float:
    """Return bits per character of summed nats, tokens and characters."""
    return float(counts[0] / math.log(2) / max(counts[2], 1))


ITEM_METRICS: dict[str, ItemMetric] = {
    "bleu": ItemMetric("BLEU", bleu_from_counts, higher_is_better=True, decimals=2),
    "chrf": ItemMetric("chrF", chrf_from_counts, higher_is_better=True, decimals=2),
    "exact_match": ItemMetric("exact match", ratio, higher_is_better=True, decimals=4),
    "word_error_rate": ItemMetric("word error rate", ratio, higher_is_better=False, decimals=4),
    "whole_word_error_rate": ItemMetric("word error rate (1 - exact match)", ratio, higher_is_better=False, decimals=4),
    "token_error_rate": ItemMetric("token error rate", ratio, higher_is_better=False, decimals=4),
    "character_error_rate": ItemMetric("character error rate", ratio, higher_is_better=False, decimals=4),
    "accuracy": ItemMetric("accuracy", ratio, higher_is_better=True, decimals=4),
    "micro_f1": ItemMetric("micro F1", f1_from_counts, higher_is_better=True, decimals=4),
    "loss": ItemMetric("loss (nats per token)", mean_loss, higher_is_better=False, decimals=4),
    "perplexity": ItemMetric("perplexity per token", perplexity, higher_is_better=False, decimals=2),
    "bits_per_character": ItemMetric("bits per character", bits_per_character, higher_is_better=False, decimals=4),
}
"""Metric name -> how to compute it from summed counts."""


@dataclass(frozen=True)
class ItemCounts:
    """The counts of each test item, its length, and whether it contains unknown words.

    Raises:
        RegardError: The metric is unknown, or there are no items.
    """

    metric: str  # a key of `ITEM_METRICS`
    signature: str  # the conditions of the metric
    counts: Float[np.ndarray, "items counts"]
    lengths: Int[np.ndarray, " items"]
    length_unit: str  # what the lengths count: source words
    unknown: Bool[np.ndarray, " items"]

    def __post_init__(self) -> None:
        if self.metric not in ITEM_METRICS:
            raise unknown_name("items: metric", self.metric, ITEM_METRICS)
        if not len(self.counts):
            raise RegardError("items: expected at least one, got none")

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def value(self) -> float:
        """The score of all items."""
        return ITEM_METRICS[self.metric].score(self.counts.sum(0))

    def select(self, kept: Bool[np.ndarray, " items"]) -> ItemCounts:
        """Return some of the items."""
        return ItemCounts(
            self.metric, self.signature, self.counts[kept], self.lengths[kept], self.length_unit, self.unknown[kept]
        )

    def to_json(self) -> dict[str, Any]:
        """Return values for `json.dumps`."""
        arrays = {name: getattr(self, name).tolist() for name in ("counts", "lengths", "unknown")}
        return {"metric": self.metric, "signature": self.signature, "length_unit": self.length_unit, **arrays}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ItemCounts:
        """Build the items from the output of `to_json`."""
        return cls(
            metric=record["metric"],
            signature=record["signature"],
            counts=np.array(record["counts"], dtype=np.float64),
            lengths=np.array(record["lengths"], dtype=np.int64),
            length_unit=record["length_unit"],
            unknown=np.array(record["unknown"], dtype=bool),
        )


@dataclass(frozen=True)
class Interval:
    """A score with its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ItemComparison:
    """The difference between two systems on the same items: second minus first, its interval and its p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def mean_scores(systems: Sequence[ItemCounts], samples: int, seed: int) -> Float[np.ndarray, " samples"]:
    """Return the score of every bootstrap sample, averaged over systems: the seeds of one model."""
    score = ITEM_METRICS[systems[0].metric].score
    return np.mean([score_samples(system.counts, score, samples=samples, seed=seed) for system in systems], axis=0)


def mean_value(systems: Sequence[ItemCounts]) -> float:
    """Return the mean score of several systems."""
    return float(np.mean([system.value for system in systems]))


def bootstrap_interval(systems: Sequence[ItemCounts], *, samples: int = SAMPLES, seed: int = SEED) -> Interval:
    """Return the mean score of systems trained with several seeds, with its bootstrap interval over the items.

    Args:
        systems: The same items under each seed.
        samples: Number of bootstrap samples.
        seed: Seed of the resampling.
    """
    low, high = np.quantile(mean_scores(systems, samples, seed), [0.025, 0.975])
    return Interval(mean_value(systems), float(low), float(high))


def compare_items(
    first: Sequence[ItemCounts], second: Sequence[ItemCounts], *, samples: int = SAMPLES, seed: int = SEED
) -> ItemComparison:
    """Compare two models, each trained with several seeds, by paired bootstrap over the same items (Koehn 2004).

    The p-value is the share of samples, including the real one, whose difference deviates from the mean difference
    at least as much as the real difference deviates from zero.
    """
    if len(first[0]) != len(second[0]) or first[0].metric != second[0].metric:
        raise RegardError(
            f"compare: expected the same metric and items, got {first[0].metric} of {len(first[0])} items "
            f"and {second[0].metric} of {len(second[0])}"
        )
    difference = mean_value(second) - mean_value(first)
    sampled = mean_scores(second, samples, seed) - mean_scores(first, samples, seed)
    return ItemComparison(difference, *assess_difference(difference, sampled))


@dataclass(frozen=True)
class LengthBand:
    """The score of items with `shortest` to `longest` units."""

    shortest: int
    longest: int
    items: int
    score: Interval

    @property
    def lengths(self) -> str:
        """The range of lengths: 3-4, or 5."""
        return f"{self.longest}" if self.shortest == self.longest else f"{self.shortest}-{self.longest}"


def choose_edges(lengths: Int[np.ndarray, " items"], bands: int = 6) -> list[int]:
    """Return the longest length of each band, such that bands hold about equally many items."""
    quantiles = np.quantile(lengths, np.linspace(0, 1, bands + 1)[1:], method="inverted_cdf")
    return sorted({int(edge) for edge in quantiles})


def score_bands(
    systems: Sequence[ItemCounts], edges: Sequence[int], *, known_only: bool = False, samples: int = SAMPLES // 5
) -> list[LengthBand]:
    """Return the score by length, with its interval; bands without items are omitted.

    Args:
        systems: The same items under each seed.
        edges: The longest length of each band.
        known_only: Skip items with unknown words.
        samples: Number of bootstrap samples per band.
    """
    items, bands, shortest = systems[0], [], 0
    for longest in edges:
        kept = (items.lengths >= shortest) & (items.lengths <= longest) & ~(items.unknown & known_only)
        if kept.any():
            interval = bootstrap_interval([system.select(kept) for system in systems], samples=samples)
            bands.append(LengthBand(int(items.lengths[kept].min()), longest, int(kept.sum()), interval))
        shortest = longest + 1
    return bands
