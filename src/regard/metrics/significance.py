"""Whether one system is better than another, or was lucky in the sentences (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from regard.errors import RegardError, unknown_name
from regard.metrics.evaluation import METRICS
from regard.metrics.score import Answers, Score, right_answers
from regard.metrics.sequences import edits, matches

Counts = Int[np.ndarray, "sentences counts"]
Counting = Callable[[Sequence[str], Answers], Counts]
Scoring = Callable[[Int[np.ndarray, " counts"]], float]


@dataclass(frozen=True)
class Comparison:
    """How much the second system differs from the first, and how sure that is."""

    first: Score
    second: Score
    low: float  # of the difference, in 95 of 100 samples
    high: float
    p_value: float  # how often chance alone makes a difference as large
    samples: int

    @property
    def difference(self) -> float:
        """Of the second from the first."""
        return self.second.value - self.first.value

    def __str__(self) -> str:
        places = self.first.decimals
        return (
            f"{self.first.name} {self.first.value:.{places}f} and {self.second.value:.{places}f}: "
            f"{self.difference:+.{places}f} (95 %: {self.low:+.{places}f} to {self.high:+.{places}f}|"
            f"p {self.p_value:.4f}|paired bootstrap, {self.samples} samples|{self.first.signature})"
        )

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`."""
        return vars(self) | {"first": self.first.to_json(), "second": self.second.to_json()}


def paired_bootstrap(
    first: Sequence[str],
    second: Sequence[str],
    references: Answers,
    metric: str = "bleu",
    *,
    samples: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems on many samples of the sentences, drawn with replacement, the same for both.

    The p-value counts the samples whose difference is as far from the mean of all as the
    real one is from zero, the real one among them.

    Args:
        first: The predictions of one system.
        second: Those of the other, of the same sources.
        references: The right answer to each, or several.
        metric: One of `COUNTED`.
        samples: How many.
        seed: Of the draw; the same gives the same.
    """
    if metric not in COUNTED:
        raise unknown_name("paired_bootstrap: metric", metric, COUNTED)
    if samples < 1:
        raise RegardError(f"paired_bootstrap: {samples} samples are too few; 1 is the least")
    before, after = (METRICS[metric](predictions, references) for predictions in (first, second))
    count, score = COUNTED[metric]
    ours, theirs = (count(predictions, references) for predictions in (first, second))
    return compare_counts((before, ours), (after, theirs), score, samples=samples, seed=seed)


def compare_counts(
    first: tuple[Score, Counts], second: tuple[Score, Counts], score: Scoring, *, samples: int = 1000, seed: int = 0
) -> Comparison:
    """The same for a score of any kind: what each system has, and the counts of each sentence whose sum is scored."""
    (before, ours), (after, theirs) = first, second
    random = np.random.default_rng(seed)
    differences = np.empty(samples)
    for sample in range(samples):
        times = drawn(random, len(ours))
        differences[sample] = score(times @ theirs) - score(times @ ours)
    low, high = np.quantile(differences, [0.025, 0.975])
    extreme = np.abs(differences - differences.mean()) >= abs(after.value - before.value)
    p_value = (int(extreme.sum()) + 1) / (samples + 1)
    return Comparison(before, after, float(low), float(high), p_value, samples)


def compare_found(
    first: Sequence[Collection[Hashable]],
    second: Sequence[Collection[Hashable]],
    gold: Sequence[Collection[Hashable]],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems by the micro F1 of what each finds in every text: labels, or spans."""
    if not len(first) == len(second) == len(gold) or not gold:
        raise RegardError(
            f"compare_found: {len(first)} and {len(second)} predictions, {len(gold)} gold; as many are needed"
        )
    (before, ours), (after, theirs) = (found_counts(found, gold) for found in (first, second))
    return compare_counts((before, ours), (after, theirs), f1_of, samples=samples, seed=seed)


def found_counts(found: Sequence[Collection[Hashable]], gold: Sequence[Collection[Hashable]]) -> tuple[Score, Counts]:
    """The micro F1, and of each text how much is right, how much was found and how much there is."""
    pairs = [(set(ours), set(wanted)) for ours, wanted in zip(found, gold, strict=True)]
    counts = np.array([[len(ours & wanted), len(ours), len(wanted)] for ours, wanted in pairs])
    return Score("micro F1", f1_of(counts.sum(0)), f"texts:{len(gold)}"), counts


def f1_of(counts: Int[np.ndarray, " three"]) -> float:
    """The F1 of how much is right, how much was found and how much there is."""
    right, found, wanted = counts.tolist()
    return 2 * right / (found + wanted) if found + wanted else 0.0


def drawn(random: np.random.Generator, sentences: int) -> Int[np.ndarray, " sentences"]:
    """How often each sentence is in a sample as large as all."""
    return np.bincount(random.integers(sentences, size=sentences), minlength=sentences)


def bleu_counts(predictions: Sequence[str], references: Answers) -> Counts:
    """Of each sentence the right n-grams, all n-grams, its length and that of the nearest reference."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)  # the counts are the same; without it sacrebleu warns of single sentences
    answers = right_answers("BLEU", predictions, references)
    found = [metric.sentence_score(ours, each) for ours, each in zip(predictions, answers, strict=True)]
    return np.array([[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in found])


def bleu_of(counts: Int[np.ndarray, " counts"]) -> float:
    """BLEU of the sum of counts."""
    from sacrebleu.metrics.bleu import BLEU

    *grams, ours, theirs = counts.tolist()
    half = len(grams) // 2
    return BLEU.compute_bleu(grams[:half], grams[half:], ours, theirs, smooth_method="exp").score


def ratio(counts: Int[np.ndarray, " two"]) -> float:
    """The first over the second."""
    return float(counts[0] / max(counts[1], 1))


COUNTED: dict[str, tuple[Counting, Scoring]] = {
    "bleu": (bleu_counts, bleu_of),
    "exact_match": (lambda ours, right: np.array([[match, 1] for match in matches(ours, right)], dtype=int), ratio),
    "word_error_rate": (lambda ours, right: np.array(edits(ours, right, "word")), ratio),
    "character_error_rate": (lambda ours, right: np.array(edits(ours, right, "character")), ratio),
}
"""The metrics that are sums over sentences first: how to count in each, and the score of a sum."""
