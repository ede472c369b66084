"""Read unlabeled text as sentences of word indices.

Only the indices and one copy of each distinct word are kept in memory.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from regard.batch import UNKNOWN
from regard.data.documents import list_files
from regard.data.formats.lines import Path, format_path, read_lines
from regard.errors import RegardError
from regard.text.tokenizer import SPECIAL
from regard.text.word_vocabulary import split_words

UNKNOWN_WORD = SPECIAL[UNKNOWN]
"""Placeholder for unknown words in preprocessed text."""

SENTENCE_ENDS = frozenset(".!?;")
"""Tokens that end a sentence; in a sequence of them, the last one does."""

MAX_SENTENCE_WORDS = 70
"""Longer sentences are split."""

PROGRESS_EVERY = 2**14  # lines

IntIds = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class UnlabeledText:
    """Unlabeled sentences as word indices."""

    vocabulary: tuple[str, ...]  # distinct words in order of first occurrence
    word_indices: IntIds  # index in `vocabulary` of every word, sentence after sentence
    starts: NDArray[np.int64]  # start of each sentence in `word_indices`, and the end of the last
    lines: int  # number of lines with at least one word
    sha256: str

    def __len__(self) -> int:
        return len(self.starts) - 1

    def count_words(self) -> dict[str, int]:
        """Count each word, except the placeholder for unknown words."""
        counts = np.bincount(self.word_indices, minlength=len(self.vocabulary)).tolist()
        return {word: count for word, count in zip(self.vocabulary, counts, strict=True) if word != UNKNOWN_WORD}


def read_unlabeled(
    path: Path, split_line: Callable[[str], Sequence[str]], progress: Callable[[int], None] = lambda _: None
) -> UnlabeledText:
    """Read unlabeled text from a file or from all files of a folder.

    Sentences of a single word are skipped, because they have no neighbors to predict.

    Args:
        path: File or folder; a name ending in .gz is decompressed.
        split_line: Function that splits a line into words.
        progress: Callback that receives the number of lines read so far.

    Raises:
        RegardError: The text cannot be read, or has fewer than two sentences.
    """
    if format_path(path) == "standard input":
        raise RegardError("standard input: unlabeled text may be read more than once; save it to a file")
    index_by_word: dict[str, int] = {}
    word_indices, starts, lines = array("i"), array("q", [0]), 0
    checksum = hashlib.sha256()
    for number, line in enumerate(line for file in list_files(path) for line in read_lines(file)):
        if number % PROGRESS_EVERY == 0:
            progress(number)
        checksum.update(f"{line}\n".encode())
        line_words = split_line(line)
        lines += bool(line_words)
        for sentence in split_sentences(line_words):
            if len(sentence) > 1:
                word_indices.extend([index_by_word.setdefault(word, len(index_by_word)) for word in sentence])
                starts.append(len(word_indices))
    if len(starts) < 3:
        raise RegardError(f"{format_path(path)}: expected at least two sentences of two words")
    return UnlabeledText(
        tuple(index_by_word),
        np.frombuffer(word_indices, np.int32),
        np.frombuffer(starts, np.int64),
        lines,
        checksum.hexdigest(),
    )


def split_sentences(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split the words of a line into sentences, after sentence-ending tokens and at the maximum length."""
    ends = [index for index, word in enumerate(words, 1) if word in SENTENCE_ENDS]
    cuts = [end for end in ends if end == len(words) or words[end] not in SENTENCE_ENDS]
    for begin, end in pairwise(sorted({0, *cuts, len(words)})):
        for start in range(begin, end, MAX_SENTENCE_WORDS):
            yield words[start : min(start + MAX_SENTENCE_WORDS, end)]


def split_text_words(line: str) -> list[str]:
    """Split a line as labeled texts are split, but keep <unk> as one word."""
    parts = [split_words(part) for part in line.split(UNKNOWN_WORD)]
    words = parts[0]
    for part in parts[1:]:
        words += [UNKNOWN_WORD, *part]
    return words
