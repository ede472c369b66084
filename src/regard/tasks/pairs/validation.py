"""How good a model is while it trains: its loss on every held-out token, and what it makes of some of the sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.batch import Pair, collate
from regard.data.batches import plan
from regard.data.example import Example
from regard.decoding import decode_all
from regard.metrics import bleu, chrf, exact_match
from regard.models.seq2seq import Seq2Seq
from regard.tasks.pairs.batches import lengths_of
from regard.text import Tokenizers
from regard.training.loop import Findings
from regard.training.loss import PairStep

METRICS = {"exact": exact_match, "bleu": bleu, "chrf": chrf}


@dataclass(frozen=True)
class PairValidation:
    """Loss on all pairs; metrics of greedy predictions for the first `most`, as a reader sees them."""

    examples: Sequence[Example]
    pairs: Sequence[Pair]
    tokenizers: Tokenizers
    tokens: int
    most: int
    metrics: Sequence[str]  # of `METRICS` below
    device: str

    def __call__(self, model: torch.nn.Module) -> Findings:
        assert isinstance(model, Seq2Seq)
        return Findings({"loss": mean_loss(model, self.pairs, self.tokens, self.device), **self.decoded(model)})

    def decoded(self, model: Seq2Seq) -> dict[str, float]:
        """What the predictions are worth."""
        sources = [Pair(pair.source) for pair in self.pairs[: self.most]]
        found = decode_all(model, sources, width=1, tokens=self.tokens, device=self.device)
        texts = [self.tokenizers.target.decode(hypotheses[0].tokens) for hypotheses in found]
        steps = self.tokenizers.target.steps
        wanted = [steps.undo(steps.apply(example.target)) for example in self.examples[: self.most]]
        return {name: METRICS[name](texts, wanted).value for name in self.metrics}


def mean_loss(model: Seq2Seq, pairs: Sequence[Pair], tokens: int, device: str) -> float:
    """Cross-entropy in nats a token of the targets."""
    step = PairStep(model)
    total, count = 0.0, 0
    for places in plan(lengths_of(pairs), tokens=tokens).batches:
        loss, found, _ = step(collate([pairs[place] for place in places]).to(device))
        total, count = total + loss.item(), count + int(found)
    return total / max(1, count)
