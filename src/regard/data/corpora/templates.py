"""Templates of the built-in corpora: sentences with slots, and with marks on the words that decide.

A `*` marks the word before it, and digits after the `*` say what the word decides: `the {noun}* slept*1`.
The mark of a slot goes to the last word of the phrase that fills it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from regard.data.corpora.base import sample_item


class MarkedWord(NamedTuple):
    """A word and its marks: the digits after the `*`, or None without a `*`."""

    text: str
    marks: str | None = None


def fill_template(random: Random, template: str, slots: Mapping[str, Sequence[str]]) -> list[MarkedWord]:
    """Fill each slot of a template with a random phrase; return all words with their marks."""
    words: list[MarkedWord] = []
    for piece in template.split():
        text, star, marks = piece.partition("*")
        phrase = sample_item(random, slots[text[1:-1]]).split() if text.startswith("{") else [text]
        words += [MarkedWord(word) for word in phrase[:-1]]
        words.append(MarkedWord(phrase[-1], marks if star else None))
    return words


def find_marked(words: Sequence[MarkedWord]) -> list[int]:
    """Return the indices of marked words."""
    return [index for index, word in enumerate(words) if word.marks is not None]


def join_words(words: Sequence[MarkedWord]) -> str:
    """Return the words as a text."""
    return " ".join(word.text for word in words)
