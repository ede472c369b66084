"""Batches of encoded pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.batch import Batch, Pair, collate
from regard.data.batches import BatchPlan, plan_epoch
from regard.data.example import Example
from regard.text import TokenizerPair


@dataclass(frozen=True)
class PairBatches:
    """Encoded examples, rebatched in each epoch.

    With BPE dropout, texts are also retokenized in each epoch, with a seed derived from the epoch and the index of
    the pair.
    """

    examples: Sequence[Example]
    pairs: Sequence[Pair]
    tokenizers: TokenizerPair
    tokens: int
    seed: int
    dropout: float = 0.0

    @cached_property
    def lengths(self) -> list[tuple[int, int]]:
        """The length of each pair, special tokens included."""
        return compute_lengths(self.pairs)

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.build_plan(epoch).batches

    def build_plan(self, epoch: int) -> BatchPlan:
        """Return the batches of an epoch and their share of padding."""
        return plan_epoch(self.lengths, batch_tokens=self.tokens, seed=self.seed, epoch=epoch)

    def batch(self, indices: Sequence[int], epoch: int) -> Batch:
        if self.dropout:
            return collate([self._tokenize_with_dropout(index, epoch) for index in indices])
        return collate([self.pairs[index] for index in indices])

    def name(self, indices: Sequence[int]) -> str:
        first_numbers = ", ".join(str(index + 1) for index in sorted(indices)[:8])
        remainder = f" and {len(indices) - 8} more" if len(indices) > 8 else ""
        return f'of examples {first_numbers}{remainder}, starting with "{self.examples[min(indices)].source[:60]}"'

    def _tokenize_with_dropout(self, index: int, epoch: int) -> Pair:
        seed = (self.seed * 1_000_003 + epoch) * 1_000_003 + index
        example, (source, target) = self.examples[index], self.pairs[index]
        if self.tokenizers.source.kind == "bpe":
            source = self.tokenizers.source.encode(example.source, dropout=self.dropout, seed=seed)
        if self.tokenizers.target.kind == "bpe":
            target = self.tokenizers.target.encode(example.target, dropout=self.dropout, seed=seed + 1)
        return Pair(source, target)


def compute_lengths(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    """Return the length of each pair, <eos> or <bos> included."""
    return [(len(source) + 1, len(target or ()) + 1) for source, target in pairs]


def encode_examples(examples: Sequence[Example], tokenizers: TokenizerPair) -> list[Pair]:
    """Encode examples as pairs of token ids."""
    sources = tokenizers.source.encode_all([example.source for example in examples])
    targets = tokenizers.target.encode_all([example.target for example in examples])
    return [Pair(source, target) for source, target in zip(sources, targets, strict=True)]
