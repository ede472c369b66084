"""Warnings about the lines read, printed once at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from regard.messages import print_message

UNKNOWN_SHARE_LIMIT = 0.1
"""Share of unknown tokens above which a warning is printed."""

MAX_NAMES = 5
"""Number of unknown names that are listed."""


@dataclass
class Warnings:
    """Counts of unknown tokens, and the first line that contains a tab."""

    token_name: str = "tokens"  # how to call the tokens
    lines: int = 0
    tokens: int = 0
    unknown: int = 0
    tab_line: int | None = None  # number of the first line with a tab
    unknown_names: Counter[str] = field(default_factory=Counter)  # unknown tokens that are names, such as features

    def add_line(self, ids: Sequence[int], line: str = "") -> None:
        """Count one more line: its token ids, and its text if it should not contain a tab."""
        from regard.batch import UNKNOWN

        self.lines += 1
        self.tokens += len(ids)
        self.unknown += list(ids).count(UNKNOWN)
        if self.tab_line is None and "\t" in line:
            self.tab_line = self.lines

    def add_unknown_names(self, names: Iterable[str]) -> None:
        """Count unknown tokens that must be known by name, however few they are."""
        self.unknown_names.update(names)

    def print_all(self) -> None:
        """Print the warnings to stderr."""
        if self.unknown_names:
            counts = [f'"{name}" ({count:,})' for name, count in self.unknown_names.most_common(MAX_NAMES)]
            more = f" and {len(self.unknown_names) - MAX_NAMES} more" if len(self.unknown_names) > MAX_NAMES else ""
            print_message(f"unknown to the model, with their counts: {', '.join(counts)}{more}")
        if self.tab_line is not None:
            print_message(f"line {self.tab_line} contains a tab; expected one source per line")
        if self.unknown > UNKNOWN_SHARE_LIMIT * self.tokens:
            share = 100 * self.unknown / self.tokens
            print_message(f"{share:.0f}% of the {self.token_name} are unknown to the model")
