"""TokenFile: tokenized documents on disk, of any size, written once and memory-mapped.

There are three files: `text.tokens` holds the ids of all documents, each as <bos> t1 .. tn <eos>;
`text.documents` holds the end of each document; `text.json` describes both. It is written
last, so the other files are complete if it exists.
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
from regard.files import (
    check_file_version,
    compute_sha256,
    open_atomic,
    wrap_read_errors,
    wrap_write_errors,
    write_text,
)
from regard.settings import parse_settings
from regard.text.tokenizer import Tokenizer

VERSION = 1


@dataclass
class Totals:
    """Totals of a text, as stored in `text.json`."""

    documents: int = 0
    tokens: int = 0  # including <bos> and <eos>
    words: int = 0
    characters: int = 0
    unknown: int = 0  # tokens that are not in the vocabulary
    sha256: str = ""  # checksum of the text and its document boundaries


@dataclass(frozen=True, eq=False)
class TokenFile:
    """Tokenized documents, concatenated in a memory-mapped array."""

    tokens: NDArray[Any]  # uint16 or uint32
    stops: NDArray[np.int64]  # end of each document, after its <eos>
    totals: Totals

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.stops)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Position of the <bos> of each document."""
        return np.concatenate([np.zeros(1, np.int64), self.stops[:-1]])

    @property
    def words(self) -> int:
        """Number of words in all documents, split at whitespace."""
        return self.totals.words

    @property
    def characters(self) -> int:
        """Number of characters in all documents."""
        return self.totals.characters

    @classmethod
    def open(cls, path: str | Path, vocab_size: int | None = None) -> TokenFile:
        """Open files written by `write_tokens`; with `vocab_size`, check that all ids are below it."""
        path = Path(path)
        card = read_card(get_card_path(path))
        table = card.get("totals")
        totals = parse_settings(Totals, table if isinstance(table, dict) else {}, str(get_card_path(path)))
        dtype = np.dtype(np.uint16 if card.get("dtype") == "uint16" else np.uint32)
        tokens = map_file(path, dtype, totals.tokens)
        stops = map_file(get_documents_path(path), np.dtype(np.int64), totals.documents)
        check_checksums(path, card.get("sha256"))
        if vocab_size is not None and tokens.max() >= vocab_size:
            raise build_corrupt_error(path, path, f"expected token ids below {vocab_size}, got {tokens.max()}")
        if stops[-1] != len(tokens) or (np.diff(stops, prepend=0) < 2).any():
            raise build_corrupt_error(
                get_documents_path(path), path, f"expected documents of {len(tokens)} tokens in all"
            )
        return cls(tokens, stops, totals)


def write_tokens(path: str | Path, documents: Iterable[Chunk], tokenizer: Tokenizer) -> TokenFile:
    """Tokenize documents chunk by chunk and write the tokens to disk.

    Args:
        path: Path of the token file; the other two files have the same name with other suffixes.
        documents: Chunks of documents, as yielded by `read_documents`.
        tokenizer: A tokenizer from `learn_lm_tokenizer`. Ids take two bytes if they fit, otherwise four.

    Returns:
        The opened token file.

    Raises:
        RegardError: There are no documents, or a file cannot be written.
    """
    path = Path(path)
    dtype = np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)
    with wrap_write_errors(path), ExitStack() as stack:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        get_card_path(path).unlink(missing_ok=True)
        tokens = stack.enter_context(open_atomic(path))
        stops = stack.enter_context(open_atomic(get_documents_path(path)))
        totals = write_chunks(documents, tokenizer, dtype, tokens, stops)
    card = {"version": VERSION, "dtype": dtype.name, "sha256": compute_checksums(path), "totals": asdict(totals)}
    write_text(get_card_path(path), json.dumps(card, indent=2) + "\n")
    return TokenFile.open(path)


def write_chunks(
    documents: Iterable[Chunk], tokenizer: Tokenizer, dtype: np.dtype[Any], tokens: IO[bytes], stops: IO[bytes]
) -> Totals:
    """Write the tokens of all chunks and the end of each document, and return the totals."""
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
        raise RegardError("text is empty: expected at least one document")
    totals.sha256 = digest.hexdigest()
    return totals


def compute_text_checksum(documents: Iterable[Chunk]) -> str:
    """Return the SHA-256 of a text as in `Totals`, regardless of how it is split into chunks."""
    digest = hashlib.sha256()
    for text, last in documents:
        digest.update(text.encode() + b"\0" * last)
    return digest.hexdigest()


def get_documents_path(path: Path) -> Path:
    """Return the path of the file with the end of each document."""
    return path.with_suffix(".documents")


def get_card_path(path: Path) -> Path:
    """Return the path of the JSON file that describes the tokens."""
    return path.with_suffix(".json")


def compute_checksums(path: Path) -> dict[str, str]:
    """Return the checksums of the tokens and of the ends of the documents."""
    return {"tokens": compute_sha256(path), "documents": compute_sha256(get_documents_path(path))}


def check_checksums(path: Path, expected: object) -> None:
    """Raise a `RegardError` if tokens on disk are not those that were written."""
    if compute_checksums(path) != expected:
        card_path = get_card_path(path)
        raise RegardError(
            f"{path} is corrupt: its checksum differs from {card_path.name}; "
            f"delete {card_path} to tokenize the text again"
        )


def read_card(path: Path) -> dict[str, Any]:
    """Read the description of a token file, and check its version."""
    try:
        with wrap_read_errors(path):
            card = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{path} is corrupt: {error}; delete it to tokenize the text again") from None
    check_file_version(card, VERSION, "tokens", str(path))
    return card


def map_file(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Memory-map an array file, and check its size."""
    with wrap_read_errors(path):
        size = path.stat().st_size
        if size != count * dtype.itemsize or not size:
            raise build_corrupt_error(path, path, f"expected {count * dtype.itemsize} bytes, got {size}")
        return np.memmap(path, dtype, mode="r").view(np.ndarray)


def build_corrupt_error(path: Path, token_path: Path, reason: str) -> RegardError:
    """Build the error for a file whose content is not what `write_tokens` wrote."""
    return RegardError(f"{path} is corrupt: {reason}; delete {get_card_path(token_path)} to tokenize the text again")
