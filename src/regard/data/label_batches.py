"""Labelled texts and tagged sentences as batches, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from regard.data.batches import batch_name, plan
from regard.data.formats.lines import quoted
from regard.data.labelled import Labelled
from regard.data.tagged import Tagged
from regard.sentences import NO_TAG, LabelBatch, TagBatch, Text, in_groups, side_by_side
from regard.text.lexicon import Lexicon, words_of

TOGETHER = 8
"""Examples that stay together where the texts before are read, too: most of these are then texts of the batch."""

Places = tuple[int, ...]


def as_text(text: str, lexicon: Lexicon, longest: int) -> Text:
    """A text as numbers: its first words."""
    return lexicon.encode(words_of(text)[:longest] or [""])


def words_read(example: Labelled, longest: int) -> int:
    """How many words are read of an example, besides the texts before."""
    return sum(min(longest, len(words_of(text))) for text in (example.text, example.second or ""))


def label_batch(
    examples: Sequence[Labelled], lexicon: Lexicon, *, before: int, pairs: bool, longest: int, targets: bool = True
) -> LabelBatch:
    """Examples side by side; a text that several have is read once."""
    numbers: dict[str, int] = {}

    def place(text: str | None) -> int:
        return -1 if text is None else numbers.setdefault(text, len(numbers))

    texts = [place(example.text) for example in examples]
    seconds = [place(example.second) for example in examples] if pairs else None
    context = [[place(text) for text in last(example, before)] for example in examples] if before else None
    groups, where = in_groups([as_text(text, lexicon, longest) for text in numbers])
    now = torch.tensor([*where, -1])  # the last is for texts that there are not
    asked = [[int(label in example.labels) for label in lexicon.labels] for example in examples] if targets else None
    return LabelBatch(
        groups,
        now[texts],
        None if seconds is None else now[seconds],
        None if context is None else now[torch.tensor(context)],
        None if asked is None else torch.tensor(asked),
    )


def last(example: Labelled, before: int) -> list[str | None]:
    """So many texts before an example, the oldest first, None where there were not as many."""
    context = example.context[-before:]
    return [*[None] * (before - len(context)), *context]


def tag_batch(sentences: Sequence[Tagged], lexicon: Lexicon, *, tags: bool = True) -> TagBatch:
    """Sentences side by side."""
    found = side_by_side([lexicon.encode(sentence.words) for sentence in sentences])
    if not tags:
        return TagBatch(found)
    numbers = {tag: number for number, tag in enumerate(lexicon.labels)}
    asked = torch.full(found.words.shape, NO_TAG)
    for row, sentence in enumerate(sentences):
        asked[row, : len(sentence.tags)] = torch.tensor([numbers[tag] for tag in sentence.tags])
    return TagBatch(found, asked)


@dataclass(frozen=True)
class LabelCorpus:
    """Labelled texts to train on, as the loop needs them.

    A batch has texts of any length, so that it is a fair sample; where the texts before are read
    too, it has runs of examples.
    """

    examples: Sequence[Labelled]
    lexicon: Lexicon
    tokens: int  # words of a batch, at the most; a run of examples may go beyond
    before: int
    pairs: bool
    longest: int
    seed: int

    def plan(self, epoch: int) -> list[Places]:
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        size = TOGETHER if self.before else 1
        offset = int(random.integers(size))
        starts = [*([0] if offset else []), *range(offset, len(self.examples), size)]
        runs = [range(a, b) for a, b in zip(starts, [*starts[1:], len(self.examples)], strict=True)]
        batches: list[list[int]] = [[]]
        room = self.tokens
        for place in random.permutation(len(runs)).tolist():
            words = sum(self._words[each] for each in runs[place])
            if words > room and batches[-1]:
                batches.append([])
                room = self.tokens
            batches[-1] += runs[place]
            room -= words
        return [tuple(batch) for batch in batches]

    def batch(self, places: Places, epoch: int) -> LabelBatch:
        chosen = [self.examples[place] for place in places]
        return label_batch(chosen, self.lexicon, before=self.before, pairs=self.pairs, longest=self.longest)

    def name(self, places: Places) -> str:
        return batch_name(quoted(self.examples[place].text) for place in places)

    @cached_property
    def _words(self) -> list[int]:
        """How many words are read of each example."""
        return [words_read(example, self.longest) for example in self.examples]


@dataclass(frozen=True)
class TagCorpus:
    """Tagged sentences to train on, as the loop needs them; those of a batch are of like length."""

    sentences: Sequence[Tagged]
    lexicon: Lexicon
    tokens: int  # words of a batch, padding included
    seed: int

    def plan(self, epoch: int) -> tuple[Places, ...]:
        lengths = [(len(sentence.words), len(sentence.words)) for sentence in self.sentences]
        return plan(lengths, tokens=self.tokens, seed=self.seed, epoch=epoch).batches

    def batch(self, places: Places, epoch: int) -> TagBatch:
        return tag_batch([self.sentences[place] for place in places], self.lexicon)

    def name(self, places: Places) -> str:
        return batch_name(quoted(" ".join(self.sentences[place].words)) for place in places)
