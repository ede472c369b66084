"""The JSON record of a tagged sentence, for the server's API schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpanRecord:
    """A span: its type, the indices of its first and last word, and its text."""

    type: str
    first: int
    last: int
    text: str


@dataclass(frozen=True)
class TagRecord:
    """The tags of the words of a text; weights are the attention each word received."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    spans: list[SpanRecord]
    weights: list[float] | None = None
