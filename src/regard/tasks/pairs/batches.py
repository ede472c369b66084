"""Pairs of a corpus as batches of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.batch import Batch, Pair, collate
from regard.data.batches import Plan, plan
from regard.data.example import Example
from regard.text import Tokenizers


@dataclass(frozen=True)
class PairCorpus:
    """Encoded examples, cut into batches anew in each epoch.

    With bpe dropout a text is cut into tokens anew each time too, by a seed made of the
    epoch and its place.
    """

    examples: Sequence[Example]
    pairs: Sequence[Pair]
    tokenizers: Tokenizers
    tokens: int
    seed: int
    dropout: float = 0.0

    @cached_property
    def lengths(self) -> list[tuple[int, int]]:
        """Places that each pair takes."""
        return lengths_of(self.pairs)

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.full_plan(epoch).batches

    def full_plan(self, epoch: int) -> Plan:
        """The batches of an epoch and their share of padding."""
        return plan(self.lengths, tokens=self.tokens, seed=self.seed, epoch=epoch)

    def batch(self, places: Sequence[int], epoch: int) -> Batch:
        if self.dropout:
            return collate([self._cut_anew(place, epoch) for place in places])
        return collate([self.pairs[place] for place in places])

    def name(self, places: Sequence[int]) -> str:
        shown = ", ".join(str(place + 1) for place in sorted(places)[:8])
        more = f" and {len(places) - 8} more" if len(places) > 8 else ""
        return f'of the examples {shown}{more}, the first of them "{self.examples[min(places)].source[:60]}"'

    def _cut_anew(self, place: int, epoch: int) -> Pair:
        seed = (self.seed * 1_000_003 + epoch) * 1_000_003 + place
        example, (source, target) = self.examples[place], self.pairs[place]
        if self.tokenizers.source.kind == "bpe":
            source = self.tokenizers.source.encode(example.source, dropout=self.dropout, seed=seed)
        if self.tokenizers.target.kind == "bpe":
            target = self.tokenizers.target.encode(example.target, dropout=self.dropout, seed=seed + 1)
        return Pair(source, target)


def lengths_of(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    """Places that each pair takes, <eos> or <bos> included."""
    return [(len(source) + 1, len(target or ()) + 1) for source, target in pairs]


def encode(examples: Sequence[Example], tokenizers: Tokenizers) -> list[Pair]:
    """Examples as numbers."""
    sources = tokenizers.source.encode_all([example.source for example in examples])
    targets = tokenizers.target.encode_all([example.target for example in examples])
    return [Pair(source, target) for source, target in zip(sources, targets, strict=True)]
