"""Sentences with a tag for every word, from files of columns as the CoNLL tasks have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from regard.data.formats.lines import Path, numbered_lines, quoted, shown
from regard.data.formats.tables import as_number, counted
from regard.errors import RegardError

DOCUMENT_START = "-DOCSTART-"


@dataclass(frozen=True, slots=True)
class Tagged:
    """The words of a sentence and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.tags):
            raise RegardError(f"Tagged: found {len(self.words)} words, {len(self.tags)} tags; each word has one tag")


def read_tagged(path: Path, columns: Sequence[str | int] | None = None) -> Iterator[Tagged]:
    """The sentences of a file, one after another: a word a line, blank lines between sentences.

    Columns have tabs between them, or spaces where no tabs are. The first is the word and the last
    its tag, unless `columns` gives the numbers of both, counted from 1. A line that begins with #
    and has not as many columns as the others is a comment; -DOCSTART- ends a sentence and is no word.

    Args:
        path: The file; a name that ends in .gz is unzipped, `-` is standard input.
        columns: The numbers of the columns of word and tag.
    """
    places = None if columns is None else column_numbers(columns)
    words: list[str] = []
    tags: list[str] = []
    for row in rows(path):
        if row is not None:
            word, tag = word_and_tag(*row, places)
            words.append(word)
            tags.append(tag)
        elif words:
            yield Tagged(tuple(words), tuple(tags))
            words, tags = [], []


def column_numbers(columns: Sequence[str | int]) -> tuple[int, int]:
    """The numbers of the columns of word and tag."""
    numbers = [as_number(column) or 0 for column in columns]
    if len(numbers) != 2 or min(numbers) < 1:
        found = ", ".join(map(str, columns))
        raise RegardError(f"data.columns: found {found}; the numbers of word and tag are needed, as in 1,4")
    return numbers[0], numbers[1]


def rows(path: Path) -> Iterator[tuple[str, list[str]] | None]:
    """Where each word stands and the columns of its line; None where a sentence ends."""
    lines, before = numbered_lines(path), list[tuple[int, str]]()
    first, example = 0, ""
    for number, text in lines:
        before.append((number, text))
        if text.strip() and not text.startswith(("#", DOCUMENT_START)):
            first, example = number, text
            break
    tabs = "\t" in example
    width = len(cells_of(example, tabs))
    for number, text in chain(before, lines):
        cells = cells_of(text, tabs)
        if not text.strip() or text.startswith(DOCUMENT_START):
            yield None
        elif len(cells) == width:
            yield f"{shown(path)}, line {number}", cells
        elif not text.startswith("#"):
            raise RegardError(
                f"{shown(path)}, line {number}: found {counted(len(cells), tabs=False)}, {quoted(text)}; "
                f"line {first} has {width}"
            )
    yield None


def cells_of(text: str, tabs: bool) -> list[str]:
    """The columns of a line, with a tab or spaces between them."""
    return [cell.strip() for cell in text.split("\t")] if tabs else [cell for cell in text.split(" ") if cell]


def word_and_tag(where: str, cells: Sequence[str], places: tuple[int, int] | None) -> tuple[str, str]:
    """The word and its tag: first and last of the columns, unless numbers tell."""
    if len(cells) < 2:
        raise RegardError(f"{where}: found 1 column, {quoted(cells[0])}; a word and its tag make 2")
    if places is not None and max(places) > len(cells):
        raise RegardError(f"{where}: found {len(cells)} columns; column {max(places)} is wanted")
    word, tag = (cells[0], cells[-1]) if places is None else (cells[places[0] - 1], cells[places[1] - 1])
    if not word or not tag:
        raise RegardError(f"{where}: the {'tag' if word else 'word'} is empty; each word has one tag")
    return word, tag
