"""Sentences, LabelBatch and TagBatch: texts as words, side by side as tensors.

A word is a number of its own, and the numbers of its pieces (letters, or subwords), so that one
that was never seen is still known by its spelling. Each different word of a batch is spelt once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from regard.batch import Movable, padded
from regard.layers.lengths import SequenceLengths

NO_TAG = -1
"""At padding, and where a tag is not known."""

SPREAD, SLACK = 1.5, 4
"""Texts of one group: the longest has at most this many times the words of the shortest, and some more."""


class Word(NamedTuple):
    """A word as numbers: its own, those of its pieces, and that of its vector where one was learnt elsewhere."""

    number: int
    pieces: tuple[int, ...]
    vector: int = 0  # 0 has none


Text = tuple[Word, ...]


@dataclass(frozen=True)
class Sentences(Movable):
    """Texts side by side."""

    words: Int[Tensor, "texts words"]  # the number of each word, PAD after the end
    spelt: Int[Tensor, "texts words"]  # the row of its spelling
    spellings: Int[Tensor, "different pieces"]  # the pieces of each different word; the first row is padding
    lengths: SequenceLengths  # words of each text
    pieces: SequenceLengths  # pieces of each different word
    vectors: Int[Tensor, "texts words"] | None = None  # the number of the vector of each word, 0 where it has none

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class LabelBatch(Movable):
    """Examples to label. Their texts, each different one once, lie in groups of like length.

    The texts of all groups are counted on from group to group; an example names its own by these numbers.
    """

    groups: tuple[Sentences, ...]
    texts: Int[Tensor, " examples"]
    seconds: Int[Tensor, " examples"] | None  # the second texts, where pairs are labelled
    context: Int[Tensor, "examples before"] | None  # the texts before, the oldest first; -1 where there is none
    targets: Int[Tensor, "examples labels"] | None = None  # 1 for each label that an example has

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TagBatch(Movable):
    """Sentences to tag."""

    sentences: Sentences
    tags: Int[Tensor, "texts words"] | None = None  # NO_TAG at padding, and where a tag is not known

    def __len__(self) -> int:
        return len(self.sentences)


def side_by_side(texts: Sequence[Text]) -> Sentences:
    """Texts as tensors."""
    rows: dict[tuple[int, ...], int] = {(): 0}
    spelt = [[rows.setdefault(word.pieces, len(rows)) for word in text] for text in texts]
    words, lengths = padded([[word.number for word in text] for text in texts])
    spellings, pieces = padded(list(rows))
    vectors, _ = padded([[word.vector for word in text] for text in texts])
    return Sentences(
        words, padded(spelt)[0], spellings, SequenceLengths.of(lengths), SequenceLengths.of(pieces), vectors
    )


def in_groups(texts: Sequence[Text]) -> tuple[tuple[Sentences, ...], list[int]]:
    """Texts in groups of like length, and for each where it now stands."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    groups: list[list[int]] = []
    for place in order:
        if not groups or len(texts[place]) > SPREAD * len(texts[groups[-1][0]]) + SLACK:
            groups.append([])
        groups[-1].append(place)
    where = {place: now for now, place in enumerate(order)}
    return tuple(side_by_side([texts[place] for place in group]) for group in groups), [
        where[place] for place in range(len(texts))
    ]
