"""Explanation: how much each word mattered for what a model said, by several methods side by side.

No method knows the truth, so they are shown together, with how well they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

ATTENTION, ROLLOUT, GRADIENT, LEFT_OUT = METHODS = (
    "attention",
    "attention rollout",
    "gradient x input",
    "leave one out",
)
"""In the order in which they are shown."""

SIGNED = (GRADIENT, LEFT_OUT)
"""Those by which a word can speak against what is explained, too."""

WIDEST = 30  # columns of a word in a table


@dataclass(frozen=True)
class Explanation:
    """How much each word mattered for one thing that a model said.

    Of `attention` and `attention rollout` a word has a share, the more the longer it was looked
    at. `gradient x input` and `leave one out` are in nats of the log-probability: above zero, the
    word made what is explained more probable, below zero less.
    """

    words: tuple[str, ...]
    what: str  # is explained
    log_probability: float  # of what is explained
    values: Mapping[str, tuple[float, ...]]  # method -> a number for each word
    notes: tuple[str, ...] = ()  # what else is to be known, a sentence each

    @property
    def correlations(self) -> dict[tuple[str, str], float | None]:
        """For each two methods, Spearman's rank correlation of their magnitudes; None where one has the same for all.

        1 means that both put the words in the same order, 0 that the one tells nothing of the other.
        """
        return {
            (first, second): rank_correlation(np.abs(self.values[first]), np.abs(self.values[second]))
            for first, second in combinations(self.values, 2)
        }

    def shares(self, method: str) -> tuple[float, ...]:
        """The magnitudes by a method, divided by their sum; zeros where there are no others."""
        magnitudes = np.abs(self.values[method])
        return tuple((magnitudes / (magnitudes.sum() or 1.0)).tolist())

    def lines(self) -> list[str]:
        """A table with a row for each word, how well the methods agree below it, and the notes."""
        from regard.views.display import harmless

        return [harmless(self.what), *self._table(), *self._agreement(), *self.notes]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {
            "what": self.what,
            "log_probability": self.log_probability,
            "words": list(self.words),
            "values": {method: list(numbers) for method, numbers in self.values.items()},
            "correlations": [
                {"methods": list(methods), "spearman": value} for methods, value in self.correlations.items()
            ],
            "notes": list(self.notes),
        }

    def _table(self) -> Iterator[str]:
        from regard.views.display import cut, display_width, harmless, isolated

        words = ["word", *(cut(harmless(word), WIDEST) for word in self.words)]
        wide = max(map(display_width, words))
        columns = [["", *map(str, range(len(self.words)))]]
        for method, numbers in self.values.items():
            columns.append([method, *(f"{each:{'+' if method in SIGNED else ''}.3f}" for each in numbers)])
        widths = [max(map(len, column)) for column in columns]
        for word, (number, *cells) in zip(words, zip(*columns, strict=True), strict=True):
            padded = isolated(word) + " " * (wide - display_width(word))
            rest = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
            yield f"{number:>{widths[0]}}  {padded}{rest}"

    def _agreement(self) -> Iterator[str]:
        yield "rank correlation of the magnitudes (Spearman):"
        for (first, second), value in self.correlations.items():
            found = "none, as one of them is the same for all words" if value is None else f"{value:.2f}"
            yield f"  {first}, {second}: {found}"


def rank_correlation(first: Float[np.ndarray, " words"], second: Float[np.ndarray, " words"]) -> float | None:
    """Spearman's: Pearson's correlation of the ranks, equal numbers having the mean of theirs; None if it has none."""
    one, other = (each - each.mean() for each in (ranks(first), ranks(second)))
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float(one @ other) / size if size else None


def ranks(numbers: Float[np.ndarray, " words"]) -> Float[np.ndarray, " words"]:
    """The place of each number among all, from 1 on; equal ones have the mean of their places."""
    order = np.argsort(numbers, kind="stable")
    ends = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist(), len(numbers)]
    found = np.empty(len(numbers))
    for start, end in pairwise(ends):
        found[order[start:end]] = (start + 1 + end) / 2
    return found


def rollout(layers: Float[np.ndarray, "layers places places"]) -> Float[np.ndarray, "places places"]:
    """How much of each place in the last layer comes from each in the first (Abnar and Zuidema 2020).

    A layer gives on half of what a place was, past its attention, and half of what it looked at.
    """
    itself = np.eye(len(layers[0]))
    found = itself
    for weights in layers:
        found = (weights + itself) / 2 @ found
    return found
