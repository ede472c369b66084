"""The record of a tagged sentence, for the server's description of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpanRecord:
    """Words from the first to the last, what they are, and their text."""

    type: str
    first: int
    last: int
    text: str


@dataclass(frozen=True)
class TagRecord:
    """The tags of the words of a text; weights are how much attention each word received."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    spans: list[SpanRecord]
    weights: list[float] | None = None
