"""What is odd about the lines that were read, said once after all of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

MANY = 0.1
"""The share of unknown tokens above which they are mentioned."""


@dataclass
class Remarks:
    """Counts the tokens that a model does not know, and finds the first line with a tab."""

    tokens_of: str = "tokens"  # what the tokens are called
    lines: int = 0
    tokens: int = 0
    unknown: int = 0
    tab: int | None = None  # the line

    def hear(self, ids: Sequence[int], line: str = "") -> None:
        """Take in one more line: its tokens, and its text if a tab in it would be odd."""
        from regard.batch import UNKNOWN

        self.lines += 1
        self.tokens += len(ids)
        self.unknown += list(ids).count(UNKNOWN)
        if self.tab is None and "\t" in line:
            self.tab = self.lines

    def say(self) -> None:
        """Write to stderr what there is to say."""
        if self.tab is not None:
            print(f"line {self.tab} holds a tab; one source a line is expected", file=sys.stderr)
        if self.unknown > MANY * self.tokens:
            share = 100 * self.unknown / self.tokens
            print(f"{share:.0f} % of the {self.tokens_of} are unknown to this model", file=sys.stderr)
