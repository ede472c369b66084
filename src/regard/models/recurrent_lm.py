"""Recurrent language models: plain (Mikolov et al. 2010), gated, deep, and with all that is dropped of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import PAD
from regard.layers.dropout import Dropout, VariationalDropout
from regard.layers.recurrent import Cell, LayerState, Recurrent
from regard.layers.vocabulary import Vocabulary
from regard.models.language import Carried, VocabularyModel
from regard.models.state import State
from regard.settings import check_least, check_shares


@dataclass(frozen=True, kw_only=True)
class RecurrentLmConfig:
    """Recurrent layers over a text, and what is dropped in training."""

    size: int  # how many tokens there are
    embedding: int = 256  # width of a token
    hidden: int = 256  # width of a state
    layers: int = 1  # recurrent layers
    cell: Cell = "lstm"  # rnn (tanh), gru or lstm
    dropout: float = 0.3  # between layers, and where the next two say nothing else
    input_dropout: float | None = None  # on embeddings; as dropout unless set
    output_dropout: float | None = None  # before the output; as dropout unless set
    embedding_dropout: float = 0.0  # the share of all tokens that are not known for a while
    weight_dropout: float = 0.0  # on the matrices from state to state
    variational: bool = True  # the same is dropped at all steps of a segment
    tied: bool = True  # the output layer is the embedding
    learn_start: bool = False  # learn the state before a text, which is zero otherwise

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "embedding", "hidden", "layers")
        check_shares(self, "dropout", "input_dropout", "output_dropout", "embedding_dropout", "weight_dropout")


class CarriedStack(nn.Module):
    """Recurrent layers that go on from what is carried: h, and for an LSTM c, of each layer.

    Without it they begin with zeros, or with an h of each layer that is learnt.
    """

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.layers = Recurrent(
            config.cell,
            config.embedding,
            config.hidden,
            config.layers,
            dropout=config.dropout,
            variational=config.variational,
            weight_dropout=config.weight_dropout,
        )
        self.start = nn.Parameter(torch.zeros(config.layers, config.hidden)) if config.learn_start else None

    def forward(
        self, embedded: Float[Tensor, "rows time embedding"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows time hidden"], Carried]:
        """The states of the last layer, and what is carried on."""
        carried = self.first(embedded) if carried is None else carried
        if not embedded.shape[1]:
            return embedded.new_zeros(len(embedded), 0, self.layers.hidden), carried
        states, layers = self.layers(embedded, state=self._apart(carried))
        return states, flat(layers)

    def step(
        self, embedded: Float[Tensor, "rows embedding"], carried: Carried
    ) -> tuple[Float[Tensor, "rows hidden"], Carried]:
        """The same for one token of each row."""
        state, layers = self.layers.step(embedded, self._apart(carried))
        return state, flat(layers)

    def first(self, embedded: Float[Tensor, "rows time embedding"]) -> Carried:
        """What the layers remember before a text."""
        zeros = self.layers.zeros(len(embedded), embedded)
        if self.start is None:
            return flat(zeros)
        return flat([(h + start, *c) for start, (h, *c) in zip(self.start, zeros, strict=True)])

    def _apart(self, carried: Carried) -> list[LayerState]:
        """What is carried, layer by layer."""
        each = len(carried) // self.layers.layers
        return [carried[place : place + each] for place in range(0, len(carried), each)]


@dataclass
class RecurrentLmState:
    """What the layers remember of each hypothesis."""

    carried: Carried

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        self.carried = tuple(part.index_select(0, rows) for part in self.carried)


class RecurrentLm(VocabularyModel):
    """Recurrent layers that read a text of any length, and a softmax over what comes next."""

    carries = True

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = new_vocabulary(config, config.hidden)
        self.stack = CarriedStack(config)
        self.input_dropout = new_dropout(config, config.input_dropout)
        self.output_dropout = new_dropout(config, config.output_dropout)

    def read(
        self, tokens: Int[Tensor, "rows time"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows time width"], Carried]:
        states, carried = self.stack(self.input_dropout(self.vocabulary.embed(tokens)), carried)
        return self.output_dropout(states), carried

    @torch.no_grad()
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> RecurrentLmState:
        _, carried = self.read(tokens[:, :-1])
        return RecurrentLmState(tuple(part.repeat_interleave(copies, 0) for part in carried))

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, RecurrentLmState)
        embedded = self.input_dropout(self.vocabulary.embed(tokens)[:, None])[:, 0]
        found, state.carried = self.stack.step(embedded, state.carried)
        return self.output(self.output_dropout(found[:, None])[:, 0]), state


def flat(layers: Sequence[LayerState]) -> Carried:
    """What all layers remember, one tensor after the other."""
    return tuple(part for layer in layers for part in layer)


def new_vocabulary(config: RecurrentLmConfig, features: int) -> Vocabulary:
    """Embedding and output layer as they are set, for features of this width."""
    return Vocabulary(
        config.size,
        config.embedding,
        features,
        tied=config.tied,
        padding=PAD,
        embedding_dropout=config.embedding_dropout,
    )


def new_dropout(config: RecurrentLmConfig, share: float | None) -> nn.Module:
    """Dropout of a share, or of the general one, as it is set."""
    share = config.dropout if share is None else share
    return VariationalDropout(share) if config.variational else Dropout(share)
