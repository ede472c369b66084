"""The state of a model between decoding steps."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor


@runtime_checkable
class State(Protocol):
    """The state of a model between decoding steps, with one row per hypothesis, grouped by source."""

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the hypotheses in place: row i becomes what was row rows[i].

        Rows may repeat, and always stay with their source, so the encoded source need not move.
        """
