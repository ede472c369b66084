"""TokenFile: documents as numbers on disk, of any size, written once and read where they lie.

Three files: `text.tokens`, the numbers of all documents, each as <bos> t1 .. tn <eos>;
`text.documents`, where each document ends;
and `text.json`, what they are. That one comes last, so the others are whole with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.batch import BOS, EOS, UNKNOWN
from regard.data.documents import Chunk
from regard.errors import RegardError
from regard.files import check_version, reading, whole_file, write_text, writing
from regard.settings import from_table
from regard.text.tokenizer import Tokenizer

VERSION = 1


@dataclass
class Totals:
    """What `text.json` says of the text, besides the layout of the other files."""

    documents: int = 0
    tokens: int = 0  # <bos> and <eos> included
    words: int = 0
    characters: int = 0
    unknown: int = 0  # tokens the vocabulary does not know
    sha256: str = ""  # of the text as it was read, and of where its documents end


@dataclass(frozen=True, eq=False)
class TokenFile:
    """Documents as numbers, one behind the other, in memory only where they are looked at."""

    tokens: NDArray[Any]  # uint16 or uint32
    stops: NDArray[np.int64]  # of each document, behind its <eos>
    totals: Totals

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.stops)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The place of the <bos> of each document."""
        return np.concatenate([np.zeros(1, np.int64), self.stops[:-1]])

    @property
    def words(self) -> int:
        """Words of all documents, as `str.split` counts them."""
        return self.totals.words

    @property
    def characters(self) -> int:
        """Characters of all documents."""
        return self.totals.characters

    @classmethod
    def open(cls, path: str | Path) -> TokenFile:
        """Look at what `write_tokens` has written."""
        path = Path(path)
        card = read_card(card_of(path))
        totals = from_table(Totals, card.get("totals", {}), str(card_of(path)))
        dtype = np.dtype(np.uint16 if card.get("dtype") == "uint16" else np.uint32)
        tokens = mapped(path, dtype, totals.tokens)
        return cls(tokens, mapped(documents_of(path), np.dtype(np.int64), totals.documents), totals)


def write_tokens(path: str | Path, documents: Iterable[Chunk], tokenizer: Tokenizer) -> TokenFile:
    """Cut documents into tokens, chunk by chunk, and write them down.

    Args:
        path: Of the tokens; the other two files lie beside them, with other suffixes.
        documents: The chunks of documents, as `read_documents` gives them.
        tokenizer: Made by `learn_text`; its numbers take two bytes each where they fit, else four.
    """
    path = Path(path)
    dtype = np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)
    with writing(path), ExitStack() as stack:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        card_of(path).unlink(missing_ok=True)
        tokens = stack.enter_context(whole_file(path))
        stops = stack.enter_context(whole_file(documents_of(path)))
        totals = write_stream(documents, tokenizer, dtype, tokens, stops)
    card = {"version": VERSION, "dtype": dtype.name, "totals": asdict(totals)}
    write_text(card_of(path), json.dumps(card, indent=2) + "\n")
    return TokenFile.open(path)


def write_stream(
    documents: Iterable[Chunk], tokenizer: Tokenizer, dtype: np.dtype[Any], tokens: IO[bytes], stops: IO[bytes]
) -> Totals:
    """Write the tokens of all chunks, and where each document ends, and count them."""
    totals, digest = Totals(), hashlib.sha256()
    first = True
    for text, last in documents:
        ids = np.array([BOS] * first + tokenizer.encode(text) + [EOS] * last, dtype)
        tokens.write(ids.tobytes())
        digest.update(text.encode() + b"\0" * last)
        totals.tokens += len(ids)
        totals.unknown += int(np.count_nonzero(ids == UNKNOWN))
        totals.words, totals.characters = totals.words + len(text.split()), totals.characters + len(text)
        if last:
            stops.write(np.array([totals.tokens], np.int64).tobytes())
            totals.documents += 1
        first = last
    if not totals.documents:
        raise RegardError("text: there are no documents; one is the least")
    totals.sha256 = digest.hexdigest()
    return totals


def text_checksum(documents: Iterable[Chunk]) -> str:
    """The SHA-256 of a text as `Totals` has it, however it is cut into chunks."""
    digest = hashlib.sha256()
    for text, last in documents:
        digest.update(text.encode() + b"\0" * last)
    return digest.hexdigest()


def documents_of(path: Path) -> Path:
    """The file that says where each document ends, beside its tokens."""
    return path.with_suffix(".documents")


def card_of(path: Path) -> Path:
    """The file that says what the tokens are."""
    return path.with_suffix(".json")


def read_card(path: Path) -> dict[str, Any]:
    """What some tokens are, checked to be of a version that we know."""
    try:
        with reading(path):
            card = json.loads(path.read_bytes())
    except ValueError as error:
        raise RegardError(f"{path}: is damaged ({error}); remove it, and the tokens are made anew") from None
    check_version(card, VERSION, "tokens", str(path))
    return card


def mapped(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """The numbers of a file, read where they lie."""
    with reading(path):
        size = path.stat().st_size
        if size != count * dtype.itemsize:
            raise RegardError(
                f"{path}: has {size} bytes, {count * dtype.itemsize} are right; "
                f"remove {card_of(path)}, and the tokens are made anew"
            )
        return np.memmap(path, dtype, mode="r").view(np.ndarray)
