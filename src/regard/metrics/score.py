"""Score: a number and the conditions under which it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import RegardError

Answers = Sequence[str | Sequence[str]]
"""For each prediction the right answer, or several of which any is right."""


@dataclass(frozen=True)
class Score:
    """What was measured, how much it is, and under which conditions."""

    name: str
    value: float
    signature: str
    decimals: int = 4  # as it is printed

    def __str__(self) -> str:
        return f"{self.name} {self.value:.{self.decimals}f} ({self.signature})"

    def to_json(self) -> dict[str, str | float | None]:
        """Ready for `json.dumps`, in full precision; what is infinite, JSON has no number for."""
        value = self.value if math.isfinite(self.value) else None
        return {"name": self.name, "value": value, "signature": self.signature}


def right_answers(what: str, predictions: Sequence[str], references: Answers) -> list[tuple[str, ...]]:
    """The right answers to each prediction, one or several, after a check that they belong together."""
    if len(predictions) != len(references):
        raise RegardError(
            f"{what}: {len(predictions)} predictions, {len(references)} references; "
            "reference n must answer prediction n"
        )
    if not predictions:
        raise RegardError(f"{what}: there are no predictions; one is the least")
    answers = [(each,) if isinstance(each, str) else tuple(each) for each in references]
    for place, each in enumerate(answers, start=1):
        if not each:
            raise RegardError(f"{what}: reference {place} has no right answer; one is the least")
    return answers
