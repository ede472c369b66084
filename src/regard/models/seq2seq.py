"""What every model offers that turns a source into a target, whatever it is made of."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch
from regard.models.model import Model
from regard.models.state import State


class Seq2Seq(Model):
    """A source in, a target out.

    `features` and `output` are apart, so that logits are made only where there are
    targets. `start` and `step` write a target one token at a time; a step consumes the
    state it is given.
    """

    reverses_source: bool = False  # whether the source is embedded from its end to its beginning, but for <eos>

    @abstractmethod
    def features(self, batch: Batch) -> Float[Tensor, "batch target width"]:
        """What the decoder thinks at each place of the target, reading the right tokens before it."""

    @abstractmethod
    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """The logits of the next token."""

    def forward(self, batch: Batch) -> Float[Tensor, "batch target vocabulary"]:
        """The logits of every token of the target."""
        return self.output(self.features(batch))

    @abstractmethod
    def start(self, batch: Batch, capacity: int, copies: int = 1) -> State:
        """Read the sources, and make room for `capacity` tokens of `copies` hypotheses of each."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """Read one more token of each hypothesis (first <bos>) and give the logits of the next."""
