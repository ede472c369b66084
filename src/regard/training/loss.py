"""The loss of a batch, as one module that can be wrapped, compiled or distributed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.batch import PAD, Batch, TextBatch
from regard.models.language import Carried


class Loss(NamedTuple):
    """The loss of a batch in nats, summed over its target tokens; how many they are; what the next batch gets."""

    total: Float[Tensor, ""]
    tokens: Int[Tensor, ""]
    carried: Carried = ()


class TrainingStep(nn.Module, ABC):
    """A model and its loss. It keeps nothing from batch to batch: what is carried on is given and returned.

    Args:
        model: What is trained.
        smoothing: The share of the probability asked for that is spread over all classes (Szegedy et al. 2016).
        weights: What each class counts, where not all count the same.
    """

    weights: Tensor | None

    def __init__(self, model: nn.Module, smoothing: float = 0.0, weights: Float[Tensor, " classes"] | None = None):
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.register_buffer("weights", weights)

    @abstractmethod
    def forward(self, batch: Any, carried: Carried = ()) -> Loss:
        """The loss of a batch, which may go on where the one before ended."""


class PairStep(TrainingStep):
    """A model of pairs and its loss over all target tokens."""

    def forward(self, batch: Batch, carried: Carried = ()) -> Loss:
        assert batch.target_out is not None
        return Loss(summed_loss(self.model(batch), batch.target_out, self.smoothing), (batch.target_out != PAD).sum())


class TextStep(TrainingStep):
    """A language model and its loss, which reads a text on from segment to segment.

    What the model carries on is given on without its gradient: back-propagation through
    time ends where a segment begins. A number that is not finite is forgotten: the cell of an
    LSTM can grow to infinity behind a loss that is finite, and would spoil every later gradient.
    """

    def forward(self, batch: TextBatch, carried: Carried = ()) -> Loss:
        logits, carried = self.model(batch.tokens, None if batch.fresh else carried)
        kept = tuple(tensor.detach().nan_to_num(0.0, 0.0, 0.0) for tensor in carried)
        return Loss(summed_loss(logits, batch.targets, self.smoothing), (batch.targets != PAD).sum(), kept)


def summed_loss(
    logits: Float[Tensor, "batch target vocabulary"], target: Int[Tensor, "batch target"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Cross-entropy in nats, summed over the tokens that are no padding."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
