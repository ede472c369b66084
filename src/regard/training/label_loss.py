"""The loss of labels and of tags, as one module with the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.attentive_classifier import AttentiveClassifier, label_loss
from regard.models.attentive_tagger import AttentiveTagger
from regard.models.language import Carried
from regard.sentences import NO_TAG, LabelBatch, TagBatch
from regard.training.loss import Loss, TrainingStep


class LabelStep(TrainingStep):
    """A classifier and its loss, summed over the examples, and how many they are."""

    model: AttentiveClassifier

    def forward(self, batch: LabelBatch, carried: Carried = ()) -> Loss:
        assert batch.targets is not None
        several, logits = self.model.config.several, self.model(batch)
        loss = label_loss(logits, batch.targets, several=several, smoothing=self.smoothing, weights=self.weights)
        return Loss(loss, loss.new_full((), len(batch), dtype=torch.long))


class TagStep(TrainingStep):
    """A tagger and its loss, summed over the words, and how many they are."""

    model: AttentiveTagger

    def forward(self, batch: TagBatch, carried: Carried = ()) -> Loss:
        assert batch.tags is not None
        loss = self.model.loss(self.model(batch), batch, smoothing=self.smoothing, weights=self.weights)
        return Loss(loss, (batch.tags != NO_TAG).sum())


def class_weights(counts: Sequence[int], power: float) -> Float[Tensor, " labels"] | None:
    """What an example of each label counts: the rarer the more, such that all together count as before.

    With a power of 1 every label counts the same in all; with 0 every example does.
    """
    if not power:
        return None
    numbers = torch.tensor(counts, dtype=torch.float64)
    weights = numbers.clamp_min(1) ** -power
    return (weights * numbers.sum() / (weights * numbers).sum()).float()


def positive_weights(counts: Sequence[int], examples: int, power: float) -> Float[Tensor, " labels"] | None:
    """What having a label counts, beside not having it, where a text can have several."""
    if not power:
        return None
    numbers = torch.tensor(counts, dtype=torch.float64).clamp_min(1)
    return (((examples - numbers).clamp_min(1) / numbers) ** power).float()
