"""Unlabelled text as numbers: lines of words, cut into sentences, each word the number of how it is written.

However much text there is, only its numbers are held, and each different word once.
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
from regard.data.documents import files_of
from regard.data.formats.lines import Path, read_lines, shown
from regard.errors import RegardError
from regard.text.lexicon import words_of
from regard.text.tokenizer import SPECIAL

UNKNOWN_WORD = SPECIAL[UNKNOWN]
"""What a text has in place of words that were unknown to those who made it."""

ENDS = frozenset(".!?;")
"""Words that end a sentence; of several in a row, the last."""

MOST_WORDS = 70
"""Of a sentence; a longer one is cut."""

TOLD_EVERY = 2**14  # lines

Numbers = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """A text without labels."""

    written: tuple[str, ...]  # each different word, as it is written, in the order of their first places
    numbers: Numbers  # the places in `written` of all words, sentence after sentence
    starts: NDArray[np.int64]  # where in `numbers` each sentence begins; the last is where the last one ends
    lines: int  # with at least one word
    sha256: str

    def __len__(self) -> int:
        return len(self.starts) - 1

    def counts(self) -> dict[str, int]:
        """How often there is each word, but for the one that stands for those that were unknown."""
        found = np.bincount(self.numbers, minlength=len(self.written)).tolist()
        return {word: count for word, count in zip(self.written, found, strict=True) if word != UNKNOWN_WORD}


def read_unlabelled(
    path: Path, words: Callable[[str], Sequence[str]], show: Callable[[int], None] = lambda _: None
) -> Unlabelled:
    """The text of a file, or of all files of a folder, line by line.

    A sentence of one word, which has no neighbours to tell, is left out.

    Args:
        path: The file, gzipped if its name ends in .gz, or the folder.
        words: What cuts a line into words.
        show: Told how many lines were read, now and then.
    """
    if shown(path) == "standard input":
        raise RegardError("standard input: unlabelled text may be read again; save it to a file")
    places: dict[str, int] = {}
    numbers, starts, lines = array("i"), array("q", [0]), 0
    checksum = hashlib.sha256()
    for number, line in enumerate(line for file in files_of(path) for line in read_lines(file)):
        if number % TOLD_EVERY == 0:
            show(number)
        checksum.update(f"{line}\n".encode())
        found = words(line)
        lines += bool(found)
        for sentence in sentences_of(found):
            if len(sentence) > 1:
                numbers.extend([places.setdefault(word, len(places)) for word in sentence])
                starts.append(len(numbers))
    if len(starts) < 3:
        raise RegardError(f"{shown(path)}: has not two sentences of two words; more text is needed")
    return Unlabelled(
        tuple(places), np.frombuffer(numbers, np.int32), np.frombuffer(starts, np.int64), lines, checksum.hexdigest()
    )


def sentences_of(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words of a line as sentences: cut behind what ends one, and where one has become too long."""
    ends = [place for place, word in enumerate(words, 1) if word in ENDS]
    cuts = [end for end in ends if end == len(words) or words[end] not in ENDS]
    for begin, end in pairwise(sorted({0, *cuts, len(words)})):
        for start in range(begin, end, MOST_WORDS):
            yield words[start : min(start + MOST_WORDS, end)]


def words_in_text(line: str) -> list[str]:
    """The words of a line as texts to label are cut into them, but that of unknown words stays whole."""
    parts = [words_of(part) for part in line.split(UNKNOWN_WORD)]
    found = parts[0]
    for part in parts[1:]:
        found += [UNKNOWN_WORD, *part]
    return found
