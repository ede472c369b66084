"""Read sentences with one tag per word from column files in the format of the CoNLL tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from regard.data.example import Links
from regard.data.formats.lines import Path, format_path, iter_numbered_lines, quote_text
from regard.data.formats.tables import format_column_count, parse_column_number
from regard.errors import RegardError

DOCUMENT_START = "-DOCSTART-"


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The words of a sentence and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    links: Links | None = field(default=None, repr=False)  # (word, word): the words that decide a tag, if known

    def __post_init__(self) -> None:
        if len(self.words) != len(self.tags):
            raise RegardError(f"expected one tag per word, got {len(self.words)} words and {len(self.tags)} tags")


def read_tagged(
    path: Path, columns: Sequence[str | int] | None = None, *, parse_tag: Callable[[str], object] | None = None
) -> Iterator[TaggedSentence]:
    """Yield the tagged sentences of a file with one word per line and blank lines between sentences.

    Columns are separated by tabs, or by spaces if there are no tabs. A line that starts with # and
    has a different number of columns is a comment. A -DOCSTART- line ends a sentence.

    Args:
        path: File to read; a name ending in .gz is decompressed, `-` is standard input.
        columns: Column numbers of word and tag, counted from 1. By default the first and the last column.
        parse_tag: A function that raises a `RegardError` for a tag to refuse, such as `schemes.parse_tag`.

    Yields:
        One `TaggedSentence` per sentence.

    Raises:
        RegardError: `columns` is invalid, or a line cannot be read.

    Example:
        >>> sentences = list(read_tagged("train.conll", columns=(1, 4)))
    """
    word_tag_columns = None if columns is None else parse_column_numbers(columns)
    words: list[str] = []
    tags: list[str] = []
    for row in iter_rows(path):
        if row is not None:
            word, tag = parse_word_and_tag(*row, word_tag_columns)
            if parse_tag is not None:
                check_tag(row[0], tag, parse_tag)
            words.append(word)
            tags.append(tag)
        elif words:
            yield TaggedSentence(tuple(words), tuple(tags))
            words, tags = [], []


def check_tag(location: str, tag: str, parse_tag: Callable[[str], object]) -> None:
    """Raise a `RegardError` that says where a tag is that cannot be parsed."""
    try:
        parse_tag(tag)
    except RegardError as error:
        raise RegardError(f"{location}: {error}") from None


def parse_column_numbers(columns: Sequence[str | int]) -> tuple[int, int]:
    """Return the column numbers of word and tag."""
    numbers = [parse_column_number(column) or 0 for column in columns]
    if len(numbers) != 2 or min(numbers) < 1:
        listed = ", ".join(map(str, columns))
        raise RegardError(f"data.columns: expected the column numbers of word and tag, as in 1,4, got {listed}")
    return numbers[0], numbers[1]


def iter_rows(path: Path) -> Iterator[tuple[str, list[str]] | None]:
    """Yield the location and the columns of each word; None where a sentence ends."""
    lines, skipped = iter_numbered_lines(path), list[tuple[int, str]]()
    first, example = 0, ""
    for number, text in lines:
        skipped.append((number, text))
        if text.strip() and not text.startswith(("#", DOCUMENT_START)):
            first, example = number, text
            break
    tabs = "\t" in example
    width = len(split_cells(example, tabs))
    for number, text in chain(skipped, lines):
        cells = split_cells(text, tabs)
        if not text.strip() or text.startswith(DOCUMENT_START):
            yield None
        elif len(cells) == width:
            yield f"{format_path(path)}, line {number}", cells
        elif not text.startswith("#"):
            raise RegardError(
                f"{format_path(path)}, line {number}: expected {format_column_count(width, tabs=False)}, "
                f"as in line {first}, got {len(cells)}: {quote_text(text)}"
            )
    yield None


def split_cells(text: str, tabs: bool) -> list[str]:
    """Split a line into columns, at tabs or spaces."""
    return [cell.strip() for cell in text.split("\t")] if tabs else [cell for cell in text.split(" ") if cell]


def parse_word_and_tag(
    location: str, cells: Sequence[str], word_tag_columns: tuple[int, int] | None
) -> tuple[str, str]:
    """Return the word and its tag: the first and last column, or the given ones."""
    if len(cells) < 2:
        raise RegardError(f"{location}: expected at least 2 columns, a word and its tag, got 1: {quote_text(cells[0])}")
    if word_tag_columns is not None and max(word_tag_columns) > len(cells):
        raise RegardError(
            f"{location}: column {max(word_tag_columns)} does not exist; the line has {len(cells)} columns"
        )
    word, tag = (
        (cells[0], cells[-1])
        if word_tag_columns is None
        else (cells[word_tag_columns[0] - 1], cells[word_tag_columns[1] - 1])
    )
    if not word or not tag:
        raise RegardError(f"{location}: the {'tag' if word else 'word'} is empty")
    return word, tag
