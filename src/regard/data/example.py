"""Examples: a source text with its target text, and a text with links between its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Links = frozenset[tuple[int, int]]
"""Links between words, as pairs of indices counted from 0.

The first index is the word to look at, in the source. What looks there depends on the task: in a pair the
second index is a target word; in a labeled text, one of its labels; in a tagged sentence, the word whose
tag is decided; in a text, the word whose successor is decided.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A source text and its target text, with their word alignment if known."""

    source: str
    target: str
    links: Links | None = None


class Contrast(NamedTuple):
    """A word of a text, and the word that would be wrong in its place: the form *were* after a singular subject."""

    word: int  # index of the word, from 0
    wrong: str


@dataclass(frozen=True, slots=True)
class LinkedText:
    """A text for a language model, with gold links and contrasts; its words are separated by spaces."""

    text: str
    links: Links
    contrasts: tuple[Contrast, ...] = ()
