"""Options of the task pairs: search and explanation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from regard.bounds import Bounds, check_bounds
from regard.errors import RegardError
from regard.tasks.actions import OptionalText

if TYPE_CHECKING:
    from regard.tasks.pairs.predictor import PairPredictor

MAX_BEAM, MAX_LENGTH = 1000, 100_000
"""Upper bounds that protect against running out of memory by mistake."""

BeamBounds, LengthPenaltyBounds = Bounds(1, MAX_BEAM), Bounds(0, 100)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of the search for targets.

    Attributes:
        beam: Beam size; 1 for greedy search (default: from the recipe).
        nbest: Number of targets per source, best first.
        length_penalty: Length penalty; 0 favors short targets (default: from the recipe).
        max_length: Maximum number of target tokens (default: twice the source tokens plus 50).
    """

    beam: Annotated[int | None, BeamBounds] = None
    nbest: Annotated[int, BeamBounds] = 1
    length_penalty: Annotated[float | None, LengthPenaltyBounds] = None
    max_length: Annotated[int | None, Bounds(1, MAX_LENGTH)] = None

    def __post_init__(self) -> None:
        check_bounds(self, "predict: ")

    def resolve_beam(self, default: int) -> int:
        """Return the beam size: the given one, or `default`, raised to `nbest`."""
        return max(default, self.nbest) if self.beam is None else self.beam

    def check_search(self, default: int) -> None:
        """Raise a `RegardError` if more targets are asked for than the beam has."""
        width = self.resolve_beam(default)
        if self.nbest > width:
            raise RegardError(f"predict: nbest must be at most beam ({width}), got {self.nbest}")


@dataclass(frozen=True, kw_only=True)
class PairExplainOptions:
    """Options of an explanation.

    Attributes:
        target: Target to explain (default: the model's prediction).
        word: Index of the target word to explain, from 0 (default: the whole target).
    """

    target: OptionalText = None
    word: Annotated[int | None, Bounds(0, 1_000_000)] = None

    def __post_init__(self) -> None:
        check_bounds(self, "explain: ")


def resolve_table(
    path: str | os.PathLike[str], format_name: str | None, columns: str | None, predictor: PairPredictor
) -> tuple[str | None, Sequence[str] | None]:
    """Return the format and the columns of a file of pairs: the given ones, or else those of the training.

    Raises:
        RegardError: No columns are given, and the file looks like lemma, form and features in another order.
    """
    from regard.data.formats.columns import TABLE_FORMATS
    from regard.tasks.pairs.load import check_column_order

    trained = predictor.recipe.data
    if format_name is None and trained.format in TABLE_FORMATS:
        format_name = trained.format
    if columns is not None:
        return format_name, tuple(columns.split(","))
    named = TABLE_FORMATS.get(format_name or "")
    chosen = trained.columns if named is None or format_name == trained.format else named.columns
    if not chosen:
        return format_name, None
    check_column_order(os.fspath(path), format_name, chosen)
    return format_name, chosen
