"""Metrics of classification, with one label per text or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import RegardError
from regard.metrics.score import MetricScore

Item = TypeVar("Item")

MAX_CONFUSIONS = 5  # most frequent confusions to report


class PredictionCounts(NamedTuple):
    """Counts of correct, predicted and gold items; ratios with a zero denominator are 0."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Share of predicted items that are correct."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of gold items that were predicted."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.right / (self.predicted + self.gold) if self.predicted + self.gold else 0.0

    def signature(self) -> str:
        """Return the counts as the conditions of a score."""
        return f"right:{self.right}|predicted:{self.predicted}|gold:{self.gold}"

    def to_json(self) -> dict[str, float]:
        """Return a dictionary for `json.dumps`."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, **self._asdict()}


class Averages(NamedTuple):
    """Precision, recall and F1, averaged over kinds."""

    precision: float
    recall: float
    f1: float


class ScoreReport:
    """Base of report dataclasses: one score per field, and one field with the counts of each kind."""

    kinds: ClassVar[str]  # name of the field with the counts

    @property
    def scores(self) -> tuple[MetricScore, ...]:
        """Scores over all kinds."""
        return tuple(value for value in vars(self).values() if isinstance(value, MetricScore))

    def lines(self) -> Iterator[str]:
        """Yield each score followed by its conditions."""
        yield from map(str, self.scores)
        for kind, counts in getattr(self, self.kinds).items():
            scores = f"precision {counts.precision:.4f}, recall {counts.recall:.4f}, F1 {counts.f1:.4f}"
            yield f"{kind}: {scores} ({counts.signature()})"

    def to_json(self) -> dict[str, object]:
        """Return a dictionary for `json.dumps`, in full precision."""
        scores = {name: value.to_json() for name, value in vars(self).items() if isinstance(value, MetricScore)}
        return scores | {self.kinds: {kind: counts.to_json() for kind, counts in getattr(self, self.kinds).items()}}


@dataclass(frozen=True)
class LabelReport(ScoreReport):
    """Scores of single-label classification; rows of the confusion matrix are gold labels, columns predicted ones."""

    kinds = "by_label"

    accuracy: MetricScore
    micro_f1: MetricScore  # equals the accuracy for single labels
    macro_f1: MetricScore
    weighted_f1: MetricScore
    by_label: dict[str, PredictionCounts]
    confusion: tuple[tuple[int, ...], ...]

    def lines(self) -> Iterator[str]:
        """Yield each score followed by its conditions, and the most frequent confusions."""
        yield from super().lines()
        labels = list(self.by_label)
        wrong = [
            (count, gold, label)
            for gold, row in zip(labels, self.confusion, strict=True)
            for label, count in zip(labels, row, strict=True)
            if count and label != gold
        ]
        for count, gold, label in sorted(wrong, key=lambda item: -item[0])[:MAX_CONFUSIONS]:
            yield f"{label} for {gold}: {count} of {self.by_label[gold].gold}"

    def to_json(self) -> dict[str, object]:
        """Return a dictionary for `json.dumps`, in full precision."""
        return super().to_json() | {"confusion": {"labels": list(self.by_label), "rows": self.confusion}}


@dataclass(frozen=True)
class MultiLabelReport(ScoreReport):
    """Scores of multi-label classification."""

    kinds = "by_label"

    micro_f1: MetricScore
    precision: MetricScore
    recall: MetricScore
    macro_f1: MetricScore
    best_recall: MetricScore
    best_precision: MetricScore
    by_label: dict[str, PredictionCounts]


class TunedThreshold(NamedTuple):
    """A threshold, and the micro F1 of labels with at least that probability."""

    threshold: float
    f1: MetricScore


def label_report(predictions: Sequence[str], gold: Sequence[str]) -> LabelReport:
    """Score one predicted label per text.

    Averages over labels include those that are predicted or gold.

    Args:
        predictions: Predicted label of each text.
        gold: Gold label of each text.

    Returns:
        Accuracy, F1 scores, counts per label and the confusion matrix.
    """
    check_predictions("label_report", len(predictions), len(gold))
    by_label = count_by_kind([{label} for label in predictions], [{label} for label in gold])
    pairs = Counter(zip(gold, predictions, strict=True))
    conditions = f"texts:{len(gold)}|labels:{len(by_label)}"
    micro, right = sum_counts(by_label), sum(map(str.__eq__, predictions, gold))
    return LabelReport(
        accuracy=MetricScore("accuracy", right / len(gold), f"right:{right}|texts:{len(gold)}"),
        micro_f1=MetricScore("micro F1", micro.f1, micro.signature()),
        macro_f1=MetricScore("macro F1", macro_average(by_label).f1, conditions),
        weighted_f1=MetricScore("weighted F1", weighted_average(by_label).f1, conditions),
        by_label=by_label,
        confusion=tuple(tuple(pairs[row, column] for column in by_label) for row in by_label),
    )


def multi_label_report(
    probabilities: Float[Tensor, "texts labels"],
    gold: Sequence[Collection[str]],
    labels: Sequence[str],
    *,
    threshold: float,
    best: int = 5,
) -> MultiLabelReport:
    """Score multi-label predictions, by a threshold and by the most probable labels.

    Recall and precision at `best` are means over texts (for recall, over texts with a label);
    ties go to the first label. A gold label that is not in `labels` counts as missed. Averages
    over labels include those that are predicted or gold.

    Args:
        probabilities: Probability of each label for each text.
        gold: Gold labels of each text.
        labels: Label of each column.
        threshold: Minimum probability of a predicted label.
        best: Number of most probable labels for recall and precision at k.
    """
    check_predictions("multi_label_report", len(probabilities), len(gold))
    check_best(best, len(labels))
    gold_sets = [set(gold_labels) for gold_labels in gold]
    by_label = count_by_kind(select_above(probabilities, labels, threshold), gold_sets)
    counts = sum_counts(by_label)
    conditions = f"threshold:{threshold:.4g}|{counts.signature()}"
    hits = [
        len(gold_labels & top_labels)
        for gold_labels, top_labels in zip(gold_sets, select_top(probabilities, labels, best), strict=True)
    ]
    recalls = [
        hit_count / len(gold_labels) for hit_count, gold_labels in zip(hits, gold_sets, strict=True) if gold_labels
    ]
    among = f"best:{best}|texts:"
    return MultiLabelReport(
        micro_f1=MetricScore("micro F1", counts.f1, conditions),
        precision=MetricScore("precision", counts.precision, conditions),
        recall=MetricScore("recall", counts.recall, conditions),
        macro_f1=MetricScore(
            "macro F1", macro_average(by_label).f1, f"threshold:{threshold:.4g}|labels:{len(by_label)}"
        ),
        best_recall=MetricScore(f"recall@{best}", sum(recalls) / max(len(recalls), 1), f"{among}{len(recalls)}"),
        best_precision=MetricScore(f"precision@{best}", sum(hits) / (best * len(hits)), f"{among}{len(hits)}"),
        by_label=by_label,
    )


def best_threshold(
    probabilities: Float[Tensor, "texts labels"], gold: Sequence[Collection[str]], labels: Sequence[str]
) -> TunedThreshold:
    """Find the threshold with the highest micro F1, the highest of equally good ones.

    Probabilities are sorted once, and every possible threshold is evaluated by cumulative
    counts. The threshold is midway to the next lower probability.
    """
    check_predictions("best_threshold", len(probabilities), len(gold))
    gold_count = sum(len(set(text_labels)) for text_labels in gold)
    if not gold_count:
        raise RegardError("best_threshold: expected at least one text with a label")
    ordered, order = probabilities.detach().cpu().double().flatten().sort(descending=True)
    right = build_gold_matrix(gold, labels).flatten()[order].cumsum(0)
    predicted = torch.arange(1, len(ordered) + 1)
    lower = torch.cat((ordered[1:], ordered.new_zeros(1)))
    f1 = 2 * right.double() / (predicted + gold_count)
    f1[:-1][ordered[1:] == ordered[:-1]] = -1  # equal probabilities are predicted together
    best_index = int(f1.argmax())
    above_it, below_it = float(ordered[best_index]), float(lower[best_index])
    middle = (above_it + below_it) / 2
    counts = PredictionCounts(int(right[best_index]), best_index + 1, gold_count)
    return TunedThreshold(
        middle if middle > below_it else above_it, MetricScore("micro F1", counts.f1, counts.signature())
    )


def select_above(
    probabilities: Float[Tensor, "texts labels"], labels: Sequence[str], threshold: float
) -> list[set[str]]:
    """Return, for each text, the labels with at least the threshold probability."""
    return [
        {label for label, probability in zip(labels, row, strict=True) if probability >= threshold}
        for row in probabilities.tolist()
    ]


def select_top(probabilities: Float[Tensor, "texts labels"], labels: Sequence[str], best: int) -> list[set[str]]:
    """Return, for each text, the `best` most probable labels."""
    order = probabilities.sort(dim=-1, descending=True, stable=True).indices[:, :best]
    return [{labels[index] for index in row} for row in order.tolist()]


def build_gold_matrix(gold: Sequence[Collection[str]], labels: Sequence[str]) -> Bool[Tensor, "texts labels"]:
    """Return which of the labels each text has."""
    label_indices = {label: index for index, label in enumerate(labels)}
    matrix = torch.zeros(len(gold), len(labels), dtype=torch.bool)
    for row, text_labels in enumerate(gold):
        matrix[row, [label_indices[label] for label in text_labels if label in label_indices]] = True
    return matrix


def count_by_kind(
    predictions: Sequence[Collection[Item]], gold: Sequence[Collection[Item]], kind_of: Callable[[Item], str] = str
) -> dict[str, PredictionCounts]:
    """Count correct, predicted and gold items per kind, sorted by name; a label is its own kind."""
    predicted = Counter(kind_of(item) for kinds in predictions for item in kinds)
    gold_counts = Counter(kind_of(item) for kinds in gold for item in kinds)
    both = zip(predictions, gold, strict=True)
    right = Counter(kind_of(item) for predicted_kinds, kinds in both for item in predicted_kinds if item in kinds)
    return {
        kind: PredictionCounts(right[kind], predicted[kind], gold_counts[kind])
        for kind in sorted(predicted | gold_counts)
    }


def sum_counts(by_kind: Mapping[str, PredictionCounts]) -> PredictionCounts:
    """Sum the counts of all kinds."""
    return (
        PredictionCounts(*(sum(column) for column in zip(*by_kind.values(), strict=True)))
        if by_kind
        else PredictionCounts(0, 0, 0)
    )


def macro_average(by_kind: Mapping[str, PredictionCounts]) -> Averages:
    """Return the unweighted mean over kinds."""
    return compute_averages([(counts, 1) for counts in by_kind.values()])


def weighted_average(by_kind: Mapping[str, PredictionCounts]) -> Averages:
    """Return the mean over kinds, weighted by gold count."""
    return compute_averages([(counts, counts.gold) for counts in by_kind.values()])


def compute_averages(counts: Sequence[tuple[PredictionCounts, int]]) -> Averages:
    """Return weighted means, 0 without counts."""
    weight = max(sum(count for _, count in counts), 1)
    return Averages(
        precision=sum(kind_counts.precision * n for kind_counts, n in counts) / weight,
        recall=sum(kind_counts.recall * n for kind_counts, n in counts) / weight,
        f1=sum(kind_counts.f1 * n for kind_counts, n in counts) / weight,
    )


def check_predictions(metric: str, predicted: int, gold: int) -> None:
    """Check that there is one gold answer per prediction."""
    if predicted != gold:
        raise RegardError(
            f"{metric}: expected one gold answer per prediction, got {predicted} predictions and {gold} gold"
        )
    if not gold:
        raise RegardError(f"{metric}: expected at least one prediction, got none")


def check_best(best: int, labels: int) -> None:
    """Check that `best` is at most the number of labels."""
    if not 1 <= best <= labels:
        raise RegardError(f"multi_label_report: best must be from 1 to {labels}, the number of labels, got {best}")
