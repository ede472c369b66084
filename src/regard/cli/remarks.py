"""What is odd about sources, said once after all of them are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.predictor import Prediction

MANY = 0.1
"""The share of unknown tokens above which they are mentioned."""


@dataclass
class Remarks:
    """Counts what a model does not know, and finds the first line with a tab."""

    what: str = "source tokens"
    lines: int = 0
    tokens: int = 0
    unknown: int = 0
    tab: int | None = None  # the line

    def hear(self, predictions: Sequence[Prediction]) -> None:
        """Take in some more sources."""
        for prediction in predictions:
            self.lines += 1
            self.count(prediction.pair.source)
            if self.tab is None and "\t" in prediction.source:
                self.tab = self.lines

    def count(self, tokens: Sequence[int]) -> None:
        """Count those that are unknown."""
        from regard.batch import UNKNOWN

        self.tokens += len(tokens)
        self.unknown += list(tokens).count(UNKNOWN)

    def say(self) -> None:
        """Write to stderr what there is to say."""
        if self.tab is not None:
            print(f"line {self.tab} holds a tab; one source a line is expected", file=sys.stderr)
        if self.unknown > MANY * self.tokens:
            share = 100 * self.unknown / self.tokens
            print(f"{share:.0f} % of the {self.what} are unknown to this model", file=sys.stderr)
