"""Sentences, LabelBatch and TagBatch: batches of texts as words.

A word has an id and the ids of its pieces (characters or subwords), so an unseen word is still
represented by its spelling. Each distinct word of a batch is spelled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from regard.batch import Movable, pad_rows
from regard.layers.lengths import SequenceLengths

NO_TAG = -1
"""Tag id of padding and unknown tags."""

MAX_LENGTH_RATIO, MAX_LENGTH_SLACK = 1.5, 4
"""In a group, the longest text has at most this ratio of the words of the shortest, plus the slack."""


class EncodedWord(NamedTuple):
    """The id of a word, the ids of its pieces, and the id of its pretrained vector."""

    word_id: int
    pieces: tuple[int, ...]
    vector_id: int = 0  # 0 without a vector


WordSequence = tuple[EncodedWord, ...]


@dataclass(frozen=True)
class Sentences(Movable):
    """A padded batch of texts."""

    word_ids: Int[Tensor, "texts words"]  # id of each word, PAD after the end
    spelling_rows: Int[Tensor, "texts words"]  # row of each word in `spellings`
    spellings: Int[Tensor, "different pieces"]  # pieces of each distinct word; the first row is padding
    lengths: SequenceLengths  # number of words of each text
    piece_lengths: SequenceLengths  # number of pieces of each distinct word
    vector_ids: Int[Tensor, "texts words"] | None = None  # id of the vector of each word, 0 without one

    def __len__(self) -> int:
        return len(self.word_ids)


@dataclass(frozen=True)
class LabelBatch(Movable):
    """A batch of examples to classify. Their distinct texts are in groups of similar length.

    Examples refer to texts by index, counted across all groups.
    """

    groups: tuple[Sentences, ...]
    texts: Int[Tensor, " examples"]
    second_texts: Int[Tensor, " examples"] | None  # second texts of text pairs
    context: Int[Tensor, "examples before"] | None  # preceding texts, oldest first; -1 if missing
    targets: Int[Tensor, "examples labels"] | None = None  # 1 for each label of an example

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TagBatch(Movable):
    """A batch of sentences to tag."""

    sentences: Sentences
    tags: Int[Tensor, "texts words"] | None = None  # NO_TAG for padding and unknown tags

    def __len__(self) -> int:
        return len(self.sentences)


def stack_texts(texts: Sequence[WordSequence]) -> Sentences:
    """Build a padded batch of texts."""
    rows: dict[tuple[int, ...], int] = {(): 0}
    spelling_rows = [[rows.setdefault(word.pieces, len(rows)) for word in text] for text in texts]
    words, lengths = pad_rows([[word.word_id for word in text] for text in texts])
    spellings, pieces = pad_rows(list(rows))
    vectors, _ = pad_rows([[word.vector_id for word in text] for text in texts])
    return Sentences(
        words, pad_rows(spelling_rows)[0], spellings, SequenceLengths.of(lengths), SequenceLengths.of(pieces), vectors
    )


def group_by_length(texts: Sequence[WordSequence]) -> tuple[tuple[Sentences, ...], list[int]]:
    """Group texts by similar length; return the groups and the new index of each text."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    groups: list[list[int]] = []
    for index in order:
        if not groups or len(texts[index]) > MAX_LENGTH_RATIO * len(texts[groups[-1][0]]) + MAX_LENGTH_SLACK:
            groups.append([])
        groups[-1].append(index)
    positions = {index: position for position, index in enumerate(order)}
    return tuple(stack_texts([texts[index] for index in group]) for group in groups), [
        positions[index] for index in range(len(texts))
    ]
