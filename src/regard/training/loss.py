"""Training steps: a model with its loss, as one module that can be compiled or wrapped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, cast

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.batch import PAD, Batch, TextBatch
from regard.models.language_model import SegmentState
from regard.models.seq2seq import Seq2Seq


class Loss(NamedTuple):
    """The loss of a batch in nats summed over target tokens, their number, and the state for the next batch."""

    total: Float[Tensor, ""]
    tokens: Int[Tensor, ""]
    recurrent_state: SegmentState = ()


class TrainingStep(nn.Module, ABC):
    """A model with its loss. It is stateless: the recurrent state is passed in and returned.

    Args:
        model: The model to train.
        smoothing: Label smoothing: the share of probability spread over all classes (Szegedy et al. 2016).
        weights: The weight of each class; None for equal weights.
    """

    weights: Tensor | None

    def __init__(self, model: nn.Module, smoothing: float = 0.0, weights: Float[Tensor, " classes"] | None = None):
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.register_buffer("weights", weights)

    @abstractmethod
    def forward(self, batch: Any, recurrent_state: SegmentState = ()) -> Loss:
        """Return the loss of a batch, which may continue the previous one."""


class PairStep(TrainingStep):
    """A sequence-to-sequence model with its loss over all target tokens."""

    def forward(self, batch: Batch, recurrent_state: SegmentState = ()) -> Loss:
        assert batch.target_out is not None
        logits, tokens = self.model(batch), (batch.target_out != PAD).sum()
        if batch.copy_ids is None:
            return Loss(summed_loss(logits, batch.target_out, self.smoothing), tokens)
        vocab_size = cast(Seq2Seq, self.model).generated_size
        return Loss(summed_copy_loss(logits, batch.target_out, self.smoothing, vocab_size), tokens)


class TextStep(TrainingStep):
    """A language model with its loss, continued from segment to segment.

    The segment state is detached (truncated backpropagation through time). Values that are
    not finite become zero: the cell of an LSTM can reach infinity while the loss is finite,
    and would make all later gradients NaN.
    """

    def forward(self, batch: TextBatch, recurrent_state: SegmentState = ()) -> Loss:
        logits, recurrent_state = self.model(batch.tokens, None if batch.fresh else recurrent_state)
        detached_state = tuple(tensor.detach().nan_to_num(0.0, 0.0, 0.0) for tensor in recurrent_state)
        return Loss(summed_loss(logits, batch.targets, self.smoothing), (batch.targets != PAD).sum(), detached_state)


def summed_loss(
    logits: Float[Tensor, "batch target vocabulary"], target: Int[Tensor, "batch target"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the cross-entropy in nats, summed over all tokens except padding."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )


def summed_copy_loss(
    log_probabilities: Float[Tensor, "batch target extended"],
    target: Int[Tensor, "batch target"],
    smoothing: float,
    vocab_size: int,
) -> Float[Tensor, ""]:
    """Return the cross-entropy of a model that copies, as `summed_loss` does.

    Label smoothing spreads its share over the first `vocab_size` tokens, those that can be generated: which others
    there are depends on the source.
    """
    is_token = target != PAD
    losses = -log_probabilities.gather(-1, target[..., None])[..., 0]
    if smoothing:
        losses = (1 - smoothing) * losses - smoothing * log_probabilities[..., :vocab_size].mean(-1)
    return losses.masked_fill(~is_token, 0).sum()
