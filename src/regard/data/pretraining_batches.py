"""Build batches for pretraining from unlabeled sentences and labeled texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from regard.batch import PAD
from regard.data.batches import batch_name, plan_epoch
from regard.data.formats.lines import quote_text
from regard.data.unlabeled import IntIds, UnlabeledText
from regard.layers.lengths import SequenceLengths
from regard.models.bidirectional_lm import EDGE, OTHER
from regard.sentences import Sentences
from regard.text.tokenizer import RESERVED
from regard.text.word_vocabulary import WordVocabulary

VALIDATION_SHARE, MAX_VALIDATION = 0.01, 1000
"""Share and maximum number of unlabeled sentences used for validation."""

RARE_COUNT = 12
UNKNOWN_SHARE, RARE_UNKNOWN_SHARE = 0.08, 0.4
"""Probability of replacing a word by <unk>, and that of words seen fewer than `RARE_COUNT` times per epoch."""

Indices = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class WordTable:
    """Ids and pieces of each distinct word; row 0 is padding."""

    texts: tuple[str, ...]
    word_ids: IntIds
    vectors: IntIds
    pieces: IntIds  # pieces of all words, concatenated
    starts: NDArray[np.int64]  # start of the pieces of each word, and the end of the last

    @classmethod
    def of(cls, words: Sequence[str], vocabulary: WordVocabulary) -> WordTable:
        """Look up all words."""
        encoded = [vocabulary.encode([word])[0] for word in words]
        lengths = [0, 0, *(len(word.pieces) for word in encoded)]
        return cls(
            ("", *words),
            np.array([PAD, *(word.word_id for word in encoded)], np.int32),
            np.array([0, *(word.vector_id for word in encoded)], np.int32),
            np.fromiter(chain.from_iterable(word.pieces for word in encoded), np.int32),
            np.cumsum(lengths),
        )

    def get_spellings(self, words: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the padded pieces of words, and the number of pieces of each."""
        begin, lengths = self.starts[words], self.starts[words + 1] - self.starts[words]
        inside = np.arange(lengths.max(initial=1)) < lengths[:, None]
        padded = np.full(inside.shape, PAD, np.int64)
        padded[inside] = self.pieces[(begin[:, None] + np.arange(inside.shape[1]))[inside]]
        return padded, lengths


@dataclass(frozen=True, eq=False)
class PretrainingTexts:
    """Texts to pretrain on, with the interface of the training loop; batches have similar lengths.

    Some of the unlabeled sentences are kept for validation.
    """

    word_table: WordTable
    word_indices: IntIds  # row in `word_table` of every word, text after text
    starts: NDArray[np.int64]  # start of each text, and the end of the last
    labeled: int  # number of labeled texts, which come last
    labeled_repeats: int  # number of times labeled texts are read per epoch
    batch_tokens: int  # maximum number of words per batch, padding included
    seed: int

    @classmethod
    def of(
        cls,
        text: UnlabeledText,
        labeled: Sequence[Sequence[str]],
        vocabulary: WordVocabulary,
        *,
        labeled_repeats: int,
        batch_tokens: int,
        seed: int,
    ) -> PretrainingTexts:
        """Combine unlabeled text and labeled texts."""
        index_by_word = {word: index for index, word in enumerate(text.vocabulary, 1)}
        further = np.fromiter(
            (index_by_word.setdefault(word, len(index_by_word) + 1) for word in chain.from_iterable(labeled)), np.int32
        )
        ends = len(text.word_indices) + np.cumsum([len(words) for words in labeled], dtype=np.int64)
        return cls(
            WordTable.of(tuple(index_by_word), vocabulary),
            np.concatenate([text.word_indices + 1, further], dtype=np.int32),
            np.concatenate([text.starts, ends]),
            len(labeled),
            labeled_repeats,
            batch_tokens,
            seed,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def validation_indices(self) -> NDArray[np.int64]:
        """Indices of the validation sentences."""
        unlabeled = len(self) - self.labeled
        count = min(max(1, round(VALIDATION_SHARE * unlabeled)), MAX_VALIDATION)
        random = np.random.Generator(np.random.PCG64(self.seed))
        return np.sort(random.choice(unlabeled, count, replace=False))

    @cached_property
    def training_indices(self) -> NDArray[np.int64]:
        """Indices of the texts of an epoch, with repeats."""
        unlabeled = np.delete(np.arange(len(self) - self.labeled), self.validation_indices)
        labeled = np.arange(len(self) - self.labeled, len(self))
        return np.concatenate([unlabeled, *[labeled] * self.labeled_repeats])

    def plan(self, epoch: int) -> Sequence[Indices]:
        return self._plan_batches(self.training_indices, epoch)

    def batch(self, indices: Indices, epoch: int = 0) -> Sentences:
        rows = np.array(indices)
        lengths = self.starts[rows + 1] - self.starts[rows]
        inside = np.arange(lengths.max()) < lengths[:, None]
        chosen = np.zeros(inside.shape, np.int64)
        chosen[inside] = np.concatenate(
            [self.word_indices[self.starts[index] : self.starts[index + 1]] for index in indices]
        )
        different, spelling_rows = np.unique(np.append(chosen, 0), return_inverse=True)  # padding always comes first
        spellings, pieces = self.word_table.get_spellings(different)
        return Sentences(
            torch.from_numpy(self.word_table.word_ids[chosen].astype(np.int64)),
            torch.from_numpy(spelling_rows[:-1].reshape(chosen.shape)),
            torch.from_numpy(spellings),
            SequenceLengths.of(torch.from_numpy(lengths)),
            SequenceLengths.of(torch.from_numpy(pieces)),
            torch.from_numpy(self.word_table.vectors[chosen].astype(np.int64)),
        )

    def name(self, indices: Indices) -> str:
        return batch_name(quote_text(self._get_text(index)) for index in indices)

    def iter_validation_batches(self) -> Iterator[Sentences]:
        """Yield the validation batches."""
        return (self.batch(indices) for indices in self._plan_batches(self.validation_indices, 0))

    def count_words(self) -> NDArray[np.int64]:
        """Count each known word by id, in the texts of an epoch and the validation sentences."""
        cut = self.starts[-1 - self.labeled]
        parts = [
            np.bincount(self.word_table.word_ids[part]) for part in (self.word_indices[:cut], self.word_indices[cut:])
        ]
        totals = np.zeros(max(int(self.word_table.word_ids.max()) + 1, len(RESERVED)), np.int64)
        for part, times in zip(parts, (1, self.labeled_repeats), strict=True):
            totals[: len(part)] += times * part
        return totals

    def _plan_batches(self, texts: NDArray[np.int64], epoch: int) -> Sequence[Indices]:
        """Plan the batches of some texts."""
        lengths = self.starts[texts + 1] - self.starts[texts]
        batches = plan_epoch(
            np.stack([lengths, lengths], 1), batch_tokens=self.batch_tokens, seed=self.seed, epoch=epoch
        ).batches
        return [tuple(texts[list(batch)].tolist()) for batch in batches]

    def _get_text(self, index: int) -> str:
        words = self.word_indices[self.starts[index] : self.starts[index + 1]]
        return " ".join(self.word_table.texts[word] for word in words)


def assign_classes(counts: NDArray[np.int64], size: int, max_words: int) -> NDArray[np.int64]:
    """Return the prediction class of each word id: one per frequent word, counted from 2, or `OTHER`."""
    classes = np.full(size, OTHER, np.int64)
    order = np.argsort(-counts, kind="stable")
    common = [word for word in order.tolist() if word >= len(RESERVED) and counts[word]][:max_words]
    classes[common] = np.arange(len(common)) + EDGE + 1
    return classes


def compute_unknown_shares(counts: NDArray[np.int64], size: int) -> NDArray[np.float32]:
    """Return the probability of replacing each word id by <unk>: higher for rare words."""
    word_counts = np.zeros(size, np.int64)
    word_counts[: len(counts)] = counts
    return np.where(word_counts < RARE_COUNT, RARE_UNKNOWN_SHARE, UNKNOWN_SHARE).astype(np.float32)
