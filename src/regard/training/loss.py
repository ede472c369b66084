"""The loss of a batch, as one module that can be wrapped, compiled or distributed."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.batch import PAD, Batch
from regard.models.seq2seq import Seq2Seq


class TrainingStep(nn.Module):
    """A model and its loss: the sum over all target tokens of the cross-entropy, and how many they are.

    With label smoothing a share of the probability asked for is spread over the whole
    vocabulary (Szegedy et al. 2016).
    """

    def __init__(self, model: Seq2Seq, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        assert batch.target_out is not None
        return summed_loss(self.model(batch), batch.target_out, self.smoothing), (batch.target_out != PAD).sum()


def summed_loss(
    logits: Float[Tensor, "batch target vocabulary"], target: Int[Tensor, "batch target"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Cross-entropy in nats, summed over the tokens that are no padding."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
