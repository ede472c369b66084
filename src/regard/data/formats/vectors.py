"""Read word vectors in the text format of word2vec and GloVe, with or without a `count width` line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.formats.lines import (
    MAX_LINE_BYTES,
    Path,
    decode_bytes,
    format_path,
    iter_raw_lines,
    open_input,
    quote_text,
)
from regard.errors import RegardError

BLOCK = 1024  # lines parsed at once
SPACE = b" \t\r\n"
MAX_DIGITS = 12  # of count and width in the first line; a longer number is a word
UNKNOWN_WORDS = ("<unk>", "<UNK>")
"""Entries for unknown words in vector files; they are skipped, because the unknown words here are different ones."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Distinct words and their vectors."""

    words: tuple[str, ...]
    table: Float[Tensor, "rows width"]  # row 0 is zero, for words without a vector
    announced: int | None = None  # count in the first line of the file, if it is wrong

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return self.table.shape[1]


@dataclass(frozen=True)
class VectorRow:
    """A word and its unparsed values."""

    line: int
    word: str
    raw_values: bytes


def read_vectors(path: Path, progress: Callable[[int], object] = lambda _: None) -> WordVectors:
    """Read the vectors of a file.

    Repeated words keep their first vector. Entries for unknown words and entries that contain a space are skipped.

    Args:
        path: File to read; a name ending in .gz is decompressed.
        progress: Callback that receives the number of words read so far.

    Raises:
        RegardError: The file cannot be read, or a line is not a word and its values.
    """
    name = format_path(path)
    words: dict[str, None] = {}
    blocks: list[Float[np.ndarray, "some width"]] = []
    rows: list[VectorRow] = []
    count = block_bytes = 0

    def read_block() -> None:
        blocks.append(parse_vector_rows(rows, width, name))
        rows.clear()
        progress(len(words))

    with open_input(path) as file:
        announced, width, lines = parse_first_line(file, name)
        for number, raw in lines:
            count += 1
            row = parse_vector_row(raw, number, width, name)
            if row is None or row.word in words or row.word in UNKNOWN_WORDS:
                continue
            words[row.word] = None
            rows.append(row)
            block_bytes += len(row.raw_values)
            if len(rows) == BLOCK or block_bytes > MAX_LINE_BYTES:
                read_block()
                block_bytes = 0
        if not words:
            raise RegardError(f"{name}: no words; expected lines of a word and its values")
        read_block()
    return WordVectors(tuple(words), stack_blocks(blocks, width), None if announced == count else announced)


def parse_first_line(file: BufferedIOBase, name: str) -> tuple[int | None, int, Iterator[tuple[int, bytes]]]:
    """Return the announced number of words (or None), the vector dimension, and the lines with words."""
    lines = ((number, raw) for number, raw in iter_raw_lines(file, name) if raw.strip(SPACE))
    first = next(lines, None)
    if first is None:
        raise RegardError(f"{name} is empty: expected lines of a word and its values")
    number, raw = first
    parts = split_fields(raw)
    if len(parts) == 2 and all(part.isdigit() and len(part) <= MAX_DIGITS for part in parts):
        if int(parts[1]) < 1:
            raise RegardError(f"{name}, line {number}: the vector dimension must be at least 1, got {int(parts[1])}")
        return int(parts[0]), int(parts[1]), lines
    if len(parts) < 2:
        raise RegardError(
            f"{name}, line {number}: expected a word and its values, separated by spaces, "
            f"got {quote_text(raw.decode('utf-8', 'replace').strip())}"
        )

    def all_lines() -> Iterator[tuple[int, bytes]]:
        yield number, raw
        yield from lines

    return None, len(parts) - 1, all_lines()


def split_fields(raw: bytes) -> list[bytes]:
    """Split a line at spaces and tabs; other Unicode whitespace may be part of a word."""
    return [part for part in raw.strip(SPACE).replace(b"\t", b" ").split(b" ") if part]


def parse_vector_row(raw: bytes, line: int, width: int, name: str) -> VectorRow | None:
    """Split a line into a word and its values; None for an entry that contains a space."""
    raw = raw.rstrip(SPACE)
    word, _, raw_values = raw.partition(b" ")
    if not word or b"\t" in raw or raw_values.count(b" ") != width - 1:
        word, *rest = split_fields(raw)
        if len(rest) > width and not all(is_finite_float(part) for part in rest[:-width]):
            return None
        if len(rest) != width:
            raise RegardError(
                f"{name}, line {line}: expected {width} values, as in the first line, "
                f"got {len(rest)} for {quote_text(word.decode('utf-8', 'replace'))}"
            )
        raw_values = b" ".join(rest)
    return VectorRow(line, decode_bytes(word, f"{name}, line {line}"), raw_values)


def parse_vector_rows(rows: list[VectorRow], width: int, name: str) -> Float[np.ndarray, "rows width"]:
    """Parse the values of rows."""
    values = parse_floats(b" ".join(row.raw_values for row in rows))
    if len(values) != len(rows) * width or not np.isfinite(values).all():
        for row in rows:
            check_vector_row(row, name)
    return values.reshape(len(rows), width)


def parse_floats(text: bytes) -> Float[np.ndarray, " numbers"]:
    """Parse numbers separated by spaces; stop at the first invalid one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by numpy at an invalid number
        try:
            return np.fromstring(text.decode("ascii"), dtype=np.float32, sep=" ")
        except ValueError:
            return np.zeros(0, dtype=np.float32)


def is_finite_float(text: bytes) -> bool:
    """Return whether a text is a single finite number."""
    values = parse_floats(text)
    return len(values) == 1 and bool(np.isfinite(values[0]))


def check_vector_row(row: VectorRow, name: str) -> None:
    """Raise a `RegardError` if a value of a row is not a finite number."""
    for part in row.raw_values.split(b" "):
        if not is_finite_float(part):
            raise RegardError(
                f"{name}, line {row.line}: expected a finite number for {quote_text(row.word)}, "
                f"got {quote_text(part.decode('utf-8', 'replace'))}"
            )


def stack_blocks(blocks: list[Float[np.ndarray, "some width"]], width: int) -> Float[Tensor, "rows width"]:
    """Concatenate blocks after a row of zeros; blocks are freed as they are copied, because they can be large."""
    table = torch.empty(1 + sum(map(len, blocks)), width)
    table[0] = 0
    start = 1
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        table[start : start + len(block)] = torch.from_numpy(block)
        start += len(block)
    return table
