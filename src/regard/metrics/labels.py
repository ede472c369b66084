"""How well texts are labelled, with one label each or with several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import RegardError
from regard.metrics.score import Score

Item = TypeVar("Item")

MOST_CONFUSED = 5  # kinds of confusion that are told


class Counts(NamedTuple):
    """How often something was predicted rightly, was predicted, and should have been.

    A share of nothing is 0.
    """

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """The share of what was predicted that is right."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of what is right that was predicted."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.right / (self.predicted + self.gold) if self.predicted + self.gold else 0.0

    def signature(self) -> str:
        """The counts, as the conditions of a score."""
        return f"right:{self.right}|predicted:{self.predicted}|gold:{self.gold}"

    def to_json(self) -> dict[str, float]:
        """Ready for `json.dumps`."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, **self._asdict()}


class Averages(NamedTuple):
    """Precision, recall and F1 of all kinds together (micro) or their mean over the kinds (macro, weighted)."""

    precision: float
    recall: float
    f1: float


class ScoreReport:
    """A dataclass of scores, one a field, and of the counts of each kind in a field of its own."""

    kinds: ClassVar[str]  # the name of that field

    @property
    def scores(self) -> tuple[Score, ...]:
        """Those of all kinds together."""
        return tuple(value for value in vars(self).values() if isinstance(value, Score))

    def lines(self) -> Iterator[str]:
        """Each score with its conditions after itself."""
        yield from map(str, self.scores)
        for kind, each in getattr(self, self.kinds).items():
            found = f"precision {each.precision:.4f}, recall {each.recall:.4f}, F1 {each.f1:.4f}"
            yield f"{kind}: {found} ({each.signature()})"

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`, in full precision."""
        scores = {name: value.to_json() for name, value in vars(self).items() if isinstance(value, Score)}
        return scores | {self.kinds: {kind: counts.to_json() for kind, counts in getattr(self, self.kinds).items()}}


@dataclass(frozen=True)
class LabelReport(ScoreReport):
    """The scores of texts of one label each; of the confusions a row is a gold label, a column a predicted one."""

    kinds = "by_label"

    accuracy: Score
    micro_f1: Score  # with one label each the same as the accuracy
    macro_f1: Score
    weighted_f1: Score
    by_label: dict[str, Counts]
    confusion: tuple[tuple[int, ...], ...]

    def lines(self) -> Iterator[str]:
        """Each score with its conditions after itself, and what is most often confused."""
        yield from super().lines()
        labels = list(self.by_label)
        wrong = [
            (number, gold, label)
            for gold, row in zip(labels, self.confusion, strict=True)
            for label, number in zip(labels, row, strict=True)
            if number and label != gold
        ]
        for number, gold, label in sorted(wrong, key=lambda each: -each[0])[:MOST_CONFUSED]:
            yield f"{label} for {gold}: {number} of {self.by_label[gold].gold}"

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`, in full precision."""
        return super().to_json() | {"confusion": {"labels": list(self.by_label), "rows": self.confusion}}


@dataclass(frozen=True)
class SeveralReport(ScoreReport):
    """The scores of texts of several labels."""

    kinds = "by_label"

    micro_f1: Score
    precision: Score
    recall: Score
    macro_f1: Score
    best_recall: Score
    best_precision: Score
    by_label: dict[str, Counts]


class Tuned(NamedTuple):
    """A threshold, and the micro F1 of those labels that are at least as probable."""

    threshold: float
    f1: Score


def label_report(predictions: Sequence[str], gold: Sequence[str]) -> LabelReport:
    """Score one predicted label a text; what is averaged over labels is so over those predicted or gold."""
    check_pairs("label_report", len(predictions), len(gold))
    by_label = counts_by_kind([{label} for label in predictions], [{label} for label in gold])
    pairs = Counter(zip(gold, predictions, strict=True))
    conditions = f"texts:{len(gold)}|labels:{len(by_label)}"
    all_of_them, right = total(by_label), sum(map(str.__eq__, predictions, gold))
    return LabelReport(
        accuracy=Score("accuracy", right / len(gold), f"right:{right}|texts:{len(gold)}"),
        micro_f1=Score("micro F1", all_of_them.f1, all_of_them.signature()),
        macro_f1=Score("macro F1", macro(by_label).f1, conditions),
        weighted_f1=Score("weighted F1", weighted(by_label).f1, conditions),
        by_label=by_label,
        confusion=tuple(tuple(pairs[row, column] for column in by_label) for row in by_label),
    )


def several_report(
    probabilities: Float[Tensor, "texts labels"],
    gold: Sequence[Collection[str]],
    labels: Sequence[str],
    *,
    threshold: float,
    best: int = 5,
) -> SeveralReport:
    """Score several labels a text: those at least as probable as the threshold, and so many of the most probable.

    Recall and precision among the best are means over texts, for recall over those that
    have a label; of equally probable labels the first comes first. A gold label that is
    not among `labels` cannot be predicted and counts as missed. The mean over labels is over
    those predicted or gold.
    """
    check_pairs("several_report", len(probabilities), len(gold))
    check_best(best, len(labels))
    right = [set(each) for each in gold]
    by_label = counts_by_kind(above(probabilities, labels, threshold), right)
    counts = total(by_label)
    conditions = f"threshold:{threshold:.4g}|{counts.signature()}"
    hits = [
        len(each & best_ones) for each, best_ones in zip(right, most_probable(probabilities, labels, best), strict=True)
    ]
    recalls = [found / len(each) for found, each in zip(hits, right, strict=True) if each]
    among = f"best:{best}|texts:"
    return SeveralReport(
        micro_f1=Score("micro F1", counts.f1, conditions),
        precision=Score("precision", counts.precision, conditions),
        recall=Score("recall", counts.recall, conditions),
        macro_f1=Score("macro F1", macro(by_label).f1, f"threshold:{threshold:.4g}|labels:{len(by_label)}"),
        best_recall=Score(f"recall@{best}", sum(recalls) / max(len(recalls), 1), f"{among}{len(recalls)}"),
        best_precision=Score(f"precision@{best}", sum(hits) / (best * len(hits)), f"{among}{len(hits)}"),
        by_label=by_label,
    )


def best_threshold(
    probabilities: Float[Tensor, "texts labels"], gold: Sequence[Collection[str]], labels: Sequence[str]
) -> Tuned:
    """The threshold of the highest micro F1 there is, the highest of equally good ones.

    All that can be predicted lies in the order of the probabilities, so each threshold is
    tried by counting once along it. It is set midway to the next lower probability.
    """
    check_pairs("best_threshold", len(probabilities), len(gold))
    wanted = sum(len(set(each)) for each in gold)
    if not wanted:
        raise RegardError("best_threshold: no text has a label; one is the least")
    ordered, order = probabilities.detach().cpu().double().flatten().sort(descending=True)
    right = gold_matrix(gold, labels).flatten()[order].cumsum(0)
    predicted = torch.arange(1, len(ordered) + 1)
    lower = torch.cat((ordered[1:], ordered.new_zeros(1)))
    f1 = 2 * right.double() / (predicted + wanted)
    f1[:-1][ordered[1:] == ordered[:-1]] = -1  # what is equally probable is predicted together
    place = int(f1.argmax())
    above_it, below_it = float(ordered[place]), float(lower[place])
    middle = (above_it + below_it) / 2
    counts = Counts(int(right[place]), place + 1, wanted)
    return Tuned(middle if middle > below_it else above_it, Score("micro F1", counts.f1, counts.signature()))


def above(probabilities: Float[Tensor, "texts labels"], labels: Sequence[str], threshold: float) -> list[set[str]]:
    """For each text the labels that are at least as probable as the threshold."""
    return [
        {label for label, probability in zip(labels, row, strict=True) if probability >= threshold}
        for row in probabilities.tolist()
    ]


def most_probable(probabilities: Float[Tensor, "texts labels"], labels: Sequence[str], best: int) -> list[set[str]]:
    """For each text so many of the most probable labels."""
    order = probabilities.sort(dim=-1, descending=True, stable=True).indices[:, :best]
    return [{labels[place] for place in row} for row in order.tolist()]


def gold_matrix(gold: Sequence[Collection[str]], labels: Sequence[str]) -> Bool[Tensor, "texts labels"]:
    """Which label each text has, of those in a list."""
    places = {label: place for place, label in enumerate(labels)}
    found = torch.zeros(len(gold), len(labels), dtype=torch.bool)
    for row, each in enumerate(gold):
        found[row, [places[label] for label in each if label in places]] = True
    return found


def counts_by_kind(
    predictions: Sequence[Collection[Item]], gold: Sequence[Collection[Item]], kind_of: Callable[[Item], str] = str
) -> dict[str, Counts]:
    """For each kind that is predicted or gold, by name, how often it is which; a label is its own kind."""
    predicted = Counter(kind_of(item) for each in predictions for item in each)
    wanted = Counter(kind_of(item) for each in gold for item in each)
    both = zip(predictions, gold, strict=True)
    right = Counter(kind_of(item) for ours, each in both for item in ours if item in each)
    return {kind: Counts(right[kind], predicted[kind], wanted[kind]) for kind in sorted(predicted | wanted)}


def total(by_kind: Mapping[str, Counts]) -> Counts:
    """The counts of all kinds together."""
    return Counts(*(sum(column) for column in zip(*by_kind.values(), strict=True))) if by_kind else Counts(0, 0, 0)


def macro(by_kind: Mapping[str, Counts]) -> Averages:
    """The mean over the kinds."""
    return averages([(each, 1) for each in by_kind.values()])


def weighted(by_kind: Mapping[str, Counts]) -> Averages:
    """The mean over the kinds, each as often as it is gold."""
    return averages([(each, each.gold) for each in by_kind.values()])


def averages(counts: Sequence[tuple[Counts, int]]) -> Averages:
    """Weighted means; those of nothing are 0."""
    weight = max(sum(each for _, each in counts), 1)
    return Averages(
        precision=sum(each.precision * n for each, n in counts) / weight,
        recall=sum(each.recall * n for each, n in counts) / weight,
        f1=sum(each.f1 * n for each, n in counts) / weight,
    )


def check_pairs(what: str, ours: int, gold: int) -> None:
    """Raise a `RegardError` unless there is a right answer to each prediction."""
    if ours != gold:
        raise RegardError(f"{what}: {ours} predictions, {gold} gold; gold n must answer prediction n")
    if not gold:
        raise RegardError(f"{what}: there are no predictions; one is the least")


def check_best(best: int, labels: int) -> None:
    """Raise a `RegardError` unless so many labels can be the best."""
    if not 1 <= best <= labels:
        raise RegardError(f"several_report: best is {best}; 1 to {labels}, the number of labels, can be chosen")
