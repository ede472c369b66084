"""Texts to read before labels are learnt: unlabelled sentences and labelled texts, as batches of words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from regard.batch import PAD
from regard.data.batches import batch_name, plan
from regard.data.formats.lines import quoted
from regard.data.unlabelled import Numbers, Unlabelled
from regard.layers.lengths import SequenceLengths
from regard.models.two_way_lm import EDGE, OTHER
from regard.sentences import Sentences
from regard.text.lexicon import Lexicon
from regard.text.tokenizer import RESERVED

HELD_OUT, MOST_HELD_OUT = 0.01, 1000
"""The share of unlabelled sentences to validate with, and how many are enough."""

RARE = 12
SOME_UNKNOWN, RARE_UNKNOWN = 0.08, 0.4
"""The share of words that are made unknown, and that of those that an epoch has fewer than `RARE` times."""

Places = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Written:
    """All that is known of each different word, by how it is written; the first is padding."""

    texts: tuple[str, ...]
    numbers: Numbers
    vectors: Numbers
    pieces: Numbers  # of all, one after another
    starts: NDArray[np.int64]  # where the pieces of each begin, and where the last end

    @classmethod
    def of(cls, words: Sequence[str], lexicon: Lexicon) -> Written:
        """Look all words up."""
        found = [lexicon.encode([word])[0] for word in words]
        lengths = [0, 0, *(len(word.pieces) for word in found)]
        return cls(
            ("", *words),
            np.array([PAD, *(word.number for word in found)], np.int32),
            np.array([0, *(word.vector for word in found)], np.int32),
            np.fromiter(chain.from_iterable(word.pieces for word in found), np.int32),
            np.cumsum(lengths),
        )

    def spellings(self, words: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pieces of some words, filled up at the end, and how many each has."""
        begin, lengths = self.starts[words], self.starts[words + 1] - self.starts[words]
        inside = np.arange(lengths.max(initial=1)) < lengths[:, None]
        found = np.full(inside.shape, PAD, np.int64)
        found[inside] = self.pieces[(begin[:, None] + np.arange(inside.shape[1]))[inside]]
        return found, lengths


@dataclass(frozen=True, eq=False)
class ReadingTexts:
    """All texts to read, as the loop needs them; those of a batch are of like length.

    A part of the unlabelled sentences is held out to validate with.
    """

    written: Written
    numbers: Numbers  # the places in `written` of all words, text after text
    starts: NDArray[np.int64]  # where each text begins, and where the last one ends
    labelled: int  # how many texts have labels: the last ones
    repeats: int  # how often these are read while the others are read once
    tokens: int  # words of a batch, padding included
    seed: int

    @classmethod
    def of(
        cls,
        text: Unlabelled,
        labelled: Sequence[Sequence[str]],
        lexicon: Lexicon,
        *,
        repeats: int,
        tokens: int,
        seed: int,
    ) -> ReadingTexts:
        """Unlabelled text, and labelled texts behind it."""
        places = {word: place for place, word in enumerate(text.written, 1)}
        further = np.fromiter(
            (places.setdefault(word, len(places) + 1) for word in chain.from_iterable(labelled)), np.int32
        )
        ends = len(text.numbers) + np.cumsum([len(words) for words in labelled], dtype=np.int64)
        return cls(
            Written.of(tuple(places), lexicon),
            np.concatenate([text.numbers + 1, further], dtype=np.int32),
            np.concatenate([text.starts, ends]),
            len(labelled),
            repeats,
            tokens,
            seed,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """The places of the sentences to validate with."""
        unlabelled = len(self) - self.labelled
        count = min(max(1, round(HELD_OUT * unlabelled)), MOST_HELD_OUT)
        random = np.random.Generator(np.random.PCG64(self.seed))
        return np.sort(random.choice(unlabelled, count, replace=False))

    @cached_property
    def read(self) -> NDArray[np.int64]:
        """The places of the texts of an epoch."""
        unlabelled = np.delete(np.arange(len(self) - self.labelled), self.held)
        labelled = np.arange(len(self) - self.labelled, len(self))
        return np.concatenate([unlabelled, *[labelled] * self.repeats])

    def plan(self, epoch: int) -> Sequence[Places]:
        return self._planned(self.read, epoch)

    def batch(self, places: Places, epoch: int = 0) -> Sentences:
        rows = np.array(places)
        lengths = self.starts[rows + 1] - self.starts[rows]
        inside = np.arange(lengths.max()) < lengths[:, None]
        chosen = np.zeros(inside.shape, np.int64)
        chosen[inside] = np.concatenate([self.numbers[self.starts[place] : self.starts[place + 1]] for place in places])
        different, spelt = np.unique(np.append(chosen, 0), return_inverse=True)  # padding is always the first
        spellings, pieces = self.written.spellings(different)
        return Sentences(
            torch.from_numpy(self.written.numbers[chosen].astype(np.int64)),
            torch.from_numpy(spelt[:-1].reshape(chosen.shape)),
            torch.from_numpy(spellings),
            SequenceLengths.of(torch.from_numpy(lengths)),
            SequenceLengths.of(torch.from_numpy(pieces)),
            torch.from_numpy(self.written.vectors[chosen].astype(np.int64)),
        )

    def name(self, places: Places) -> str:
        return batch_name(quoted(self._text(place)) for place in places)

    def held_batches(self) -> Iterator[Sentences]:
        """What is held out to validate with."""
        return (self.batch(places) for places in self._planned(self.held, 0))

    def counts(self) -> NDArray[np.int64]:
        """How often the texts of an epoch, with those held out, have each known word, by its number."""
        cut = self.starts[-1 - self.labelled]
        parts = [np.bincount(self.written.numbers[part]) for part in (self.numbers[:cut], self.numbers[cut:])]
        found = np.zeros(max(int(self.written.numbers.max()) + 1, len(RESERVED)), np.int64)
        for part, times in zip(parts, (1, self.repeats), strict=True):
            found[: len(part)] += times * part
        return found

    def _planned(self, texts: NDArray[np.int64], epoch: int) -> Sequence[Places]:
        """Some texts in batches."""
        lengths = self.starts[texts + 1] - self.starts[texts]
        batches = plan(np.stack([lengths, lengths], 1), tokens=self.tokens, seed=self.seed, epoch=epoch).batches
        return [tuple(texts[list(batch)].tolist()) for batch in batches]

    def _text(self, place: int) -> str:
        words = self.numbers[self.starts[place] : self.starts[place + 1]]
        return " ".join(self.written.texts[word] for word in words)


def classes_of(counts: NDArray[np.int64], size: int, most: int) -> NDArray[np.int64]:
    """What is told of each word, by its number: one of the commonest, numbered from 2 on, or another."""
    found = np.full(size, OTHER, np.int64)
    order = np.argsort(-counts, kind="stable")
    common = [word for word in order.tolist() if word >= len(RESERVED) and counts[word]][:most]
    found[common] = np.arange(len(common)) + EDGE + 1
    return found


def unknown_shares(counts: NDArray[np.int64], size: int) -> NDArray[np.float32]:
    """How often each word is made unknown, by its number: rare ones more often."""
    known = np.zeros(size, np.int64)
    known[: len(counts)] = counts
    return np.where(known < RARE, RARE_UNKNOWN, SOME_UNKNOWN).astype(np.float32)
