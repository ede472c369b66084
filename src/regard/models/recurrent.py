"""Recurrent encoder and decoder, with or without attention between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.normalise import NORMALISERS
from regard.attention.scores import SCORES
from regard.batch import PAD, Batch
from regard.errors import RegardError
from regard.layers.attention import PROJECTED, new_linear
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding, new_embedding
from regard.layers.recurrent import Cell, LayerState, Recurrent
from regard.layers.source import Composition, Memory, SourceAttention
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.settings import check_known, check_least, check_shares


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Encoder, decoder, and what passes between them."""

    source_size: int  # how many tokens the source has
    target_size: int  # how many tokens the target has
    embedding: int = 256  # width of a token
    hidden: int = 256  # width of a state, in each direction
    layers: int = 1  # recurrent layers, in encoder and decoder
    cell: Cell = "gru"  # rnn (tanh), gru or lstm
    bidirectional: bool = False  # read the source from both ends
    reverse_source: bool = False  # read the source from its end (Sutskever et al. 2014)
    dropout: float = 0.2  # on embeddings, between layers, and before the output
    attention: Literal["none", "before", "after"] = "after"  # before the step, which sees what was found, or after it
    score: str = "dot"  # how well a state of the source answers the decoder
    heads: int = 1  # attentions side by side
    project: tuple[str, ...] = ()  # which of query, keys and values are projected: W^Q, W^K, W^V
    normaliser: str = "softmax"  # softmax, sparsemax, entmax15 or none
    learn_width: bool = True  # whether the width of a kernel is learnt
    composition: Literal["join", "concat", "sum", "gate", "maxout"] = "concat"  # of state and what was found
    input_feeding: bool = True  # with attention after the step: the composed state enters the next step
    tied: bool = False  # encoder and decoder share one recurrent stack and one vocabulary
    tied_embeddings: bool = False  # the output layer is the target's embedding

    def __post_init__(self) -> None:
        check_least(self, 1, "source_size", "target_size", "embedding", "hidden", "layers", "heads")
        check_shares(self, "dropout")
        check_known(self, score=SCORES, normaliser=NORMALISERS, project=PROJECTED)
        if self.tied:
            self._check_tied()

    def _check_tied(self) -> None:
        if self.source_size != self.target_size:
            raise RegardError(
                f"tied shares one vocabulary; source_size is {self.source_size}, target_size {self.target_size}"
            )
        if self.bidirectional or self.feeds:
            what = "bidirectional" if self.bidirectional else "input_feeding" if self.attention == "after" else "before"
            raise RegardError(
                f"tied shares one recurrent stack, which {what} makes differ; "
                'take bidirectional = false, input_feeding = false and attention = "after" or "none"'
            )

    @property
    def feeds(self) -> bool:
        """Whether what was found in the source enters the decoder's steps, which then go one by one."""
        return self.attention == "before" or (self.attention == "after" and self.input_feeding)


@dataclass
class RecurrentState:
    """What the decoder remembers; the source, and what it is made into, stays where it is."""

    memory: Memory | None
    layers: list[LayerState]
    feed: Float[Tensor, "rows width"] | None  # the last composed state, where it enters the next step

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        self.layers = [tuple(part.index_select(0, rows) for part in layer) for layer in self.layers]
        if self.feed is not None:
            self.feed = self.feed.index_select(0, rows)


class RecurrentSeq2Seq(Seq2Seq):
    """An encoder, a decoder that starts from its last state, and attention from one to the other.

    Where nothing that was found is fed back into the decoder, all its steps are run,
    and attend, at once.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config, self.reverses_source = config, config.reverse_source
        is_output = config.tied_embeddings
        self.source_embedding = new_embedding(
            config.source_size, config.embedding, PAD, is_output=is_output and config.tied
        )
        self.target_embedding = None
        if not config.tied:
            self.target_embedding = new_embedding(config.target_size, config.embedding, PAD, is_output=is_output)
        self.encoder = new_stack(config, config.embedding, bidirectional=config.bidirectional)
        self.bridge = Bridge(config) if config.bidirectional else None
        self.attention = None if config.attention == "none" else new_attention(config, self.encoder.width)
        width, fed = config.hidden, 0
        if self.attention is not None:
            self.attentions = {"cross": ("attention",)}
            self.compose = Composition(config.composition, width, self.attention.width, config.embedding)
            width = self.compose.width
            fed = self.attention.width if config.attention == "before" else width if config.feeds else 0
        self.decoder = None if config.tied else new_stack(config, config.embedding + fed)
        self.dropout = Dropout(config.dropout)
        self.reduce = None
        if config.tied_embeddings:
            self.reduce = None if width == config.embedding else new_linear(width, config.embedding, False)
            self.bias = nn.Parameter(torch.zeros(config.target_size))
        else:
            self.vocabulary = new_linear(width, config.target_size, True)

    @property
    def input_embedding(self) -> nn.Module:
        return self.source_embedding

    def features(self, batch: Batch) -> Float[Tensor, "batch target width"]:
        if batch.target_in is None:
            raise RegardError("features: the batch has no targets to read; start and step predict without them")
        embedded = self.dropout(self._embedding()(batch.target_in))
        if self.config.feeds:
            state = self._read(batch, looks=embedded.shape[1])
            return self._finish(torch.stack([self._advance(each, state) for each in embedded.unbind(1)], 1))
        state = self._read(batch, looks=1)
        states, _ = self._stack()(embedded, state=state.layers)
        if self.attention is not None and state.memory is not None:
            states = self.compose(states, self.attention(states, state.memory), embedded)
        return self._finish(states)

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        if self.config.tied_embeddings:
            return nn.functional.linear(features, self._embedding().weight, self.bias)
        return self.vocabulary(features)

    def start(self, batch: Batch, capacity: int, copies: int = 1) -> RecurrentState:
        state = self._read(batch, looks=max(2, capacity))
        state.select(torch.arange(len(batch), device=batch.source.device).repeat_interleave(copies))
        return state

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, RecurrentState)
        composed = self._advance(self.dropout(self._embedding()(tokens)), state)
        return self.output(self._finish(composed)), state

    def _read(self, batch: Batch, looks: int) -> RecurrentState:
        """Read the sources: what the decoder starts from, and what it can look at."""
        lengths = batch.source_lengths
        order = reversing(lengths.on_device, batch.source.shape[1]) if self.reverses_source else None
        source = batch.source if order is None else batch.source.gather(1, order)
        states, layers = self.encoder(self.dropout(self.source_embedding(source)), lengths)
        if self.bridge is not None:
            layers = self.bridge(layers)
        if self.attention is None:
            return RecurrentState(None, layers, None)
        if order is not None:  # so that weights are over the source as it was given
            states = states.gather(1, order[..., None].expand_as(states))
        fed = self.config.feeds and self.config.attention == "after"
        feed = states.new_zeros(len(states), self.compose.width) if fed else None
        return RecurrentState(self.attention.remember(states, lengths, looks), layers, feed)

    def _advance(self, embedded: Float[Tensor, "rows embedding"], state: RecurrentState) -> Float[Tensor, "rows width"]:
        """One step of the decoder, of every hypothesis; the state is changed to that after it."""
        before = self.config.attention == "before"
        fed = self._look(state.layers[-1][0], state) if before else state.feed
        inputs = embedded if fed is None else torch.cat([embedded, fed], -1)
        top, state.layers = self._stack().step(inputs, state.layers)
        if state.memory is None:
            return top
        summary = fed if fed is not None and before else self._look(top, state)
        composed: Tensor = self.compose(top, summary, embedded)
        if state.feed is not None:
            state.feed = composed
        return composed

    def _look(self, query: Float[Tensor, "rows hidden"], state: RecurrentState) -> Float[Tensor, "rows summary"]:
        """What each hypothesis finds in its source; all of one source look at the same memory."""
        assert state.memory is not None and self.attention is not None
        return self.attention(query.unflatten(0, (len(state.memory.keys), -1)), state.memory).flatten(0, 1)

    def _finish(self, composed: Float[Tensor, "*places composed"]) -> Float[Tensor, "*places width"]:
        """What goes to the output layer."""
        return self.dropout(composed if self.reduce is None else self.reduce(composed))

    def _embedding(self) -> Embedding:
        """That of the target, which may be that of the source."""
        return self.source_embedding if self.target_embedding is None else self.target_embedding

    def _stack(self) -> Recurrent:
        """The decoder's recurrent layers, which may be the encoder's."""
        return self.encoder if self.decoder is None else self.decoder


class Bridge(nn.Module):
    """From the last states of an encoder that reads both ways to the first of a decoder.

    s_0 = tanh(W h) of each layer, where h has read the source from its end (Bahdanau et
    al. 2015, A.2.2); an LSTM's cell is W' c.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.states = nn.ModuleList(new_linear(config.hidden, config.hidden, True) for _ in range(config.layers))
        cells = config.layers if config.cell == "lstm" else 0
        self.cells = nn.ModuleList(new_linear(config.hidden, config.hidden, True) for _ in range(cells))

    def forward(self, layers: Sequence[LayerState]) -> list[LayerState]:
        """The first state of every layer."""
        found: list[LayerState] = [
            (torch.tanh(bridge(layer[0])),) for bridge, layer in zip(self.states, layers, strict=True)
        ]
        if not self.cells:
            return found
        return [(*part, bridge(layer[1])) for part, bridge, layer in zip(found, self.cells, layers, strict=True)]


def reversing(lengths: Int[Tensor, " batch"], size: int) -> Int[Tensor, "batch source"]:
    """Places that turn each sequence round and leave the <eos> at its end, and the padding, where they are.

    Taken twice, they restore it.
    """
    places = torch.arange(size, device=lengths.device)
    last = lengths[:, None] - 2
    return torch.where(places <= last, last - places, places)


def new_stack(config: RecurrentConfig, inputs: int, *, bidirectional: bool = False) -> Recurrent:
    """Recurrent layers as they are set."""
    return Recurrent(
        config.cell, inputs, config.hidden, config.layers, bidirectional=bidirectional, dropout=config.dropout
    )


def new_attention(config: RecurrentConfig, key_width: int) -> SourceAttention:
    """Attention from the decoder to states of this width, as it is set."""
    return SourceAttention(
        config.hidden,
        key_width,
        config.score,
        config.heads,
        project=config.project,
        normaliser=config.normaliser,
        learn_width=config.learn_width,
    )
