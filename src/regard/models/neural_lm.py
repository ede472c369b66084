"""The neural language model with a fixed window (Bengio et al. 2003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import PAD
from regard.bounds import Bounds, Share, VocabularySize, Width, check_bounds
from regard.layers.attention import new_linear
from regard.layers.dropout import Dropout
from regard.layers.vocabulary import VocabularyLayer
from regard.models.language_model import SegmentState, VocabularyModel
from regard.models.state import State


@dataclass(frozen=True, kw_only=True)
class NeuralLmConfig:
    """Settings of `NeuralLm`."""

    vocab_size: VocabularySize  # number of tokens in the vocabulary
    window: Annotated[int, Bounds(1, 10_000)] = 5  # number of previous tokens the model sees
    embedding: Width = 128  # width of the embeddings
    hidden: Width = 256  # width of the tanh layer
    dropout: Share = 0.3  # dropout on embeddings and before the output layer
    direct: bool = False  # also connect the embeddings directly to the output layer
    tied: bool = False  # share weights between the embedding and the output layer

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass
class NeuralLmState:
    """The decoding state: the tokens of each hypothesis that the next step still sees."""

    tokens: Int[Tensor, "rows before"]

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        self.tokens = self.tokens.index_select(0, rows)


class NeuralLm(VocabularyModel):
    """A feed-forward language model over the last `window` tokens.

    The logits are b + U tanh(d + H x), with `direct` + W x, where x are the concatenated
    embeddings. Positions before the text are padding, with an embedding of zeros. The features
    are tanh(d + H x), with `direct` [tanh(d + H x); x], so that one output layer holds U and W.
    """

    stateful = True

    def __init__(self, config: NeuralLmConfig) -> None:
        super().__init__()
        self.config = config
        window_width = config.window * config.embedding
        features = config.hidden + (window_width if config.direct else 0)
        self.vocabulary = VocabularyLayer(config.vocab_size, config.embedding, features, tied=config.tied, padding=PAD)
        self.hidden = new_linear(window_width, config.hidden, True)
        self.dropout = Dropout(config.dropout)

    def read(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time width"], SegmentState]:
        history = self._prepend_history(tokens, segment_state)
        embedded = self.dropout(self.vocabulary.embed(history))
        time = tokens.shape[1]
        windows = torch.cat([embedded[:, offset : offset + time] for offset in range(self.config.window)], -1)
        hidden = self.dropout(torch.tanh(self.hidden(windows)))
        return torch.cat([hidden, windows], -1) if self.config.direct else hidden, (self._keep_last(history),)

    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> NeuralLmState:
        last_tokens = self._keep_last(self._prepend_history(tokens[:, :-1], None))
        return NeuralLmState(last_tokens.repeat_interleave(copies, 0))

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, NeuralLmState)
        features, (state.tokens,) = self.read(tokens[:, None], (state.tokens,))
        return self.output(features[:, 0]), state

    def _prepend_history(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None
    ) -> Int[Tensor, "rows known"]:
        """Prepend the previous tokens that are in the first token's window."""
        previous = (
            tokens.new_full((len(tokens), self.config.window - 1), PAD) if segment_state is None else segment_state[0]
        )
        return torch.cat([previous, tokens], 1)

    def _keep_last(self, history: Int[Tensor, "rows known"]) -> Int[Tensor, "rows before"]:
        """Return the tokens that are in the next token's window."""
        return history[:, history.shape[1] - self.config.window + 1 :]
