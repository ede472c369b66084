"""What a request to answer a source, a look at one and an explanation can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.errors import RegardError
from regard.settings import Between
from regard.tasks.actions import Given
from regard.tasks.options import check_range

WIDEST, LONGEST = 1000, 100_000
"""The widest beam and the longest target that can be asked for; the memory for more is hardly meant."""

Beam = Between(1, WIDEST)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How targets are searched for.

    Attributes:
        beam: Hypotheses kept at each step, 1 is greedy; as in the run's recipe unless set.
        nbest: Targets for each source, the best first.
        length_penalty: 0 prefers short targets; as in the run's recipe unless set.
        longest: Tokens of a target at the most; twice those of its source and 50 more unless set.
    """

    beam: Annotated[int | None, Beam] = None
    nbest: Annotated[int, Beam] = 1
    length_penalty: Annotated[float | None, Between(0, 100)] = None
    longest: Annotated[int | None, Between(1, LONGEST)] = None

    def width(self, usual: int) -> int:
        """How many hypotheses are kept: `usual` unless set, and no less than the best that are asked for."""
        return max(usual, self.nbest) if self.beam is None else self.beam

    def check_search(self, usual: int) -> None:
        """Raise a `RegardError` for a search that cannot be made."""
        width = self.width(usual)
        check_range("predict", "beam", width, 1, WIDEST)
        check_range("predict", "nbest", self.nbest, 1, WIDEST)
        check_range("predict", "longest", self.longest, 1, LONGEST)
        if self.nbest > width:
            raise RegardError(
                f"predict: {self.nbest} best of a beam of {width} are too many; set beam to {self.nbest} or more"
            )


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """What of a target is explained.

    Attributes:
        target: The target to explain; the one that the model predicts unless set.
        word: Which word of the target to explain, counted from 0; all of it unless set.
    """

    target: Given = None
    word: int | None = None
