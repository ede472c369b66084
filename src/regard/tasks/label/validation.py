"""Validation of a classifier during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from regard.data.label_batches import build_label_batch
from regard.data.labeled import LabeledText
from regard.metrics.labels import best_threshold, label_report
from regard.models.attentive_classifier import AttentiveClassifier, label_loss
from regard.text.word_vocabulary import WordVocabulary
from regard.training.loop import ValidationResult

EXAMPLES = 256
"""Number of texts in a validation batch."""


@dataclass(frozen=True)
class LabelValidation:
    """Loss per example, accuracy and macro F1; with several labels per text, micro F1 at the best threshold."""

    examples: Sequence[LabeledText]
    vocabulary: WordVocabulary
    max_words: int
    device: str

    def __call__(self, model: nn.Module) -> ValidationResult:
        assert isinstance(model, AttentiveClassifier)
        loss, batch_probabilities = 0.0, []
        build_batch = partial(
            build_label_batch,
            context_size=model.config.context_size,
            text_pairs=model.config.text_pairs,
            max_length=self.max_words,
        )
        for start in range(0, len(self.examples), EXAMPLES):
            batch = build_batch(self.examples[start : start + EXAMPLES], self.vocabulary).to(self.device)
            assert batch.targets is not None
            logits = model(batch)
            loss += float(label_loss(logits, batch.targets, multi_label=model.config.multi_label))
            batch_probabilities.append(model.probabilities(logits.float()).cpu())
        probabilities, labels = torch.cat(batch_probabilities), self.vocabulary.labels
        metrics = {"loss": loss / len(self.examples)}
        gold = [example.labels for example in self.examples]
        if model.config.multi_label:
            threshold, f1 = best_threshold(probabilities, gold, labels)
            return ValidationResult(metrics | {"f1": f1.value}, {"threshold": threshold})
        report = label_report([labels[index] for index in probabilities.argmax(-1).tolist()], [one for (one,) in gold])
        return ValidationResult(metrics | {"accuracy": report.accuracy.value, "macro_f1": report.macro_f1.value})
