"""What every language model offers: text in, the next token out."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.layers.vocabulary import Vocabulary
from regard.models.model import Model
from regard.models.state import State

Carried = tuple[Tensor, ...]
"""What a model knows of the text before, rows first; the same tensors, in the same order, each time."""


class LanguageModel(Model):
    """A text in, the logits of each next token out. None depends on a later token.

    A text begins with <bos>. It can be read in segments: `read` gives, besides the
    features, what the next segment of the same rows has to know of this one, for models
    that carry something on. `start` and `step` write a text one token at a time; a step
    consumes the state it is given.
    """

    carries: bool = False  # whether anything is carried from one segment to the next

    @abstractmethod
    def read(
        self, tokens: Int[Tensor, "rows time"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows time width"], Carried]:
        """What the model thinks after each token, and what is carried on.

        Without `carried` the rows begin here. What is carried on keeps its gradient;
        whoever trains by truncated segments detaches it.
        """

    @abstractmethod
    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """The logits of the next token."""

    def forward(
        self, tokens: Int[Tensor, "rows time"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows time vocabulary"], Carried]:
        """The logits after every token, and what is carried on."""
        features, carried = self.read(tokens, carried)
        return self.output(features), carried

    @abstractmethod
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> State:
        """Read all of a beginning but its last token, which is for the first step.

        There is room for `capacity` further tokens of `copies` hypotheses of each row,
        which stand next to each other.
        """

    @abstractmethod
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """Read one more token of each hypothesis and give the logits of the next."""


class VocabularyModel(LanguageModel):
    """A language model that knows its tokens by one `Vocabulary`."""

    vocabulary: Vocabulary

    @property
    def input_embedding(self) -> nn.Module:
        return self.vocabulary.embedding

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        return self.vocabulary(features)
