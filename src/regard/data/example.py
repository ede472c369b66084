"""Example: a source text and its target text."""

from __future__ import annotations

from dataclasses import dataclass

Links = frozenset[tuple[int, int]]
"""Word alignment: pairs (source word index, target word index), counted from 0."""


@dataclass(frozen=True, slots=True)
class Example:
    """A source text and its target text, with their word alignment if known."""

    source: str
    target: str
    links: Links | None = None
