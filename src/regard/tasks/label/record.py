"""The JSON record of a labeled text, for the server's API schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RankedRecord:
    """A label and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class LabelRecord:
    """The labels of a text, with the weights of its words, of a second text, and of the context."""

    text: str
    labels: list[str]
    ranked: list[RankedRecord]
    words: list[str]
    weights: list[float] | None = None
    second_words: list[str] | None = None
    second_weights: list[float] | None = None
    context_weights: list[float] | None = None
