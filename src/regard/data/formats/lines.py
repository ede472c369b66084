r"""Read lines of UTF-8 text from a file, a gzipped file or standard input.

Only \n ends a line. Other Unicode line separators (U+2028, U+0085, form feed) stay inside
the line; otherwise line n of one file might no longer correspond to line n of another.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import PurePath
from typing import NamedTuple, cast

from regard.errors import RegardError

Path = str | os.PathLike[str]
"""Path of a file; `-` is standard input."""

MAX_LINE_BYTES = 2**24
"""Maximum line length in bytes: a longer line is probably not text, and could exhaust memory."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP_MARK = b"\x1f\x8b"


class NumberedPair(NamedTuple):
    """A pair and its line number in the file (entry number, in a file without lines)."""

    number: int
    source: str
    target: str


def guess_format(path: Path, formats_by_ending: Mapping[str, str], alternative: str | None = None) -> str:
    """Infer the format of a file from its extension; TSV for standard input."""
    if os.fspath(path) == "-":
        return "tsv"
    name = PurePath(path)
    ending = (PurePath(name.stem).suffix if name.suffix.lower() == ".gz" else name.suffix).lower()
    if ending not in formats_by_ending:
        hint = "" if alternative is None else f"; {alternative}"
        raise RegardError(
            f"{format_path(path)}: cannot infer the format from the file name; pass --data.format, "
            f"or use one of {', '.join(sorted(formats_by_ending))}{hint}"
        )
    return formats_by_ending[ending]


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, stripped of surrounding whitespace; an empty line gives an empty text."""
    for _, text in iter_numbered_lines(path):
        yield text.strip()


def iter_numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield every line with its number, counted from 1, without its \n or \r\n."""
    with open_input(path) as file:
        for number, raw in iter_raw_lines(file, format_path(path)):
            yield number, decode_bytes(raw, f"{format_path(path)}, line {number}").removesuffix("\n").removesuffix("\r")


def iter_raw_lines(file: BufferedIOBase, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield every line of an open file with its number, as bytes, without a byte order mark."""
    number = 0
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raise RegardError(
                f"{name}, line {number}: line is longer than {MAX_LINE_BYTES:,} bytes; expected one text per line"
            )
        if number == 1:
            if raw.startswith(UTF_16_MARKS):
                raise RegardError(f"{name}, line 1: looks like UTF-16; save the file as UTF-8")
            if raw.startswith(GZIP_MARK):
                raise RegardError(f"{name} is gzipped; rename it to end in .gz, or decompress it")
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        yield number, raw


def decode_bytes(raw: bytes, location: str, charset: str = "UTF-8") -> str:
    """Decode bytes; raise a `RegardError` that names the first invalid byte."""
    if b"\0" in raw:
        raise RegardError(f"{location}: byte {raw.index(0) + 1} is 0x00, which is not text; save the file as UTF-8")
    try:
        return raw.decode(charset)
    except UnicodeError as error:
        index = getattr(error, "start", 0)
        raise RegardError(
            f"{location}: byte {index + 1} (0x{raw[index]:02x}) is not valid {charset}; save the file as {charset}"
        ) from None


@contextmanager
def open_input(path: Path) -> Iterator[BufferedIOBase]:
    """Open a file to read decompressed bytes; errors are raised as `RegardError`, also while reading."""
    name = format_path(path)
    if "\0" in name:
        raise RegardError(f"{quote_text(name)} is not a valid file name: it contains the byte 0x00")
    try:
        if os.fspath(path) == "-":
            yield cast(BufferedIOBase, sys.stdin.buffer)
        elif PurePath(path).suffix.lower() == ".gz":
            with gzip.open(path, "rb") as unzipped:
                yield unzipped
        else:
            with open(path, "rb") as file:
                yield file
    except FileNotFoundError:
        raise RegardError(f"cannot read {name}: not found") from None
    except IsADirectoryError:
        raise RegardError(f"cannot read {name}: expected a file, got a folder") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RegardError(f"{name} is corrupt: not a complete gzip file ({error})") from None
    except OSError as error:
        raise RegardError(f"cannot read {name}: {error.strerror or error}") from None


def format_path(path: Path) -> str:
    """Return the name of a file for a message."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def quote_text(text: str, max_length: int = 60) -> str:
    """Quote a text for a message: on one line, truncated, without control characters."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: max_length + 1])
    return f'"{plain}"' if len(plain) <= max_length else f'"{plain[: max_length - 1]}…"'
