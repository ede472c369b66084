"""Score by source length, which shows where a model without attention falls behind."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.errors import RegardError
from regard.metrics.score import MetricScore, References, collect_references
from regard.metrics.sequences import LengthUnit, to_units

EDGES = (10, 20, 30, 40, 50)

Metric = Callable[[Sequence[str], References], MetricScore]


@dataclass(frozen=True)
class LengthRow:
    """The score of sentences whose source has `min_length` to `max_length` words or characters."""

    min_length: int
    max_length: int | None  # None: no limit
    sentences: int
    score: MetricScore

    @property
    def lengths(self) -> str:
        """The range of lengths: `11-20`, or `51+` for the last row."""
        return f"{self.min_length}+" if self.max_length is None else f"{self.min_length}-{self.max_length}"

    def to_json(self) -> dict[str, object]:
        """Return a dictionary for `json.dumps`."""
        return {
            "least": self.min_length,
            "most": self.max_length,
            "sentences": self.sentences,
            "score": self.score.to_json(),
        }


def score_by_length(
    sources: Sequence[str],
    predictions: Sequence[str],
    references: References,
    metric: Metric,
    edges: Sequence[int] = EDGES,
    *,
    unit: LengthUnit = "word",
    keep: Sequence[bool] | None = None,
) -> list[LengthRow]:
    """Score predictions in groups of similar source length.

    Args:
        sources: Source texts.
        predictions: Prediction for each source.
        references: Reference, or several references, for each source.
        metric: A metric function such as `bleu`.
        edges: Maximum source length of each row; one more row takes longer sources. Empty rows are omitted.
        unit: Unit of length, `word` or `character`.
        keep: Which sentences to include, such as those without unknown words. By default all.

    Returns:
        One row per range of lengths that occurs.

    Raises:
        RegardError: The numbers of texts differ, or the edges do not increase.
    """
    collect_references("by_length", predictions, references)
    for name, values in (("sources", sources), ("entries in keep", keep)):
        if values is not None and len(values) != len(predictions):
            raise RegardError(
                f"by_length: expected one per prediction, got {len(values)} {name} and {len(predictions)} predictions"
            )
    check_edges(edges)
    rows: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for index, source in enumerate(sources):
        if keep is None or keep[index]:
            rows[bisect_left(edges, len(to_units(source, unit)))].append(index)
    bounds = zip([0, *(edge + 1 for edge in edges)], [*edges, None], strict=True)
    return [
        LengthRow(
            min_length,
            max_length,
            len(indices),
            metric([predictions[index] for index in indices], [references[index] for index in indices]),
        )
        for (min_length, max_length), indices in zip(bounds, rows, strict=True)
        if indices
    ]


def check_edges(edges: Sequence[int]) -> None:
    """Check that edges increase, starting from at least 0."""
    if any(after <= before for before, after in pairwise([-1, *edges])):
        raise RegardError(f"by_length: edges must increase, starting from at least 0, got {', '.join(map(str, edges))}")
