"""Validation during training: the loss on all validation pairs, and metrics of some predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.batch import Pair, collate
from regard.data.batches import plan_epoch
from regard.data.example import Example
from regard.decoding import decode_all
from regard.metrics import bleu, chrf, exact_match
from regard.models.seq2seq import Seq2Seq
from regard.tasks.pairs.batches import compute_lengths
from regard.text import TokenizerPair
from regard.text.copying import CopyTable
from regard.training.loop import ValidationResult
from regard.training.loss import PairStep

METRICS = {"exact": exact_match, "bleu": bleu, "chrf": chrf}


@dataclass(frozen=True)
class PairValidation:
    """Loss on all pairs, and metrics of greedy predictions for the first `max_decoded` of them."""

    examples: Sequence[Example]
    pairs: Sequence[Pair]
    tokenizers: TokenizerPair
    tokens: int
    max_decoded: int
    metrics: Sequence[str]  # keys of `METRICS`
    device: str

    def __call__(self, model: torch.nn.Module) -> ValidationResult:
        assert isinstance(model, Seq2Seq)
        return ValidationResult(
            {"loss": compute_mean_loss(model, self.pairs, self.tokens, self.device), **self.score_predictions(model)}
        )

    def score_predictions(self, model: Seq2Seq) -> dict[str, float]:
        """Return the metrics of greedy predictions."""
        pairs, examples = self.pairs[: self.max_decoded], self.examples[: self.max_decoded]
        hypotheses_by_source = decode_all(model, pairs, width=1, batch_tokens=self.tokens, device=self.device)
        table = CopyTable(self.tokenizers) if model.copies else None
        texts = []
        for example, hypotheses in zip(examples, hypotheses_by_source, strict=True):
            target = self.tokenizers.target if table is None else table.extend_target(table.encode(example.source))
            texts.append(target.decode(hypotheses[0].tokens))
        steps = self.tokenizers.target.steps
        references = [steps.undo(steps.apply(example.target)) for example in examples]
        return {name: METRICS[name](texts, references).value for name in self.metrics}


def compute_mean_loss(model: Seq2Seq, pairs: Sequence[Pair], tokens: int, device: str) -> float:
    """Return the cross-entropy of the targets, in nats per token."""
    step = PairStep(model)
    total, count = 0.0, 0
    for indices in plan_epoch(compute_lengths(pairs), batch_tokens=tokens).batches:
        loss, tokens_in_batch, _ = step(collate([pairs[index] for index in indices]).to(device))
        total, count = total + loss.item(), count + int(tokens_in_batch)
    return total / max(1, count)
