"""The interface of language models."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.layers.vocabulary import VocabularyLayer
from regard.models.model import Model
from regard.models.state import State

SegmentState = tuple[Tensor, ...]
"""State passed from one segment of a text to the next: always the same tensors in the same order, rows first."""


class LanguageModel(Model):
    """A model that predicts each next token of a text from the tokens before it.

    A text begins with <bos>. It can be read in segments: `read` also returns a segment
    state, which stateful models need to continue the same rows. `start` and `step` generate
    text one token at a time; a step modifies the state it is given.
    """

    stateful: bool = False  # whether the segment state holds anything

    @abstractmethod
    def read(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time width"], SegmentState]:
        """Return the features after each token, and the segment state after the last.

        Without `segment_state` the texts begin here. The returned state keeps its gradient;
        detach it for truncated backpropagation through time.
        """

    @abstractmethod
    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """Return the logits of the next token."""

    def forward(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time vocabulary"], SegmentState]:
        """Return the logits after every token, and the segment state."""
        features, segment_state = self.read(tokens, segment_state)
        return self.output(features), segment_state

    @abstractmethod
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> State:
        """Read a prompt except for its last token, which is the input of the first step.

        The state has room for `capacity` more tokens. Each row is repeated `copies` times, next
        to each other.
        """

    @abstractmethod
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """Read one token of each hypothesis; return the logits of the next and the new state."""


class VocabularyModel(LanguageModel):
    """A language model whose embedding and output layer are one `VocabularyLayer`."""

    vocabulary: VocabularyLayer

    @property
    def input_embedding(self) -> nn.Module:
        return self.vocabulary.embedding

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        return self.vocabulary(features)
