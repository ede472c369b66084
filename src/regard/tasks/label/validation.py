"""How good a classifier is while it trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.label_batches import label_batch
from regard.data.labelled import Labelled
from regard.metrics.labels import best_threshold, label_report
from regard.models.attentive_classifier import AttentiveClassifier, label_loss
from regard.sentences import LabelBatch
from regard.text.lexicon import Lexicon
from regard.training.loop import Findings

EXAMPLES = 256
"""Of a batch, where nothing is learnt."""


def label_logits(
    model: AttentiveClassifier,
    examples: Sequence[Labelled],
    lexicon: Lexicon,
    *,
    longest: int,
    device: str,
    targets: bool = False,
) -> Iterator[tuple[LabelBatch, Float[Tensor, "examples labels"]]]:
    """The logits of examples, in their order, in batches."""
    config = model.config
    together = partial(label_batch, before=config.before, pairs=config.pairs, longest=longest, targets=targets)
    for start in range(0, len(examples), EXAMPLES):
        batch = together(examples[start : start + EXAMPLES], lexicon).to(device)
        yield batch, model(batch)


@dataclass(frozen=True)
class LabelValidation:
    """Loss an example, accuracy and macro F1; of several labels micro F1, at the best threshold."""

    examples: Sequence[Labelled]
    lexicon: Lexicon
    longest: int
    device: str

    def __call__(self, model: nn.Module) -> Findings:
        assert isinstance(model, AttentiveClassifier)
        loss, found = 0.0, []
        parts = label_logits(model, self.examples, self.lexicon, longest=self.longest, device=self.device, targets=True)
        for batch, logits in parts:
            assert batch.targets is not None
            loss += float(label_loss(logits, batch.targets, several=model.config.several))
            found.append(model.probabilities(logits.float()).cpu())
        probabilities, labels = torch.cat(found), self.lexicon.labels
        each = {"loss": loss / len(self.examples)}
        gold = [example.labels for example in self.examples]
        if model.config.several:
            threshold, f1 = best_threshold(probabilities, gold, labels)
            return Findings(each | {"f1": f1.value}, {"threshold": threshold})
        report = label_report([labels[place] for place in probabilities.argmax(-1).tolist()], [one for (one,) in gold])
        return Findings(each | {"accuracy": report.accuracy.value, "macro_f1": report.macro_f1.value})
