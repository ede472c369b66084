"""The units of table columns: letters, words or whole tokens such as N;DAT;PL, chosen by looking at the cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from regard.text.choose import FEW_SYMBOLS, FEW_WORDS, SEEN_OFTEN, SHORT_CHARACTERS, TextStatistics, choose_kind
from regard.text.tokenizer import Kind

TOKENS = "tokens"
UNITS: dict[str, Kind] = {
    "letters": "characters",
    TOKENS: "words",
    "words": "words",
    "bpe": "bpe",
    "unigram": "unigram",
    "bytes": "bytes",
}
"""Unit of a column -> kind of its tokenizer. Tokens may be separated by one of `SEPARATORS`, words by spaces."""

SEPARATORS = (";", "|", ",")
MIN_SEPARATED = 0.2  # share of cells with a separator from which its column has several tokens per cell
SEEN_SEPARATED = 3  # how often each of several tokens must be seen, on average
MAX_TAGS = 100  # up to this many distinct cells, each seen SEEN_OFTEN times, are tags
MAX_SHARED = 0.5  # share of the letters of a tag that may also be in the texts beside it


class ColumnUnit(NamedTuple):
    """The unit of a column, with the kind of its tokenizer and what separates its tokens, if not spaces."""

    unit: str  # a key of `UNITS`
    separator: str | None = None

    @property
    def kind(self) -> Kind:
        """The kind of the tokenizer."""
        return UNITS[self.unit]

    def __str__(self) -> str:
        if self.unit != TOKENS:
            return self.unit
        return "whole tokens" if self.separator is None else f"whole tokens separated by {self.separator}"


def choose_column_unit(cells: Sequence[str], beside: Sequence[str]) -> ColumnUnit:
    """Choose the unit of one of several columns.

    A column has whole tokens if a separator (`;`, `|` or `,`) splits its cells into tokens that repeat, or if it has
    few distinct cells that do not look like the texts beside them: tags. It has letters if its cells are short and look
    like these texts; otherwise the unit is that of `choose_kind`.

    Args:
        cells: All cells of the column.
        beside: The text of another column in each row: the target, for a column of the source.
    """
    if (separator := find_separator(cells)) is not None:
        return ColumnUnit(TOKENS, separator)
    if has_tags(cells, beside):
        return ColumnUnit(TOKENS)
    if is_short(cells) and compute_shared_letters(cells, beside) >= MAX_SHARED:
        return ColumnUnit("letters")
    kind = choose_kind(cells).kind
    return ColumnUnit("letters" if kind == "characters" else kind)


def resolve_unit(unit: str, cells: Sequence[str]) -> ColumnUnit:
    """Return a given unit; for tokens, with the separator that splits some of the cells, if there is one."""
    if unit != TOKENS:
        return ColumnUnit(unit)
    counts = {separator: sum(separator in cell for cell in cells) for separator in SEPARATORS}
    best = max(counts, key=counts.__getitem__)
    return ColumnUnit(TOKENS, best if counts[best] >= max(1, MIN_SEPARATED * len(cells)) else None)


def find_separator(cells: Sequence[str]) -> str | None:
    """Return the character that splits the cells into tokens that repeat, or None."""
    for separator in SEPARATORS:
        if sum(separator in cell for cell in cells) < max(1, MIN_SEPARATED * len(cells)):
            continue
        tokens = Counter(token.strip() for cell in cells for token in cell.split(separator))
        if len(tokens) <= FEW_SYMBOLS and tokens.total() >= SEEN_SEPARATED * len(tokens):
            return separator
    return None


def has_tags(cells: Sequence[str], beside: Sequence[str]) -> bool:
    """Return whether cells are tags: single words, few distinct ones, that do not look like the texts beside them."""
    distinct = set(cells)
    return (
        len(distinct) <= MAX_TAGS
        and len(cells) >= SEEN_OFTEN * len(distinct)
        and all(len(cell.split()) == 1 for cell in distinct)
        and compute_shared_letters(cells, beside) < MAX_SHARED
    )


def has_spaced_tokens(cells: Sequence[str], beside: Sequence[str]) -> bool:
    """Return whether cells are tokens separated by spaces that repeat, unlike the texts beside them: V IND PST."""
    words = TextStatistics(cells).words
    return (
        sum(len(cell.split()) > 1 for cell in cells) >= max(1, MIN_SEPARATED * len(cells))
        and len(words) <= FEW_SYMBOLS
        and words.total() >= SEEN_SEPARATED * len(words)
        and compute_shared_letters(cells, beside) < MAX_SHARED
    )


def is_short(cells: Sequence[str]) -> bool:
    """Return whether cells are a few short words on average."""
    counts = TextStatistics(cells)
    return counts.running_words <= FEW_WORDS * len(cells) and counts.characters <= SHORT_CHARACTERS * len(cells)


def compute_shared_letters(cells: Sequence[str], beside: Sequence[str]) -> float:
    """Return the mean share of the characters of a cell that are also in the text beside it."""
    shares = [
        sum(letter in text for letter in cell) / len(cell) for cell, text in zip(cells, beside, strict=True) if cell
    ]
    return sum(shares) / max(1, len(shares))
