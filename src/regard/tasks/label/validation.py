"""How good a classifier is while it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from regard.data.label_batches import label_batch
from regard.data.labelled import Labelled
from regard.metrics.labels import best_threshold, label_report
from regard.models.attentive_classifier import AttentiveClassifier, label_loss
from regard.text.lexicon import Lexicon
from regard.training.loop import Findings

EXAMPLES = 256
"""Of a batch, where nothing is learnt."""


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
        together = partial(label_batch, before=model.config.before, pairs=model.config.pairs, longest=self.longest)
        for start in range(0, len(self.examples), EXAMPLES):
            batch = together(self.examples[start : start + EXAMPLES], self.lexicon).to(self.device)
            assert batch.targets is not None
            logits = model(batch)
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
