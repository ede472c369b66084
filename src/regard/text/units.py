"""Split a text into units for display: words, or tokens if these are not parts of words or characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from regard.text.normal_forms import compose, count_parts
from regard.text.tokenizer import Kind, Tokenizer

SUBWORD_KINDS: tuple[Kind, ...] = ("bpe", "bytes", "unigram")
"""Kinds whose tokens are mostly parts of words."""


class TextUnit(NamedTuple):
    """A word (or a token or composed character, in a text of at most one word) and the indices of its tokens."""

    text: str
    token_indices: tuple[int, ...]
    space_indices: tuple[int, ...] = ()  # whitespace tokens before it, which are removed with it


def get_unit_name(kind: Kind) -> str:
    """Return what the units of a text are called: "character" for a tokenizer of characters, otherwise "word"."""
    return "character" if kind == "characters" else "word"


def split_into_units(
    tokenizer: Tokenizer, text: str, tokens: Sequence[str], words: Sequence[int | None]
) -> list[TextUnit]:
    """Split a text into words if its tokens are parts of words, otherwise into tokens.

    Tokens that are parts of characters are joined to composed characters.
    """
    names = text.split()
    if tokenizer.kind not in SUBWORD_KINDS or len(names) < 2:
        return join_parts(tokenizer, tokens)
    units: list[TextUnit] = []
    spaces: tuple[int, ...] = ()
    for word, group in groupby(range(len(tokens)), words.__getitem__):
        if word is None:
            spaces = tuple(group)
        else:
            units.append(TextUnit(names[word], tuple(group), spaces))
            spaces = ()
    return units


def join_parts(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[TextUnit]:
    """Return a unit for each composed character if tokens are parts of characters, otherwise for each token."""
    counts = count_parts(tokens) if has_parts(tokenizer) else [1] * len(tokens)
    units: list[TextUnit] = []
    start = 0
    for count in counts:
        name = compose("".join(tokens[start : start + count]), tokenizer.steps.normal_form)
        units.append(TextUnit(name, tuple(range(start, start + count))))
        start += count
    return units


def has_parts(tokenizer: Tokenizer) -> bool:
    """Return whether tokens are characters of which several can compose to one."""
    return tokenizer.kind == "characters" and tokenizer.steps.takes_apart
