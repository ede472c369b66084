"""Vectors of words as word2vec and GloVe write them: a word and its numbers a line, maybe `count width` before all."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.formats.lines import Path, decoded, opened, quoted, raw_lines, shown
from regard.errors import RegardError

BLOCK = 1024  # lines whose numbers are read at once
SPACE = b" \t\r\n"
MOST_DIGITS = 12  # of how many words there are, and numbers of each; what has more is a word
NO_WORDS = ("<unk>", "<UNK>")
"""What stands for all words that are not known; those that are not known here are others."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """Words, each once, and a vector for each."""

    words: tuple[str, ...]
    table: Float[Tensor, "rows width"]  # the first row is nothing, for words without a vector
    announced: int | None = None  # how many the file says that it has, where it has not as many

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.table.shape[1]


@dataclass(frozen=True)
class Row:
    """A word and the numbers behind it, not read yet."""

    line: int
    word: str
    numbers: bytes


def read_vectors(path: Path, show: Callable[[int], object] = lambda _: None) -> Vectors:
    """The vectors of a file; of a word that it has twice the first.

    What stands for unknown words, and entries with a space in them, which no word has, are left out. `show` is told
    how many there are so far.
    """
    name = shown(path)
    words: dict[str, None] = {}
    blocks: list[Float[np.ndarray, "some width"]] = []
    rows: list[Row] = []
    count = 0

    def read_block() -> None:
        blocks.append(numbers_of(rows, width, name))
        rows.clear()
        show(len(words))

    with opened(path) as file:
        announced, width, lines = beginning(file, name)
        for number, raw in lines:
            count += 1
            row = row_of(raw, number, width, name)
            if row is None or row.word in words or row.word in NO_WORDS:
                continue
            words[row.word] = None
            rows.append(row)
            if len(rows) == BLOCK:
                read_block()
        if not words:
            raise RegardError(f"{name}: there is no word in it; lines of a word and its numbers are needed")
        read_block()
    return Vectors(tuple(words), below_nothing(blocks, width), None if announced == count else announced)


def beginning(file: BufferedIOBase, name: str) -> tuple[int | None, int, Iterator[tuple[int, bytes]]]:
    """How many words there are, if the file says so, how many numbers each has, and all lines of words."""
    lines = ((number, raw) for number, raw in raw_lines(file, name) if raw.strip(SPACE))
    first = next(lines, None)
    if first is None:
        raise RegardError(f"{name}: is empty; lines of a word and its numbers are needed")
    number, raw = first
    parts = parts_of(raw)
    if len(parts) == 2 and all(part.isdigit() and len(part) <= MOST_DIGITS for part in parts):
        if int(parts[1]) < 1:
            raise RegardError(f"{name}, line {number}: says that a vector has {int(parts[1])} numbers; 1 is the least")
        return int(parts[0]), int(parts[1]), lines
    if len(parts) < 2:
        raise RegardError(
            f"{name}, line {number}: found {quoted(raw.decode('utf-8', 'replace').strip())}; "
            "a word and its numbers are needed, with spaces between"
        )

    def all_lines() -> Iterator[tuple[int, bytes]]:
        yield number, raw
        yield from lines

    return None, len(parts) - 1, all_lines()


def parts_of(raw: bytes) -> list[bytes]:
    """What stands in a line, between spaces or tabs; other whitespace of Unicode may be part of a word."""
    return [part for part in raw.strip(SPACE).replace(b"\t", b" ").split(b" ") if part]


def row_of(raw: bytes, line: int, width: int, name: str) -> Row | None:
    """A line as a word and its numbers; None for an entry with a space in it."""
    raw = raw.rstrip(SPACE)
    word, _, numbers = raw.partition(b" ")
    if not word or b"\t" in raw or numbers.count(b" ") != width - 1:
        word, *rest = parts_of(raw)
        if len(rest) > width and not all(is_number(part) for part in rest[:-width]):
            return None
        if len(rest) != width:
            raise RegardError(
                f"{name}, line {line}: {quoted(word.decode('utf-8', 'replace'))} has {len(rest)} numbers; "
                f"{width} are needed, as in the first line"
            )
        numbers = b" ".join(rest)
    return Row(line, decoded(word, f"{name}, line {line}"), numbers)


def numbers_of(rows: list[Row], width: int, name: str) -> Float[np.ndarray, "rows width"]:
    """The numbers of some rows."""
    found = read_numbers(b" ".join(row.numbers for row in rows))
    if len(found) != len(rows) * width or not np.isfinite(found).all():
        for row in rows:
            refuse_odd(row, name)
    return found.reshape(len(rows), width)


def read_numbers(text: bytes) -> Float[np.ndarray, " numbers"]:
    """The numbers of a text, with spaces between; fewer if something else is among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that of a text which is not read to its end
        try:
            return np.fromstring(text.decode("ascii"), dtype=np.float32, sep=" ")
        except ValueError:
            return np.zeros(0, dtype=np.float32)


def is_number(text: bytes) -> bool:
    """Whether a text is one number, and a finite one."""
    found = read_numbers(text)
    return len(found) == 1 and bool(np.isfinite(found[0]))


def refuse_odd(row: Row, name: str) -> None:
    """Raise a `RegardError` if not all numbers of a row are such."""
    for part in row.numbers.split(b" "):
        if not is_number(part):
            raise RegardError(
                f"{name}, line {row.line}: {quoted(row.word)} has {quoted(part.decode('utf-8', 'replace'))} "
                "among its numbers; finite numbers such as -0.25 are needed"
            )


def below_nothing(blocks: list[Float[np.ndarray, "some width"]], width: int) -> Float[Tensor, "rows width"]:
    """All blocks below each other, behind a row of zeros; each is given up once it is copied, as they may be large."""
    table = torch.empty(1 + sum(map(len, blocks)), width)
    table[0] = 0
    place = 1
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        table[place : place + len(block)] = torch.from_numpy(block)
        place += len(block)
    return table
