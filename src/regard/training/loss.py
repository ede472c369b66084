"""The loss of a batch, as one module that can be wrapped, compiled or distributed."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.batch import PAD, Batch, TextBatch
from regard.models.language import Carried, LanguageModel
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


class TextStep(nn.Module):
    """A language model and its loss, which reads a text on from segment to segment.

    What the model carries on is kept here without its gradient: back-propagation through
    time ends where a segment begins. A number that is not finite is forgotten: the cell of an
    LSTM can grow to infinity behind a loss that is finite, and would spoil every later gradient.
    """

    def __init__(self, model: LanguageModel, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.carried: Carried = ()

    def forward(self, batch: TextBatch) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        logits, carried = self.model(batch.tokens, None if batch.fresh else self.carried)
        self.carried = tuple(tensor.detach().nan_to_num(0.0, 0.0, 0.0) for tensor in carried)
        return summed_loss(logits, batch.targets, self.smoothing), (batch.targets != PAD).sum()

    def memory(self) -> dict[str, Tensor]:
        """What is carried on, by name, for a checkpoint."""
        return {str(place): tensor for place, tensor in enumerate(self.carried)}

    def remember(self, memory: Mapping[str, Tensor]) -> None:
        """Take up what `memory` gave."""
        self.carried = tuple(memory[str(place)] for place in range(len(memory)))


def summed_loss(
    logits: Float[Tensor, "batch target vocabulary"], target: Int[Tensor, "batch target"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Cross-entropy in nats, summed over the tokens that are no padding."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
