"""Significance tests between two systems by paired bootstrap resampling (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from jaxtyping import Float, Int, Num

from regard.errors import RegardError, unknown_name
from regard.metrics.evaluation import METRICS
from regard.metrics.score import MetricScore, References, collect_references
from regard.metrics.sequences import LengthUnit, count_edits, find_matches

SEED = 12345
"""Seed of the resampling; the samples are those of sacrebleu's paired bootstrap, which has the same default."""

SIGNIFICANT = 0.05
"""p-value below which a difference counts as significant."""

SentenceCounts = Num[np.ndarray, "sentences counts"]
ScoreFunction = Callable[[Num[np.ndarray, " counts"]], float]


@dataclass(frozen=True)
class Conditions:
    """How texts are compared."""

    lowercase: bool = False
    tokenize: str = "13a"  # tokenizer of BLEU


Counter = Callable[[Sequence[str], References, Conditions], tuple[SentenceCounts, ScoreFunction]]
"""Returns counts per sentence, and a function from summed counts to the score."""


@dataclass(frozen=True)
class Comparison:
    """The difference between two systems and its significance."""

    first: MetricScore
    second: MetricScore
    low: float  # lower bound of the 95% confidence interval of the difference
    high: float  # upper bound
    p_value: float  # probability of a difference at least this large by chance
    samples: int
    lower_is_better: bool = False

    @property
    def difference(self) -> float:
        """Second score minus first score."""
        return self.second.value - self.first.value

    def __str__(self) -> str:
        decimals = self.first.decimals
        conditions = [score.signature.split("|") for score in (self.first, self.second)]
        shared = [condition for condition in conditions[0] if condition in conditions[1]]
        own = ["|".join(condition for condition in part if condition not in shared) for part in conditions]
        values = [
            f"{score.value:.{decimals}f}{f' ({text})' if text else ''}"
            for score, text in zip((self.first, self.second), own, strict=True)
        ]
        return (
            f"{self.first.name} {values[0]} and {values[1]}: "
            f"{self.difference:+.{decimals}f} (95 %: {self.low:+.{decimals}f} to {self.high:+.{decimals}f}|"
            f"p {self.p_value:.4f}|paired bootstrap, {self.samples} samples|{'|'.join(shared)})"
        )

    def describe_verdict(self, first: object, second: object) -> str:
        """Say which of two systems is better, or that the difference may be due to chance."""
        if self.p_value >= SIGNIFICANT or not self.difference:
            return f"no significant difference between {first} and {second} (p {self.p_value:.4f})"
        better, worse = (second, first) if (self.difference > 0) != self.lower_is_better else (first, second)
        return f"{better} is significantly better than {worse} (p {self.p_value:.4f})"

    def to_json(self) -> dict[str, object]:
        """Return a dictionary for `json.dumps`."""
        return vars(self) | {"first": self.first.to_json(), "second": self.second.to_json()}


def paired_bootstrap(
    first: Sequence[str],
    second: Sequence[str],
    references: References,
    metric: str = "bleu",
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    samples: int = 1000,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems by paired bootstrap resampling of the sentences.

    The p-value is the share of samples, including the real one, whose difference deviates from
    the mean difference at least as much as the real difference deviates from zero. The samples are
    those of sacrebleu. Its p-value counts deviations in one direction only, so it is smaller.

    Args:
        first: Predictions of the first system.
        second: Predictions of the second system for the same sources.
        references: Reference, or several references, for each source.
        metric: A key of `METRICS`.
        lowercase: Whether to ignore case.
        tokenize: Tokenizer of BLEU, as in `bleu`.
        samples: Number of bootstrap samples.
        seed: Seed of the resampling.

    Returns:
        Both scores, the confidence interval of their difference and the p-value.

    Raises:
        RegardError: The metric is unknown, or the numbers of texts differ.

    Example:
        >>> comparison = paired_bootstrap(["a dog"], ["a cat"], ["a dog"], "exact_match")
        >>> comparison.difference
        -1.0
    """
    if metric not in BOOTSTRAP_METRICS:
        raise unknown_name("paired_bootstrap: metric", metric, BOOTSTRAP_METRICS)
    if samples < 1:
        raise RegardError(f"paired_bootstrap: samples must be at least 1, got {samples}")
    conditions = Conditions(lowercase, tokenize)
    options = {"lowercase": lowercase} | ({"tokenize": tokenize} if metric == "bleu" else {})
    first_score, second_score = (METRICS[metric](predictions, references, **options) for predictions in (first, second))
    count = BOOTSTRAP_METRICS[metric]
    (first_counts, score), (second_counts, _) = (count(texts, references, conditions) for texts in (first, second))
    return compare_counts(
        (first_score, first_counts),
        (second_score, second_counts),
        score,
        samples=samples,
        seed=seed,
        lower_is_better=metric.endswith("error_rate"),
    )


def compare_counts(
    first: tuple[MetricScore, SentenceCounts],
    second: tuple[MetricScore, SentenceCounts],
    score: ScoreFunction,
    *,
    samples: int = 1000,
    seed: int = SEED,
    lower_is_better: bool = False,
) -> Comparison:
    """Compare two systems, each given as its score and counts per sentence; `score` maps summed counts to a score."""
    (first_score, first_counts), (second_score, second_counts) = first, second
    first_scores, second_scores = (
        score_samples(counts, score, samples=samples, seed=seed) for counts in (first_counts, second_counts)
    )
    low, high, p_value = assess_difference(second_score.value - first_score.value, second_scores - first_scores)
    return Comparison(first_score, second_score, low, high, p_value, samples, lower_is_better)


def score_samples(
    counts: SentenceCounts, score: ScoreFunction, *, samples: int, seed: int
) -> Float[np.ndarray, " samples"]:
    """Return the score of each bootstrap sample of the sentences; a seed draws the same samples for every system."""
    random = np.random.default_rng(seed)
    return np.array([score(resample_counts(random, len(counts)) @ counts) for _ in range(samples)])


def assess_difference(difference: float, sampled: Float[np.ndarray, " samples"]) -> tuple[float, float, float]:
    """Return the 95% confidence interval of a difference and its p-value, from the differences of bootstrap samples."""
    low, high = np.quantile(sampled, [0.025, 0.975])
    extreme = int((np.abs(sampled - sampled.mean()) >= abs(difference)).sum())
    return float(low), float(high), (extreme + 1) / (len(sampled) + 1)


def compare_f1(
    first: Sequence[Collection[Hashable]],
    second: Sequence[Collection[Hashable]],
    gold: Sequence[Collection[Hashable]],
    *,
    samples: int = 1000,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems by micro F1 of labels or spans, by paired bootstrap resampling.

    Args:
        first: Labels or spans that the first system predicts for each text.
        second: The same for the second system.
        gold: Gold labels or spans of each text.
        samples: Number of bootstrap samples.
        seed: Seed of the resampling.
    """
    if not len(first) == len(second) == len(gold) or not gold:
        raise RegardError(
            "compare_f1: expected as many predictions as gold answers, "
            f"got {len(first)} and {len(second)} predictions and {len(gold)} gold"
        )
    (first_score, first_counts), (second_score, second_counts) = (
        count_matches(predictions, gold) for predictions in (first, second)
    )
    return compare_counts(
        (first_score, first_counts), (second_score, second_counts), f1_from_counts, samples=samples, seed=seed
    )


def count_matches(
    predictions: Sequence[Collection[Hashable]], gold: Sequence[Collection[Hashable]]
) -> tuple[MetricScore, SentenceCounts]:
    """Return the micro F1, and the correct, predicted and gold counts of each text."""
    pairs = [(set(predicted), set(expected)) for predicted, expected in zip(predictions, gold, strict=True)]
    counts = np.array([[len(predicted & expected), len(predicted), len(expected)] for predicted, expected in pairs])
    return MetricScore("micro F1", f1_from_counts(counts.sum(0)), f"texts:{len(gold)}"), counts


def f1_from_counts(counts: Num[np.ndarray, " three"]) -> float:
    """Return the F1 of correct, predicted and gold counts."""
    right, predicted, gold = counts.tolist()
    return 2 * right / (predicted + gold) if predicted + gold else 0.0


def resample_counts(random: np.random.Generator, sentences: int) -> Int[np.ndarray, " sentences"]:
    """Draw a bootstrap sample and return the count of each sentence."""
    return np.bincount(random.integers(sentences, size=sentences), minlength=sentences)


def count_ngrams(
    predictions: Sequence[str], references: References, conditions: Conditions
) -> tuple[SentenceCounts, ScoreFunction]:
    """Return, per sentence, the matching n-grams, all n-grams, its length and that of the nearest reference."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(  # effective_order does not change the counts; it avoids sacrebleu's warning about single sentences
        lowercase=conditions.lowercase, tokenize=conditions.tokenize, effective_order=True, force=True
    )
    answers = collect_references("BLEU", predictions, references)
    scores = [
        metric.sentence_score(prediction, accepted) for prediction, accepted in zip(predictions, answers, strict=True)
    ]
    return np.array(
        [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]
    ), bleu_from_counts


def bleu_from_counts(counts: Num[np.ndarray, " counts"]) -> float:
    """Return the BLEU of summed counts."""
    from sacrebleu.metrics.bleu import BLEU

    *grams, prediction_length, reference_length = map(int, counts)
    half = len(grams) // 2
    return BLEU.compute_bleu(grams[:half], grams[half:], prediction_length, reference_length, smooth_method="exp").score


def count_character_ngrams(
    predictions: Sequence[str], references: References, conditions: Conditions
) -> tuple[SentenceCounts, ScoreFunction]:
    """Return, per sentence and for each length, the character n-grams of both sides and those that match."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=conditions.lowercase)
    streams = list(zip_longest(*collect_references("chrF", predictions, references)))
    return np.array(metric._extract_corpus_statistics(list(predictions), streams)), chrf_from_counts


def chrf_from_counts(counts: Num[np.ndarray, " counts"]) -> float:
    """Return the chrF of summed counts."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF()._compute_score_from_stats(counts.tolist()).score)


def count_matching_texts(
    predictions: Sequence[str], references: References, conditions: Conditions
) -> tuple[SentenceCounts, ScoreFunction]:
    """Return, per sentence, whether it matches a reference, and 1."""
    matches = find_matches(predictions, references, lowercase=conditions.lowercase)
    return np.array([[match, 1] for match in matches], dtype=int), ratio


def count_wrong_texts(
    predictions: Sequence[str], references: References, conditions: Conditions
) -> tuple[SentenceCounts, ScoreFunction]:
    """Return, per sentence, whether it matches no reference, and 1."""
    matches = find_matches(predictions, references, lowercase=conditions.lowercase)
    return np.array([[not match, 1] for match in matches], dtype=int), ratio


def count_edits_by(unit: LengthUnit) -> Counter:
    """Return a function that counts edits, and the length of the reference, in words or characters."""

    def count(
        predictions: Sequence[str], references: References, conditions: Conditions
    ) -> tuple[SentenceCounts, ScoreFunction]:
        return np.array(count_edits(predictions, references, unit, lowercase=conditions.lowercase)), ratio

    return count


def ratio(counts: Num[np.ndarray, " two"]) -> float:
    """Return the first count divided by the second."""
    return float(counts[0] / max(counts[1], 1))


BOOTSTRAP_METRICS: dict[str, Counter] = {
    "bleu": count_ngrams,
    "chrf": count_character_ngrams,
    "exact_match": count_matching_texts,
    "word_error_rate": count_edits_by("word"),
    "whole_word_error_rate": count_wrong_texts,
    "token_error_rate": count_edits_by("word"),
    "character_error_rate": count_edits_by("character"),
}
"""The metrics of `METRICS` as functions of summed sentence counts."""
