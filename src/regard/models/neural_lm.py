"""The neural language model of a fixed window (Bengio et al. 2003)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import PAD
from regard.layers.attention import new_linear
from regard.layers.dropout import Dropout
from regard.layers.vocabulary import Vocabulary
from regard.models.language import Carried, VocabularyModel
from regard.models.state import State
from regard.settings import check_least, check_shares


@dataclass(frozen=True, kw_only=True)
class NeuralLmConfig:
    """How many tokens are seen, and the widths of what is made of them."""

    size: int  # how many tokens there are
    window: int = 5  # how many tokens before the next one are seen
    embedding: int = 128  # width of a token
    hidden: int = 256  # width of the tanh layer
    dropout: float = 0.3  # on embeddings and before the output
    direct: bool = False  # also connect the embeddings to the output, past the tanh layer
    tied: bool = False  # the output layer is the embedding

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "window", "embedding", "hidden")
        check_shares(self, "dropout")


@dataclass
class NeuralLmState:
    """The last tokens of each hypothesis, but for the one that comes next."""

    tokens: Int[Tensor, "rows before"]

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        self.tokens = self.tokens.index_select(0, rows)


class NeuralLm(VocabularyModel):
    """Logits b + U tanh(d + H x), with `direct` + W x, where x are the last tokens' embeddings side by side.

    Before the beginning of a text there is padding, whose embedding is zero. The features
    are tanh(d + H x), with `direct` [tanh(d + H x); x], so that one output layer is U and W.
    """

    carries = True

    def __init__(self, config: NeuralLmConfig) -> None:
        super().__init__()
        self.config = config
        seen = config.window * config.embedding
        features = config.hidden + (seen if config.direct else 0)
        self.vocabulary = Vocabulary(config.size, config.embedding, features, tied=config.tied, padding=PAD)
        self.hidden = new_linear(seen, config.hidden, True)
        self.dropout = Dropout(config.dropout)

    def read(
        self, tokens: Int[Tensor, "rows time"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows time width"], Carried]:
        known = self._known(tokens, carried)
        embedded = self.dropout(self.vocabulary.embed(known))
        time = tokens.shape[1]
        seen = torch.cat([embedded[:, place : place + time] for place in range(self.config.window)], -1)
        found = self.dropout(torch.tanh(self.hidden(seen)))
        return torch.cat([found, seen], -1) if self.config.direct else found, (self._last(known),)

    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> NeuralLmState:
        before = self._last(self._known(tokens[:, :-1], None))
        return NeuralLmState(before.repeat_interleave(copies, 0))

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, NeuralLmState)
        features, (state.tokens,) = self.read(tokens[:, None], (state.tokens,))
        return self.output(features[:, 0]), state

    def _known(self, tokens: Int[Tensor, "rows time"], carried: Carried | None) -> Int[Tensor, "rows known"]:
        """Tokens, and before them those that the first of them sees too."""
        before = tokens.new_full((len(tokens), self.config.window - 1), PAD) if carried is None else carried[0]
        return torch.cat([before, tokens], 1)

    def _last(self, known: Int[Tensor, "rows known"]) -> Int[Tensor, "rows before"]:
        """Those that the next token sees too."""
        return known[:, known.shape[1] - self.config.window + 1 :]
