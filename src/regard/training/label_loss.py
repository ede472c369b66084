"""Training steps of classifiers and taggers, and weights for imbalanced classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.attentive_classifier import AttentiveClassifier, label_loss
from regard.models.attentive_tagger import AttentiveTagger
from regard.models.language_model import SegmentState
from regard.sentences import NO_TAG, LabelBatch, TagBatch
from regard.training.loss import Loss, TrainingStep


class LabelStep(TrainingStep):
    """A classifier with its loss, summed over the examples."""

    model: AttentiveClassifier

    def forward(self, batch: LabelBatch, recurrent_state: SegmentState = ()) -> Loss:
        assert batch.targets is not None
        multi_label, logits = self.model.config.multi_label, self.model(batch)
        loss = label_loss(
            logits, batch.targets, multi_label=multi_label, smoothing=self.smoothing, weights=self.weights
        )
        return Loss(loss, loss.new_full((), len(batch), dtype=torch.long))


class TagStep(TrainingStep):
    """A tagger with its loss, summed over the words."""

    model: AttentiveTagger

    def forward(self, batch: TagBatch, recurrent_state: SegmentState = ()) -> Loss:
        assert batch.tags is not None
        loss = self.model.loss(self.model(batch), batch, smoothing=self.smoothing, weights=self.weights)
        return Loss(loss, (batch.tags != NO_TAG).sum())


def compute_class_weights(counts: Sequence[int], power: float) -> Float[Tensor, " labels"] | None:
    """Return a weight per label that is higher for rarer labels and keeps the total weight.

    With a power of 1 all labels have the same total weight; with 0 all examples have the
    same weight (None).
    """
    if not power:
        return None
    label_counts = torch.tensor(counts, dtype=torch.float64)
    weights = label_counts.clamp_min(1) ** -power
    return (weights * label_counts.sum() / (weights * label_counts).sum()).float()


def compute_positive_weights(counts: Sequence[int], examples: int, power: float) -> Float[Tensor, " labels"] | None:
    """Return the weight of positive relative to negative examples of each label, for multi-label texts."""
    if not power:
        return None
    label_counts = torch.tensor(counts, dtype=torch.float64).clamp_min(1)
    return (((examples - label_counts).clamp_min(1) / label_counts) ** power).float()
