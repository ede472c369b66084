"""Options of the task pairs: search and explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from regard.bounds import Bounds, check_bounds
from regard.errors import RegardError
from regard.tasks.actions import OptionalText

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


def resolve_format(name: str | None, predictor: Any) -> str | None:
    """Return the given format of a file; by default the format of known columns that the run was trained with."""
    from regard.data.formats.columns import TABLE_FORMATS

    trained = predictor.recipe.data.format
    return trained if name is None and trained in TABLE_FORMATS else name
