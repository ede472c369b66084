"""Example: what is to be learnt, as text."""

from __future__ import annotations

from dataclasses import dataclass

Links = frozenset[tuple[int, int]]
"""Which words answer each other: (place in the source, place in the target), counted from 0."""


@dataclass(frozen=True, slots=True)
class Example:
    """A source text and the target that answers it, with the links between their words where they are known."""

    source: str
    target: str
    links: Links | None = None
