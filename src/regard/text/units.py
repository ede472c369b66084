"""A text as units that a reader takes in: its words, or its tokens where these are no parts of words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from regard.text.tokenizer import Kind

OF_SUBWORDS: tuple[Kind, ...] = ("bpe", "bytes", "unigram")
"""Kinds of tokens that are mostly parts of words."""


class Unit(NamedTuple):
    """A word, or a token of a text that has no more than one word, and where its tokens stand."""

    text: str
    places: tuple[int, ...]
    spaces: tuple[int, ...] = ()  # tokens of no word before it, which are left out with it


def units_of(kind: Kind, written: str, tokens: Sequence[str], words: Sequence[int | None]) -> list[Unit]:
    """A text as words where its tokens are parts of them, otherwise its tokens."""
    names = written.split()
    if kind not in OF_SUBWORDS or len(names) < 2:
        return [Unit(token, (place,)) for place, token in enumerate(tokens)]
    found: list[Unit] = []
    spaces: tuple[int, ...] = ()
    for word, group in groupby(range(len(tokens)), words.__getitem__):
        if word is None:
            spaces = tuple(group)
        else:
            found.append(Unit(names[word], tuple(group), spaces))
            spaces = ()
    return found
