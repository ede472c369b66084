"""What a model remembers while it writes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor


@runtime_checkable
class State(Protocol):
    """What a model remembers between steps of its hypotheses: those of the first source, then of the next."""

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Put hypothesis rows[i] in place i, in the same memory.

        Rows may repeat and always stay with their source, so what is remembered of the
        source need not move.
        """
