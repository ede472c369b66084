"""Split a text into units for display: words, or tokens if these are not parts of words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from regard.text.tokenizer import Kind

SUBWORD_KINDS: tuple[Kind, ...] = ("bpe", "bytes", "unigram")
"""Kinds whose tokens are mostly parts of words."""


class TextUnit(NamedTuple):
    """A word (or a token, in a text of at most one word) and the indices of its tokens."""

    text: str
    token_indices: tuple[int, ...]
    space_indices: tuple[int, ...] = ()  # whitespace tokens before it, which are removed with it


def get_unit_name(kind: Kind) -> str:
    """Return what the units of a text are called: "character" for a tokenizer of characters, otherwise "word"."""
    return "character" if kind == "characters" else "word"


def split_into_units(kind: Kind, text: str, tokens: Sequence[str], words: Sequence[int | None]) -> list[TextUnit]:
    """Split a text into words if its tokens are parts of words, otherwise into tokens."""
    names = text.split()
    if kind not in SUBWORD_KINDS or len(names) < 2:
        return [TextUnit(token, (index,)) for index, token in enumerate(tokens)]
    units: list[TextUnit] = []
    spaces: tuple[int, ...] = ()
    for word, group in groupby(range(len(tokens)), words.__getitem__):
        if word is None:
            spaces = tuple(group)
        else:
            units.append(TextUnit(names[word], tuple(group), spaces))
            spaces = ()
    return units
