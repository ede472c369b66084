"""Recurrent language models: RNN (Mikolov et al. 2010), GRU and LSTM, with several kinds of dropout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import PAD
from regard.bounds import Layers, Share, VocabularySize, Width, check_bounds
from regard.layers.dropout import Dropout, VariationalDropout
from regard.layers.recurrent import Cell, LayerState, Recurrent
from regard.layers.vocabulary import VocabularyLayer
from regard.models.language_model import SegmentState, VocabularyModel
from regard.models.state import State


@dataclass(frozen=True, kw_only=True)
class RecurrentLmConfig:
    """Settings of `RecurrentLm`."""

    vocab_size: VocabularySize  # number of tokens in the vocabulary
    embedding: Width = 256  # width of the embeddings
    hidden: Width = 256  # width of the recurrent state
    layers: Layers = 1  # number of recurrent layers
    cell: Cell = "lstm"  # recurrent cell; rnn is a plain tanh cell, rnn-sigmoid a plain sigmoid cell
    dropout: Share = 0.3  # dropout between layers, and on input and output if not set separately
    input_dropout: Share | None = None  # dropout on embeddings; same as dropout if not set
    output_dropout: Share | None = None  # dropout before the output layer; same as dropout if not set
    embedding_dropout: Share = 0.0  # share of tokens whose embedding is zeroed throughout a batch
    weight_dropout: Share = 0.0  # dropout on the recurrent weights
    variational_dropout: bool = True  # use the same dropout mask at all positions of a segment
    tied: bool = True  # share weights between the embedding and the output layer
    learn_initial_state: bool = False  # learn the initial state; otherwise it is zero

    def __post_init__(self) -> None:
        check_bounds(self)


class StatefulStack(nn.Module):
    """Recurrent layers that continue from a segment state: h, and c for an LSTM, of each layer.

    Without a segment state they start with zeros, or with a learned h per layer.
    """

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.layers = Recurrent(
            config.cell,
            config.embedding,
            config.hidden,
            config.layers,
            dropout=config.dropout,
            variational=config.variational_dropout,
            weight_dropout=config.weight_dropout,
        )
        self.start = nn.Parameter(torch.zeros(config.layers, config.hidden)) if config.learn_initial_state else None

    def forward(
        self, embedded: Float[Tensor, "rows time embedding"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time hidden"], SegmentState]:
        """Return the states of the last layer, and the segment state."""
        segment_state = self.initial_state(embedded) if segment_state is None else segment_state
        if not embedded.shape[1]:
            return embedded.new_zeros(len(embedded), 0, self.layers.hidden), segment_state
        states, layers = self.layers(embedded, state=self._split_layers(segment_state))
        return states, flatten_layers(layers)

    def step(
        self, embedded: Float[Tensor, "rows embedding"], segment_state: SegmentState
    ) -> tuple[Float[Tensor, "rows hidden"], SegmentState]:
        """Run one step for one token per row."""
        state, layers = self.layers.step(embedded, self._split_layers(segment_state))
        return state, flatten_layers(layers)

    def initial_state(self, embedded: Float[Tensor, "rows time embedding"]) -> SegmentState:
        """Return the segment state at the start of a text."""
        zeros = self.layers.zero_state(len(embedded), embedded)
        if self.start is None:
            return flatten_layers(zeros)
        return flatten_layers([(h + start, *c) for start, (h, *c) in zip(self.start, zeros, strict=True)])

    def _split_layers(self, segment_state: SegmentState) -> list[LayerState]:
        """Split a segment state into the states of the layers."""
        tensors_per_layer = len(segment_state) // self.layers.layers
        return [
            segment_state[start : start + tensors_per_layer]
            for start in range(0, len(segment_state), tensors_per_layer)
        ]


@dataclass
class RecurrentLmState:
    """The decoding state: the recurrent state of each hypothesis."""

    layer_states: SegmentState

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        self.layer_states = tuple(part.index_select(0, rows) for part in self.layer_states)


class RecurrentLm(VocabularyModel):
    """A recurrent language model.

    Example:
        >>> model = RecurrentLm(RecurrentLmConfig(vocab_size=1000, cell="gru"))
    """

    stateful = True

    def __init__(self, config: RecurrentLmConfig) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = new_vocabulary(config, config.hidden)
        self.stack = StatefulStack(config)
        self.input_dropout = new_dropout(config, config.input_dropout)
        self.output_dropout = new_dropout(config, config.output_dropout)

    def read(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time width"], SegmentState]:
        states, segment_state = self.stack(self.input_dropout(self.vocabulary.embed(tokens)), segment_state)
        return self.output_dropout(states), segment_state

    @torch.no_grad()
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> RecurrentLmState:
        _, segment_state = self.read(tokens[:, :-1])
        return RecurrentLmState(tuple(part.repeat_interleave(copies, 0) for part in segment_state))

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, RecurrentLmState)
        embedded = self.input_dropout(self.vocabulary.embed(tokens)[:, None])[:, 0]
        hidden, state.layer_states = self.stack.step(embedded, state.layer_states)
        return self.output(self.output_dropout(hidden[:, None])[:, 0]), state


def flatten_layers(layers: Sequence[LayerState]) -> SegmentState:
    """Join the states of all layers into one segment state."""
    return tuple(part for layer in layers for part in layer)


def new_vocabulary(config: RecurrentLmConfig, features: int) -> VocabularyLayer:
    """Build the embedding and output layer for features of this width."""
    return VocabularyLayer(
        config.vocab_size,
        config.embedding,
        features,
        tied=config.tied,
        padding=PAD,
        embedding_dropout=config.embedding_dropout,
    )


def new_dropout(config: RecurrentLmConfig, share: float | None) -> nn.Module:
    """Build a dropout module with this share, or with `config.dropout` if None."""
    share = config.dropout if share is None else share
    return VariationalDropout(share) if config.variational_dropout else Dropout(share)
