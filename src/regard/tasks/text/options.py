"""What a request to go on with a text, a look at one and an explanation can be told."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

from regard.errors import RegardError
from regard.settings import Between
from regard.tasks.actions import Flag

MOST_TOKENS = 1_000_000
"""That can be asked for; more are hardly meant."""

BEAM = 5
"""Hypotheses that a search keeps unless told otherwise."""

SEEDS = 2**32
"""How many seeds there are."""

DRAWING = ("temperature", "top_k", "top_p", "seed")
"""Options that mean nothing where no token is drawn."""


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """How a text is drawn, token by token.

    Attributes:
        tokens: The most tokens to write.
        temperature: Below 1 the probable becomes more probable, above 1 less; 1 unless set.
        top_k: Draw from so many most probable tokens only.
        top_p: Draw only from the fewest most probable tokens that have this share together.
        greedy: Draw nothing, take the most probable token each time.
        seed: The same seed gives the same text; each time another unless set.
    """

    tokens: Annotated[int, Between(1, MOST_TOKENS)] = 200
    temperature: Annotated[float | None, Between(above=0, greatest=1000)] = None
    top_k: Annotated[int | None, Between(1, 10**9)] = None
    top_p: Annotated[float | None, Between(above=0, greatest=1)] = None
    greedy: Flag = False
    seed: Annotated[int | None, Between(0, SEEDS - 1)] = None

    @property
    def drawn(self) -> list[str]:
        """Which options of drawing are set."""
        return [name for name in DRAWING if getattr(self, name) is not None]

    def check_drawing(self) -> None:
        """Raise a `RegardError` for options that nothing can be drawn by."""
        if self.temperature is not None and not 0 < self.temperature < inf:
            raise RegardError(
                f"--temperature: found {self.temperature}; a number above 0 is needed (--greedy is its limit at 0)"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise RegardError(f"--top-p: found {self.top_p}; a share above 0 and at most 1 is needed")
        if self.seed is not None and not 0 <= self.seed < SEEDS:
            raise RegardError(f"--seed: found {self.seed}; a number from 0 to {SEEDS - 1} is needed")


@dataclass(frozen=True, kw_only=True)
class WriteOptions(DrawOptions):
    """How a text is gone on with: drawn token by token, or searched for by a beam.

    Attributes:
        beam: Draw nothing, search for the most probable text with so many hypotheses.
        nbest: With a beam, so many texts, the best first; 1 unless set.
    """

    beam: Annotated[int | None, Between(1, 1000)] = None
    nbest: Annotated[int | None, Between(1, 1000)] = None

    @property
    def searches(self) -> bool:
        """Whether the most probable texts are asked for."""
        return self.beam is not None or self.nbest is not None


@dataclass(frozen=True, kw_only=True)
class WordOptions:
    """What of a text is explained.

    Attributes:
        word: Which word of the text to explain, counted from 0; the last unless set.
    """

    word: int | None = None
