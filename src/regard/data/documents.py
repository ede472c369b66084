r"""Stream documents from a text file, a gzipped file, standard input or a folder of files.

Documents arrive in chunks, so a large file is never held in memory. Chunks are split
before whitespace that follows another character. No tokenizer looks across such a boundary,
so tokenizing the chunks one by one gives the same tokens as tokenizing the whole document.
"""

from __future__ import annotations

import os
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from io import BufferedIOBase, BytesIO, IncrementalNewlineDecoder
from itertools import groupby
from pathlib import Path as FolderPath
from typing import Literal, NamedTuple

from regard.data.formats.lines import (
    BYTE_ORDER_MARK,
    MAX_LINE_BYTES,
    Path,
    decode_bytes,
    format_path,
    iter_raw_lines,
    open_input,
)
from regard.errors import RegardError

Documents = Literal["file", "line", "paragraph"]
"""What counts as a document: a whole file, a non-empty line, or lines up to a blank line."""

CHUNK_CHARACTERS = 2**16
"""Chunk size in characters: tokenizers are slower with larger chunks and with much smaller ones.

A chunk without whitespace can be longer, up to `MAX_LINE_BYTES` plus one block.
"""


class Chunk(NamedTuple):
    """A part of a document, and whether it is the last part."""

    text: str
    last: bool


def read_documents(path: Path, documents: Documents = "file") -> Iterator[Chunk]:
    r"""Yield all documents of a file or folder, chunk by chunk; blank documents are skipped.

    Every line ending (\n, \r\n, \r) becomes \n.

    Args:
        path: A file, a gzipped file, a folder, or `-` for standard input. A folder is read recursively, in the order of
            the paths, without hidden files.
        documents: What counts as a document: `file`, `line` (stripped of surrounding whitespace) or `paragraph`.

    Raises:
        RegardError: A file cannot be read or is not UTF-8, or there is no text at all.

    Example:
        >>> for text, last in read_documents("corpus.txt", "line"):
        ...     print(text)
    """
    has_text = False
    for file in list_files(path):
        for chunk in iter_documents(file, documents):
            has_text = True
            yield chunk
    if not has_text:
        raise RegardError(f"{format_path(path)}: no text")


def list_files(path: Path) -> list[Path]:
    """Return the file itself, or all files of a folder that are not hidden."""
    if os.fspath(path) == "-" or not os.path.isdir(path):
        return [path]
    candidates: list[FolderPath] = []
    for folder, inside, names in os.walk(path, onerror=raise_unreadable):
        inside[:] = [name for name in inside if not name.startswith(".")]
        candidates += [FolderPath(folder, name) for name in names if not name.startswith(".")]
    files: list[Path] = [file for file in sorted(candidates) if file.is_file()]
    if not files:
        raise RegardError(f"{format_path(path)}: no text files in this folder")
    return files


def raise_unreadable(error: OSError) -> None:
    """Raise a `RegardError` for a folder that cannot be listed."""
    raise RegardError(f"cannot read {error.filename}: {error.strerror or error}") from None


def iter_documents(path: Path, documents: Documents) -> Iterator[Chunk]:
    """Yield all documents of a file, chunk by chunk."""
    with open_input(path) as file:
        blocks = iter_text_blocks(file, format_path(path))
        if documents == "file":
            yield from split_chunks(blocks)
            return
        for filled, lines in groupby(iter_lines(blocks, format_path(path)), lambda line: bool(line.strip())):
            if filled and documents == "line":
                yield from (Chunk(line.strip(), True) for line in lines)
            elif filled:
                yield from split_chunks(line if index == 0 else f"\n{line}" for index, line in enumerate(lines))


def split_chunks(texts: Iterable[str]) -> Iterator[Chunk]:
    """Yield one document as chunks; the parts passed in may end anywhere. A blank document yields nothing."""
    buffer, begun = "", False
    for text in texts:
        buffer += text
        if len(buffer) > CHUNK_CHARACTERS:
            cut = find_last_gap(buffer) or (len(buffer) if len(buffer) > MAX_LINE_BYTES else 0)
            if cut:
                yield Chunk(buffer[:cut], False)
                buffer, begun = buffer[cut:], True
    if begun or buffer.strip():
        yield Chunk(buffer, True)


def find_last_gap(text: str) -> int:
    """Return the last index where whitespace follows another character, or 0."""
    end = len(text.rstrip())
    if end < len(text):
        return end
    words = text.rsplit(maxsplit=1)
    return len(words[0]) if len(words) > 1 else 0


def iter_text_blocks(file: BufferedIOBase, name: str) -> Iterator[str]:
    r"""Yield a file as text, several lines at a time, each ending in \n; only very long lines are split."""
    decoder = IncrementalNewlineDecoder(getincrementaldecoder("utf-8")(), translate=True)
    line, rest = 1, b""  # line number where a block begins, and bytes of that line already read
    while raw := file.read(CHUNK_CHARACTERS) + file.readline(MAX_LINE_BYTES):
        if line == 1 and not rest:
            next(iter_raw_lines(BytesIO(raw[:4]), name))  # rejects UTF-16 and gzip
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        try:
            text = decoder.decode(raw)
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise_undecodable(rest + raw, line, name)
        yield text
        line += raw.count(b"\n")
        rest = b"" if raw.endswith(b"\n") else raw[raw.rfind(b"\n") + 1 :]
    if text := decode_end(decoder, rest, line, name):
        yield text


def decode_end(decoder: IncrementalNewlineDecoder, rest: bytes, line: int, name: str) -> str:
    """Return the text left at the end of the file; raise a `RegardError` for an incomplete character."""
    try:
        return decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return decode_bytes(rest, f"{name}, line {line}")


def raise_undecodable(raw: bytes, first: int, name: str) -> None:
    """Raise a `RegardError` for the first line that cannot be decoded."""
    for number, line in enumerate(raw.split(b"\n"), first):
        decode_bytes(line, f"{name}, line {number}")


def iter_lines(blocks: Iterable[str], name: str) -> Iterator[str]:
    r"""Yield every line without its \n."""
    buffer, number = "", 1
    for block in blocks:
        *whole, buffer = (buffer + block).split("\n")
        yield from whole
        number += len(whole)
        if len(buffer) > MAX_LINE_BYTES:
            raise RegardError(f"{name}, line {number}: line is longer than {MAX_LINE_BYTES:,} characters")
    yield buffer
