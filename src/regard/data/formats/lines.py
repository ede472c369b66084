r"""Files as lines of text: UTF-8, gzipped or not, from a path or from standard input.

Only \n ends a line. What Unicode also calls the end of a line (U+2028, U+0085, a form
feed) stays inside, or line n of one file would no longer answer line n of another.
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
"""Where a file lies; `-` is standard input."""

LONGEST = 2**24
"""How many bytes a line may have: what is longer is no text, and would fill the memory."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP_MARK = b"\x1f\x8b"


class Found(NamedTuple):
    """A pair as a file has it, and the number of its line there (of its entry, in a file without lines)."""

    place: int
    source: str
    target: str


def format_by_name(path: Path, endings: Mapping[str, str], otherwise: str | None = None) -> str:
    """The format that the name of a file tells, by how it ends; TSV from standard input."""
    if os.fspath(path) == "-":
        return "tsv"
    name = PurePath(path)
    ending = (PurePath(name.stem).suffix if name.suffix.lower() == ".gz" else name.suffix).lower()
    if ending not in endings:
        say = "say which it has (--data.format tsv)"
        raise RegardError(
            f"{shown(path)}: its name does not tell its format; end it in {', '.join(sorted(endings))}, "
            + (f"or {say}" if otherwise is None else f"{say}, or, {otherwise}")
        )
    return endings[ending]


def read_lines(path: Path) -> Iterator[str]:
    """One text a line, without the whitespace around it; an empty line is an empty text."""
    for _, text in numbered_lines(path):
        yield text.strip()


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Every line with its number, counted from 1, without its \n or \r\n."""
    with opened(path) as file:
        for number, raw in raw_lines(file, shown(path)):
            yield number, decoded(raw, f"{shown(path)}, line {number}").removesuffix("\n").removesuffix("\r")


def raw_lines(file: BufferedIOBase, name: str) -> Iterator[tuple[int, bytes]]:
    """Every line of an open file with its number, as bytes; a byte order mark at the start is left out."""
    number = 0
    while raw := file.readline(LONGEST):
        number += 1
        if len(raw) == LONGEST and not raw.endswith(b"\n"):
            raise RegardError(f"{name}, line {number}: has more than {LONGEST} bytes; one text a line is expected")
        if number == 1:
            if raw.startswith(UTF_16_MARKS):
                raise RegardError(f"{name}, line 1: begins like UTF-16; save the file as UTF-8")
            if raw.startswith(GZIP_MARK):
                raise RegardError(f"{name}: is gzip; let its name end in .gz, or unzip it")
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        yield number, raw


def decoded(raw: bytes, where: str, charset: str = "UTF-8") -> str:
    """Bytes as text, or a `RegardError` that names the first byte that is none."""
    if b"\0" in raw:
        raise RegardError(f"{where}: byte {raw.index(0) + 1} is 0x00, which text never holds; save the file as UTF-8")
    try:
        return raw.decode(charset)
    except UnicodeError as error:
        place = getattr(error, "start", 0)
        raise RegardError(
            f"{where}: byte {place + 1} is 0x{raw[place]:02x}, which is no {charset} there; save the file as {charset}"
        ) from None


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """A file to read bytes from, unzipped; what goes wrong with it is a `RegardError`, here and while it is read."""
    name = shown(path)
    if "\0" in name:
        raise RegardError(f"{quoted(name)}: is no file's name; it holds the byte 0x00")
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
        raise RegardError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise RegardError(f"{name}: is a folder; a file is needed") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RegardError(f"{name}: is no whole gzip file ({error}); make or fetch it again") from None
    except OSError as error:
        raise RegardError(f"{name}: cannot be read ({error.strerror or error})") from None


def shown(path: Path) -> str:
    """The name of a file in a message."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def quoted(text: str, most: int = 60) -> str:
    """Some text in a message: one line, not too long, nothing a terminal would obey."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: most + 1])
    return f'"{plain}"' if len(plain) <= most else f'"{plain[: most - 1]}…"'
