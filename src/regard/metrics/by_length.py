"""Quality against the length of the source: where a model without attention falls behind."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.errors import RegardError
from regard.metrics.score import Answers, Score, right_answers
from regard.metrics.sequences import Unit, units

EDGES = (10, 20, 30, 40, 50)

Metric = Callable[[Sequence[str], Answers], Score]


@dataclass(frozen=True)
class LengthRow:
    """The score of the sentences whose source has `least` to `most` words, or characters."""

    least: int
    most: int | None  # None: however many
    sentences: int
    score: Score

    @property
    def lengths(self) -> str:
        """`11-20`, or `51+` at the end."""
        return f"{self.least}+" if self.most is None else f"{self.least}-{self.most}"

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`."""
        return {"least": self.least, "most": self.most, "sentences": self.sentences, "score": self.score.to_json()}


def by_length(
    sources: Sequence[str],
    predictions: Sequence[str],
    references: Answers,
    metric: Metric,
    edges: Sequence[int] = EDGES,
    *,
    unit: Unit = "word",
    keep: Sequence[bool] | None = None,
) -> list[LengthRow]:
    """The score of short, longer and long sentences apart.

    Args:
        sources: What was read.
        predictions: What the model answered to each.
        references: The right answer to each, or several.
        metric: As `bleu`.
        edges: The longest source of each row; one more row takes those that are longer still.
            A row without sentences is left out.
        unit: What a length counts.
        keep: Which sentences count, such as those without unknown words; all unless given.
    """
    right_answers("by_length", predictions, references)
    for what, given in (("sources", sources), ("entries in keep", keep)):
        if given is not None and len(given) != len(predictions):
            raise RegardError(f"by_length: {len(given)} {what}, {len(predictions)} predictions; one for each is needed")
    check_edges(edges)
    rows: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for place, source in enumerate(sources):
        if keep is None or keep[place]:
            rows[bisect_left(edges, len(units(source, unit)))].append(place)
    bounds = zip([0, *(edge + 1 for edge in edges)], [*edges, None], strict=True)
    return [
        LengthRow(
            least,
            most,
            len(places),
            metric([predictions[place] for place in places], [references[place] for place in places]),
        )
        for (least, most), places in zip(bounds, rows, strict=True)
        if places
    ]


def check_edges(edges: Sequence[int]) -> None:
    """Raise a `RegardError` unless edges rise, from 0 or more."""
    if any(after <= before for before, after in pairwise([-1, *edges])):
        raise RegardError(f"by_length: edges are {', '.join(map(str, edges))}; they must rise, from 0 or more")
