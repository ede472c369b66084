r"""Text as documents, read as a stream: a file, a gzipped one, standard input or a folder of files.

No large file is ever held whole: a document comes in chunks. They are cut before a
whitespace that follows a letter or the like, across which no tokenizer of text looks, so
that cutting them into tokens one by one gives the tokens of the whole.
"""

from __future__ import annotations

import os
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from io import BufferedIOBase, BytesIO, IncrementalNewlineDecoder
from itertools import groupby
from pathlib import Path as FolderPath
from typing import Literal, NamedTuple

from regard.data.formats.lines import BYTE_ORDER_MARK, LONGEST, Path, decoded, opened, raw_lines, shown
from regard.errors import RegardError

Documents = Literal["file", "line", "blank"]
"""What a document is: a whole file, a line that is not empty, or lines up to a blank one."""

CHUNK = 2**16
"""Characters from which on a document is cut: tokenizers are slower with more, and with much less.

A chunk is longer where there is no whitespace, up to `LONGEST` and one block.
"""


class Chunk(NamedTuple):
    """Some text of a document, and whether it is the last of it."""

    text: str
    last: bool


def read_documents(path: Path, documents: Documents = "file") -> Iterator[Chunk]:
    r"""All documents of a text, chunk by chunk; those without any text are left out.

    Every end of a line (\n, \r\n, \r) becomes \n. A line that is a document loses the whitespace around it. Of a
    folder all files are read, those in folders inside too, by the order of their paths, but for hidden ones.
    """
    found = False
    for file in files_of(path):
        for chunk in documents_of(file, documents):
            found = True
            yield chunk
    if not found:
        raise RegardError(f"{shown(path)}: there is no text in it; some is needed")


def files_of(path: Path) -> list[Path]:
    """The file itself, or all files in a folder that are not hidden."""
    if os.fspath(path) == "-" or not os.path.isdir(path):
        return [path]
    found: list[FolderPath] = []
    for folder, inside, names in os.walk(path, onerror=refuse_folder):
        inside[:] = [name for name in inside if not name.startswith(".")]
        found += [FolderPath(folder, name) for name in names if not name.startswith(".")]
    files: list[Path] = [file for file in sorted(found) if file.is_file()]
    if not files:
        raise RegardError(f"{shown(path)}: there are no files in this folder; files of text are needed")
    return files


def refuse_folder(error: OSError) -> None:
    """Raise a `RegardError` for a folder that cannot be looked into."""
    raise RegardError(f"{error.filename}: cannot be read ({error.strerror or error})") from None


def documents_of(path: Path, documents: Documents) -> Iterator[Chunk]:
    """All documents of a file."""
    with opened(path) as file:
        blocks = text_blocks(file, shown(path))
        if documents == "file":
            yield from chunks(blocks)
            return
        for filled, lines in groupby(lines_of(blocks, shown(path)), lambda line: bool(line.strip())):
            if filled and documents == "line":
                yield from (Chunk(line.strip(), True) for line in lines)
            elif filled:
                yield from chunks(line if number == 0 else f"\n{line}" for number, line in enumerate(lines))


def chunks(texts: Iterable[str]) -> Iterator[Chunk]:
    """One document, which comes in parts that may end anywhere; nothing if it is blank."""
    held, begun = "", False
    for text in texts:
        held += text
        if len(held) > CHUNK:
            place = last_gap(held) or (len(held) if len(held) > LONGEST else 0)
            if place:
                yield Chunk(held[:place], False)
                held, begun = held[place:], True
    if begun or held.strip():
        yield Chunk(held, True)


def last_gap(text: str) -> int:
    """The last place where whitespace follows something else; 0 if there is none."""
    end = len(text.rstrip())
    if end < len(text):
        return end
    words = text.rsplit(maxsplit=1)
    return len(words[0]) if len(words) > 1 else 0


def text_blocks(file: BufferedIOBase, name: str) -> Iterator[str]:
    r"""A file as text, some lines at a time, with \n at the end of each; only a very long line is parted."""
    decoder = IncrementalNewlineDecoder(getincrementaldecoder("utf-8")(), translate=True)
    line, rest = 1, b""  # where a block begins, and what of its first line came before
    while raw := file.read(CHUNK) + file.readline(LONGEST):
        if line == 1 and not rest:
            next(raw_lines(BytesIO(raw[:4]), name))  # refuses UTF-16 and gzip
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        try:
            text = decoder.decode(raw)
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            refuse(rest + raw, line, name)
        yield text
        line += raw.count(b"\n")
        rest = b"" if raw.endswith(b"\n") else raw[raw.rfind(b"\n") + 1 :]
    if text := decode_end(decoder, rest, line, name):
        yield text


def decode_end(decoder: IncrementalNewlineDecoder, rest: bytes, line: int, name: str) -> str:
    """What is left when the file is at its end: nothing, mostly; half a character is a `RegardError`."""
    try:
        return decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return decoded(rest, f"{name}, line {line}")


def refuse(raw: bytes, first: int, name: str) -> None:
    """Raise the `RegardError` for the first line of some bytes that is no text."""
    for number, line in enumerate(raw.split(b"\n"), first):
        decoded(line, f"{name}, line {number}")


def lines_of(blocks: Iterable[str], name: str) -> Iterator[str]:
    r"""Every line without its \n."""
    held, number = "", 1
    for block in blocks:
        *whole, held = (held + block).split("\n")
        yield from whole
        number += len(whole)
        if len(held) > LONGEST:
            raise RegardError(f"{name}, line {number}: has more than {LONGEST} characters; shorter lines are needed")
    yield held
