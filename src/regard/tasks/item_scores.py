"""ItemScores: a run scored on test data item by item, for `regard compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.metrics.items import ItemCounts


@dataclass(frozen=True, kw_only=True)
class ItemScores:
    """The scores of a run on test data, and what they were computed from."""

    part: str  # the test data, in words
    items: ItemCounts
    curve: ItemCounts  # items for the picture of quality by length
    inputs: Sequence[str]  # texts that can be looked at: that of each item, or lines of what a language model reads
    outputs: Sequence[str]  # what the model predicts for each item; empty if that is no text
    output_tokens: int  # tokens that were written or scored
    scores: Mapping[str, float]  # further scores of the whole data, such as the alignment error

    def to_json(self) -> dict[str, Any]:
        """Return values for `json.dumps`."""
        return {
            "part": self.part,
            "items": self.items.to_json(),
            "curve": self.curve.to_json(),
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "output_tokens": self.output_tokens,
            "scores": dict(self.scores),
        }
