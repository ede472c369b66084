"""Batches of encoded pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from regard.batch import UNKNOWN, Batch, Pair, collate
from regard.data.batches import BatchPlan, plan_epoch
from regard.data.example import Example
from regard.text import TokenizerPair
from regard.text.copying import CopyTable


@dataclass(frozen=True)
class PairBatches:
    """Encoded examples, rebatched in each epoch.

    With BPE dropout, texts are also retokenized in each epoch, and with `hide`, tokens of pairs that copy become
    unknown. The seed of both derives from the epoch and the index of the pair.
    """

    examples: Sequence[Example]
    pairs: Sequence[Pair]
    tokenizers: TokenizerPair
    tokens: int
    seed: int
    dropout: float = 0.0
    hide: float = 0.0  # probability that a token of a pair that copies is unknown on both sides

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
        return collate([self._get_pair(index, epoch) for index in indices])

    def name(self, indices: Sequence[int]) -> str:
        first_numbers = ", ".join(str(index + 1) for index in sorted(indices)[:8])
        remainder = f" and {len(indices) - 8} more" if len(indices) > 8 else ""
        return f'of examples {first_numbers}{remainder}, starting with "{self.examples[min(indices)].source[:60]}"'

    def _get_pair(self, index: int, epoch: int) -> Pair:
        """Return a pair as it is in an epoch."""
        seed = (self.seed * 1_000_003 + epoch) * 1_000_003 + index
        pair = self._tokenize_with_dropout(index, seed) if self.dropout else self.pairs[index]
        if not self.hide or pair.copy_ids is None:
            return pair
        return hide_tokens(pair, self.hide, self.tokenizers.target.size, Random(seed))

    def _tokenize_with_dropout(self, index: int, seed: int) -> Pair:
        example, (source, target, copy_ids) = self.examples[index], self.pairs[index]
        if self.tokenizers.source.kind == "bpe":
            source = self.tokenizers.source.encode(example.source, dropout=self.dropout, seed=seed)
            if copy_ids is not None:  # of other tokens now, so that the unknown ones of the target have other ids
                copied = self.copy_table.find_copies(source)
                copy_ids, target = copied.ids, self.copy_table.encode_target(example.target, copied)
        if self.tokenizers.target.kind == "bpe":
            target = self.tokenizers.target.encode(example.target, dropout=self.dropout, seed=seed + 1)
        return Pair(source, target, copy_ids)

    @cached_property
    def copy_table(self) -> CopyTable:
        """What the tokens of a source copy."""
        return CopyTable(self.tokenizers)


def hide_tokens(pair: Pair, share: float, vocab_size: int, random: Random) -> Pair:
    """Make tokens of a source unknown, and their copies in the target, so that a model learns to copy unknown tokens.

    Each different token that the target has is hidden with probability `share`, at all of its positions. Others, such
    as the features of an inflected form, stay: they decide what the target is.
    """
    assert pair.copy_ids is not None and pair.target is not None
    first_free = max(vocab_size, 1 + max(pair.copy_ids, default=0))
    hidden: dict[int, int] = {}
    for token in dict.fromkeys(pair.copy_ids):
        if token in pair.target and random.random() < share:
            hidden[token] = first_free + len(hidden)
    source = [UNKNOWN if copied in hidden else token for token, copied in zip(pair.source, pair.copy_ids, strict=True)]
    target = [hidden.get(token, token) for token in pair.target]
    return Pair(source, target, [hidden.get(token, token) for token in pair.copy_ids])


def compute_lengths(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    """Return the length of each pair, <eos> or <bos> included."""
    return [(len(pair.source) + 1, len(pair.target or ()) + 1) for pair in pairs]


def encode_examples(examples: Sequence[Example], tokenizers: TokenizerPair, *, copy: bool = False) -> list[Pair]:
    """Encode examples as pairs of token ids, with what the sources copy if `copy`."""
    if copy:
        table = CopyTable(tokenizers)
        return [table.encode_pair(example.source, example.target) for example in examples]
    sources = tokenizers.source.encode_all([example.source for example in examples])
    targets = tokenizers.target.encode_all([example.target for example in examples])
    return [Pair(source, target) for source, target in zip(sources, targets, strict=True)]
