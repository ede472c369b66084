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

    lines: int = 0
    tokens: int = 0
    unknown: int = 0
    tab: int | None = None  # the line

    def hear(self, predictions: Sequence[Prediction]) -> None:
        """Take in some more sources."""
        from regard.batch import UNKNOWN

        for prediction in predictions:
            self.lines += 1
            self.tokens += len(prediction.pair.source)
            self.unknown += list(prediction.pair.source).count(UNKNOWN)
            if self.tab is None and "\t" in prediction.source:
                self.tab = self.lines

    def say(self) -> None:
        """Write to stderr what there is to say."""
        if self.tab is not None:
            print(f"line {self.tab} holds a tab; one source a line is expected", file=sys.stderr)
        if self.unknown > MANY * self.tokens:
            share = 100 * self.unknown / self.tokens
            print(f"{share:.0f} % of the source tokens are unknown to this model", file=sys.stderr)
