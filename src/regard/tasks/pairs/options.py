"""Options of the task pairs: search and explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.errors import RegardError
from regard.settings import Bounds
from regard.tasks.actions import OptionalText
from regard.tasks.options import check_bounds

MAX_BEAM, MAX_LENGTH = 1000, 100_000
"""Upper bounds that protect against running out of memory by mistake."""

BeamBounds = Bounds(1, MAX_BEAM)


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
    length_penalty: Annotated[float | None, Bounds(0, 100)] = None
    max_length: Annotated[int | None, Bounds(1, MAX_LENGTH)] = None

    def resolve_beam(self, default: int) -> int:
        """Return the beam size: the given one, or `default`, raised to `nbest`."""
        return max(default, self.nbest) if self.beam is None else self.beam

    def check_search(self, default: int) -> None:
        """Raise a `RegardError` for values out of bounds."""
        width = self.resolve_beam(default)
        check_bounds("predict", "beam", width, 1, MAX_BEAM)
        check_bounds("predict", "nbest", self.nbest, 1, MAX_BEAM)
        check_bounds("predict", "max_length", self.max_length, 1, MAX_LENGTH)
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
    word: int | None = None
