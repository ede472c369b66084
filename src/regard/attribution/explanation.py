"""Explanation: how much each word contributed to a prediction, by several attribution methods.

No method is the ground truth, so they are shown together with their rank correlation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.attention.analysis import RESIDUAL
from regard.messages import escape_controls

ATTENTION, ROLLOUT, GRADIENT_X_INPUT, LEAVE_ONE_OUT = METHODS = (
    "attention",
    "attention rollout",
    "gradient x input",
    "leave one out",
)
"""All methods, in display order."""

SIGNED = (GRADIENT_X_INPUT, LEAVE_ONE_OUT)
"""Methods whose scores can be negative."""

MAX_WORD_WIDTH = 30  # maximum width of a word in the table


@dataclass(frozen=True)
class Explanation:
    """How much each word contributed to one prediction, by several methods.

    Scores of `attention` and `attention rollout` are shares of the attention. Scores of
    `gradient x input` and `leave one out` are in nats of the log-probability: positive if the word
    made the prediction more probable, negative if less.

    Attributes:
        words: The words of the input.
        description: The prediction that is explained.
        log_probability: Log-probability of the prediction.
        values: A score for each word, by method.
        notes: Remarks about the scores, one sentence each.
        unit: What `words` are: "word", or "character" for a model that reads characters.
    """

    words: tuple[str, ...]
    description: str
    log_probability: float
    values: Mapping[str, tuple[float, ...]]
    notes: tuple[str, ...] = ()
    unit: str = "word"

    @property
    def correlations(self) -> dict[tuple[str, str], float | None]:
        """Spearman's rank correlation of the magnitudes for each pair of methods, from -1 to 1.

        1 means that both methods rank the words in the same order. None if a method has equal magnitudes for all words.
        """
        return {
            (first, second): rank_correlation(np.abs(self.values[first]), np.abs(self.values[second]))
            for first, second in combinations(self.values, 2)
        }

    def compute_shares(self, method: str) -> tuple[float, ...]:
        """Return the magnitudes of a method, normalized to sum to 1 (zeros if all are 0)."""
        magnitudes = np.abs(self.values[method])
        return tuple((magnitudes / (magnitudes.sum() or 1.0)).tolist())

    def format_lines(self) -> list[str]:
        """Return the explanation as text: a table with a row per word, the rank correlations, and the notes."""
        from regard.views.display import sanitize_text

        notes = map(escape_controls, self.notes)
        return [sanitize_text(self.description), *self._format_table(), *self._format_agreement(), *notes]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON-serializable data."""
        return {
            "description": self.description,
            "log_probability": self.log_probability,
            "words": list(self.words),
            "values": {method: list(scores) for method, scores in self.values.items()},
            "correlations": [
                {"methods": list(methods), "spearman": value} for methods, value in self.correlations.items()
            ],
            "notes": list(self.notes),
        }

    def _format_table(self) -> Iterator[str]:
        from regard.views.display import display_width, isolate_direction, sanitize_text, truncate

        words = [self.unit, *(truncate(sanitize_text(word), MAX_WORD_WIDTH) for word in self.words)]
        word_width = max(map(display_width, words))
        columns = [["", *map(str, range(len(self.words)))]]
        for method, scores in self.values.items():
            columns.append([method, *(f"{score:{'+' if method in SIGNED else ''}.3f}" for score in scores)])
        widths = [max(map(len, column)) for column in columns]
        for word, (index, *cells) in zip(words, zip(*columns, strict=True), strict=True):
            padded = isolate_direction(word) + " " * (word_width - display_width(word))
            rest = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
            yield f"{index:>{widths[0]}}  {padded}{rest}"

    def _format_agreement(self) -> Iterator[str]:
        yield "rank correlation of the magnitudes (Spearman):"
        for (first, second), value in self.correlations.items():
            text = f"undefined (one method has equal scores for all {self.unit}s)" if value is None else f"{value:.2f}"
            yield f"  {first}, {second}: {text}"


def rank_correlation(first: Float[np.ndarray, " words"], second: Float[np.ndarray, " words"]) -> float | None:
    """Return Spearman's rank correlation with mean ranks for ties, or None if all values of one side are equal."""
    one, other = (values - values.mean() for values in (ranks(first), ranks(second)))
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float(one @ other) / size if size else None


def ranks(values: Float[np.ndarray, " words"]) -> Float[np.ndarray, " words"]:
    """Return the rank of each value from 1; ties get their mean rank."""
    order = np.argsort(values, kind="stable")
    ends = [0, *(np.flatnonzero(np.diff(values[order])) + 1).tolist(), len(values)]
    mean_ranks = np.empty(len(values))
    for start, end in pairwise(ends):
        mean_ranks[order[start:end]] = (start + 1 + end) / 2
    return mean_ranks


def rollout(layers: Float[np.ndarray, "layers positions positions"]) -> Float[np.ndarray, "positions positions"]:
    """Compute attention rollout from the first to the last layer, for all positions (Abnar and Zuidema 2020).

    `regard.attention.analysis.rollout` computes one row of it in linear memory.
    """
    joint_attention = np.eye(len(layers[0]))
    for weights in layers:
        joint_attention = RESIDUAL * joint_attention + (1 - RESIDUAL) * (weights @ joint_attention)
    return joint_attention
