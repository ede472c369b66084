"""Build batches of labeled texts and tagged sentences, in seeded random order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from regard.data.batches import batch_name, plan_epoch
from regard.data.formats.lines import quote_text
from regard.data.labeled import LabeledText
from regard.data.tagged import TaggedSentence
from regard.sentences import NO_TAG, LabelBatch, TagBatch, WordSequence, group_by_length, stack_texts
from regard.text.word_vocabulary import WordVocabulary, split_words

RUN_LENGTH = 8
"""Number of consecutive examples kept together when context is read: most context texts are then in the batch."""

Indices = tuple[int, ...]


def encode_text(text: str, vocabulary: WordVocabulary, max_length: int) -> WordSequence:
    """Encode the first `max_length` words of a text."""
    return vocabulary.encode(split_words(text)[:max_length] or [""])


def count_words_read(example: LabeledText, max_length: int) -> int:
    """Return the number of words read for an example, without its context."""
    return sum(min(max_length, len(split_words(text))) for text in (example.text, example.second or ""))


def build_label_batch(
    examples: Sequence[LabeledText],
    vocabulary: WordVocabulary,
    *,
    context_size: int,
    text_pairs: bool,
    max_length: int,
    with_targets: bool = True,
) -> LabelBatch:
    """Build a batch of examples; a text shared by several examples is encoded once."""
    text_indices: dict[str, int] = {}

    def assign_index(text: str | None) -> int:
        return -1 if text is None else text_indices.setdefault(text, len(text_indices))

    texts = [assign_index(example.text) for example in examples]
    seconds = [assign_index(example.second) for example in examples] if text_pairs else None
    context = (
        [[assign_index(text) for text in get_context(example, context_size)] for example in examples]
        if context_size
        else None
    )
    groups, positions = group_by_length([encode_text(text, vocabulary, max_length) for text in text_indices])
    position_tensor = torch.tensor([*positions, -1])  # the last entry marks missing texts
    target_rows = (
        [[int(label in example.labels) for label in vocabulary.labels] for example in examples]
        if with_targets
        else None
    )
    return LabelBatch(
        groups,
        position_tensor[texts],
        None if seconds is None else position_tensor[seconds],
        None if context is None else position_tensor[torch.tensor(context)],
        None if target_rows is None else torch.tensor(target_rows),
    )


def get_context(example: LabeledText, context_size: int) -> list[str | None]:
    """Return the last `context_size` texts before an example, oldest first, padded with None at the front."""
    context = example.context[-context_size:]
    return [*[None] * (context_size - len(context)), *context]


def build_tag_batch(
    sentences: Sequence[TaggedSentence], vocabulary: WordVocabulary, *, with_tags: bool = True
) -> TagBatch:
    """Build a batch of tagged sentences."""
    stacked = stack_texts([vocabulary.encode(sentence.words) for sentence in sentences])
    if not with_tags:
        return TagBatch(stacked)
    tag_ids = {tag: tag_id for tag_id, tag in enumerate(vocabulary.labels)}
    tag_rows = torch.full(stacked.word_ids.shape, NO_TAG)
    for row, sentence in enumerate(sentences):
        tag_rows[row, : len(sentence.tags)] = torch.tensor([tag_ids[tag] for tag in sentence.tags])
    return TagBatch(stacked, tag_rows)


@dataclass(frozen=True)
class LabelCorpus:
    """Labeled texts to train on, with the interface of the training loop.

    Batches mix texts of all lengths, so each is an unbiased sample. With context, they consist
    of runs of consecutive examples.
    """

    examples: Sequence[LabeledText]
    vocabulary: WordVocabulary
    batch_tokens: int  # maximum number of words per batch; a single run of examples may exceed it
    context_size: int
    text_pairs: bool
    max_length: int
    seed: int

    def plan(self, epoch: int) -> list[Indices]:
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        size = RUN_LENGTH if self.context_size else 1
        offset = int(random.integers(size))
        starts = [*([0] if offset else []), *range(offset, len(self.examples), size)]
        runs = [range(a, b) for a, b in zip(starts, [*starts[1:], len(self.examples)], strict=True)]
        batches: list[list[int]] = [[]]
        room = self.batch_tokens
        for run_index in random.permutation(len(runs)).tolist():
            words = sum(self._word_counts[index] for index in runs[run_index])
            if words > room and batches[-1]:
                batches.append([])
                room = self.batch_tokens
            batches[-1] += runs[run_index]
            room -= words
        return [tuple(batch) for batch in batches]

    def batch(self, indices: Indices, epoch: int) -> LabelBatch:
        chosen = [self.examples[index] for index in indices]
        return build_label_batch(
            chosen,
            self.vocabulary,
            context_size=self.context_size,
            text_pairs=self.text_pairs,
            max_length=self.max_length,
        )

    def name(self, indices: Indices) -> str:
        return batch_name(quote_text(self.examples[index].text) for index in indices)

    @cached_property
    def _word_counts(self) -> list[int]:
        """Number of words read for each example."""
        return [count_words_read(example, self.max_length) for example in self.examples]


@dataclass(frozen=True)
class TagCorpus:
    """Tagged sentences to train on, with the interface of the training loop; batches have similar lengths."""

    sentences: Sequence[TaggedSentence]
    vocabulary: WordVocabulary
    batch_tokens: int  # maximum number of words per batch, padding included
    seed: int

    def plan(self, epoch: int) -> tuple[Indices, ...]:
        lengths = [(len(sentence.words), len(sentence.words)) for sentence in self.sentences]
        return plan_epoch(lengths, batch_tokens=self.batch_tokens, seed=self.seed, epoch=epoch).batches

    def batch(self, indices: Indices, epoch: int) -> TagBatch:
        return build_tag_batch([self.sentences[index] for index in indices], self.vocabulary)

    def name(self, indices: Indices) -> str:
        return batch_name(quote_text(" ".join(self.sentences[index].words)) for index in indices)
