"""MetricScore: a value and the conditions under which it was computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import RegardError

References = Sequence[str | Sequence[str]]
"""The reference of each prediction, or several alternatives."""


@dataclass(frozen=True)
class MetricScore:
    """A metric, its value, and the conditions under which it was computed."""

    name: str
    value: float
    signature: str
    decimals: int = 4  # digits printed after the decimal point

    def __str__(self) -> str:
        return f"{self.name} {self.value:.{self.decimals}f} ({self.signature})"

    def to_json(self) -> dict[str, str | float | None]:
        """Return a dictionary for `json.dumps`, in full precision; infinite values become None."""
        value = self.value if math.isfinite(self.value) else None
        return {"name": self.name, "value": value, "signature": self.signature}


def collect_references(metric: str, predictions: Sequence[str], references: References) -> list[tuple[str, ...]]:
    """Return the references of each prediction as tuples, after checking their number."""
    if len(predictions) != len(references):
        raise RegardError(
            f"{metric}: expected one reference per prediction, "
            f"got {len(predictions)} predictions and {len(references)} references"
        )
    if not predictions:
        raise RegardError(f"{metric}: expected at least one prediction, got none")
    answers = [(reference,) if isinstance(reference, str) else tuple(reference) for reference in references]
    for number, accepted in enumerate(answers, start=1):
        if not accepted:
            raise RegardError(f"{metric}: reference {number} is an empty list")
    return answers
