"""The interface of sequence-to-sequence models."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch
from regard.models.features import Features
from regard.models.model import Model
from regard.models.state import State


class Seq2Seq(Model):
    """A model that predicts a target sequence from a source sequence.

    `features` and `output` are separate, so that logits can be computed for some positions
    only. `start` and `step` decode one token at a time; a step modifies the state it is given.

    The logits of a model that copies are log-probabilities of an extended vocabulary: after the tokens of the target
    vocabulary come those that only the source has.
    """

    reverses_source: bool = False  # whether the source is read from its end, with <eos> still last
    copies: bool = False  # whether source tokens are copied, so that batches need `copy_ids`
    generated_size: int = 0  # with copying, the number of tokens that can be generated; further ones are only copied

    @abstractmethod
    def features(self, batch: Batch) -> Float[Tensor, "batch target width"] | Features:
        """Return the decoder features at each target position, given the correct tokens before it."""

    @abstractmethod
    def output(self, features: Float[Tensor, "*places width"] | Features) -> Float[Tensor, "*places vocabulary"]:
        """Return the logits of the next token."""

    def forward(self, batch: Batch) -> Float[Tensor, "batch target vocabulary"]:
        """Return the logits at every target position."""
        return self.output(self.features(batch))

    @abstractmethod
    def start(self, batch: Batch, capacity: int, copies: int = 1) -> State:
        """Encode the sources; the state has room for `capacity` tokens of `copies` hypotheses per source."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """Read one token of each hypothesis (<bos> first); return the logits of the next and the new state."""
