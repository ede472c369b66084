"""Recurrent encoder-decoder models, with or without attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.normalizers import NORMALIZERS
from regard.attention.scores import SCORE_ACTIVATIONS, SCORES
from regard.attention.shared_context import run_uncompiled
from regard.batch import PAD, Batch
from regard.bounds import Heads, Layers, Power, Share, VocabularySize, Width, check_bounds
from regard.errors import RegardError
from regard.layers.attention import PROJECTED, check_score_settings, get_score_settings, new_linear
from regard.layers.bridge import Bridge
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding, new_embedding
from regard.layers.recurrent import Cell, LayerState, Recurrent
from regard.layers.source_attention import Composition, Memory, SourceAttention
from regard.models.features import Features
from regard.models.pointer import CopyFeatures, CopySource, Pointer, to_known_tokens
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.settings import check_choices


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Settings of `RecurrentSeq2Seq`."""

    source_vocab_size: VocabularySize  # number of source tokens in the vocabulary
    target_vocab_size: VocabularySize  # number of target tokens in the vocabulary
    embedding: Width = 256  # width of the embeddings
    hidden: Width = 256  # width of the recurrent state, per direction
    layers: Layers = 1  # number of recurrent layers, in the encoder and in the decoder
    cell: Cell = "gru"  # recurrent cell; rnn is a plain tanh cell, rnn-sigmoid a plain sigmoid cell
    bidirectional: bool = False  # read the source in both directions
    reverse_source: bool = False  # read the source from its end (Sutskever et al. 2014)
    dropout: Share = 0.2  # dropout on embeddings, between layers, and before the output layer
    attention: Literal["none", "before", "after"] = "after"  # attend before or after each decoder step, or not at all
    score: str = "dot"  # attention score function
    score_rank: Width | None = None  # rank of the score reduced_rank; a quarter of the smaller width by default
    score_hidden: Width | None = None  # hidden width of the scores additive and concat; that of the query by default
    score_activation: Literal["tanh", "relu", "sigmoid"] = "tanh"  # activation of the score additive
    score_power: Power = 1.0  # power of the score epanechnikov; 2 is the kernel of textbooks
    heads: Heads = 1  # number of attention heads
    project: tuple[str, ...] = ()  # which of query, keys and values get a linear projection
    normalizer: str = "softmax"  # how attention scores become weights: softmax, sparsemax, entmax15 or none
    learn_width: bool = True  # learn the width of a kernel score
    composition: Literal["join", "concat", "sum", "gate", "maxout"] = "concat"  # how state and context are combined
    input_feeding: bool = True  # with attention after the step, feed the combined state into the next step
    copy: bool | Literal["auto"] = "auto"  # copy source tokens by attention (See et al. 2017); auto: if most can be
    tied: bool = False  # share recurrent layers and vocabulary between encoder and decoder
    tied_embeddings: bool = False  # share weights between the target embedding and the output layer

    def __post_init__(self) -> None:
        check_bounds(self)
        check_choices(self, score=SCORES, normalizer=NORMALIZERS, project=PROJECTED, score_activation=SCORE_ACTIVATIONS)
        check_score_settings(self, self.score)
        if self.copy is True and (self.attention == "none" or self.normalizer == "none"):
            missing = "attention" if self.attention == "none" else "a normalizer"
            raise RegardError(f"copy = true requires {missing}, but {missing.split()[-1]} is none")
        if self.tied:
            self._check_tied()

    def _check_tied(self) -> None:
        if self.source_vocab_size != self.target_vocab_size:
            raise RegardError(
                "tied requires source_vocab_size and target_vocab_size to be equal, "
                f"got {self.source_vocab_size} and {self.target_vocab_size}"
            )
        if self.bidirectional or self.feeds:
            fed = "input_feeding" if self.attention == "after" else 'attention = "before"'
            raise RegardError(
                f"tied cannot be combined with {'bidirectional' if self.bidirectional else fed}; "
                'set bidirectional = false, input_feeding = false and attention = "after" or "none"'
            )

    @property
    def feeds(self) -> bool:
        """Whether attention results are fed into the decoder, whose steps then run one by one."""
        return self.attention == "before" or (self.attention == "after" and self.input_feeding)


@dataclass
class RecurrentState:
    """The decoding state: encoded source, recurrent state of each hypothesis, input feed, and what sources copy."""

    memory: Memory | None
    layers: list[LayerState]
    feed: Float[Tensor, "rows width"] | None  # the last combined state, with input feeding
    copy_source: CopySource | None = None

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        self.layers = [tuple(part.index_select(0, rows) for part in layer) for layer in self.layers]
        if self.feed is not None:
            self.feed = self.feed.index_select(0, rows)


class DecoderStep(NamedTuple):
    """The result of decoder steps: the combined states and, with copying, the gate and the attention weights."""

    composed: Float[Tensor, "*places width"]
    gate: Float[Tensor, "*places"] | None = None
    weights: Float[Tensor, "*places source"] | None = None


def stack_steps(steps: Sequence[DecoderStep]) -> DecoderStep:
    """Stack single steps of all rows to (rows, target, ...)."""
    gates = [step.gate for step in steps if step.gate is not None]
    weights = [step.weights for step in steps if step.weights is not None]
    composed = torch.stack([step.composed for step in steps], 1)
    return DecoderStep(composed, torch.stack(gates, 1), torch.stack(weights, 1)) if gates else DecoderStep(composed)


class RecurrentSeq2Seq(Seq2Seq):
    """A recurrent encoder, a decoder that starts from its last state, and attention between them.

    If attention results are not fed back into the decoder, training runs all its steps at once.

    Example:
        >>> model = RecurrentSeq2Seq(RecurrentConfig(source_vocab_size=100, target_vocab_size=50, score="additive"))
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config, self.reverses_source = config, config.reverse_source
        is_output = config.tied_embeddings
        self.source_embedding = new_embedding(
            config.source_vocab_size, config.embedding, PAD, is_output=is_output and config.tied
        )
        self.target_embedding = None
        if not config.tied:
            self.target_embedding = new_embedding(config.target_vocab_size, config.embedding, PAD, is_output=is_output)
        self.encoder = new_stack(config, config.embedding, bidirectional=config.bidirectional)
        self.bridge = Bridge(config.cell, config.hidden, config.layers) if config.bidirectional else None
        self.attention = None if config.attention == "none" else build_source_attention(config, self.encoder.width)
        width, fed = config.hidden, 0
        if self.attention is not None:
            self.attentions = {"cross": ("attention",)}
            self.compose = Composition(config.composition, width, self.attention.width, config.embedding)
            width = self.compose.width
            fed = self.attention.width if config.attention == "before" else width if config.feeds else 0
        self.copies, self.pointer = config.copy is True, None
        self.generated_size = config.target_vocab_size
        if self.copies and self.attention is not None:
            self.pointer = Pointer(self.attention.width, config.hidden, config.embedding)
        self.decoder = None if config.tied else new_stack(config, config.embedding + fed)
        self.dropout = Dropout(config.dropout)
        self.reduce = None
        if config.tied_embeddings:
            self.reduce = None if width == config.embedding else new_linear(width, config.embedding, False)
            self.bias = nn.Parameter(torch.zeros(config.target_vocab_size))
        else:
            self.vocabulary = new_linear(width, config.target_vocab_size, True)

    @property
    def input_embedding(self) -> nn.Module:
        return self.source_embedding

    def features(self, batch: Batch) -> Float[Tensor, "batch target width"] | CopyFeatures:
        if batch.target_in is None:
            raise RegardError("RecurrentSeq2Seq: batch has no targets; use start and step to decode without them")
        embedded = self._embed_target(batch.target_in)
        if self.config.feeds:
            state = self._encode(batch, looks=embedded.shape[1])
            return self._to_features(run_uncompiled(self._advance_all, embedded, state), state)
        state = self._encode(batch, looks=1)
        states, _ = self._get_decoder()(embedded, state=state.layers)
        if self.attention is None or state.memory is None:
            return self._to_features(DecoderStep(states), state)
        summary, weights = self._look(states, state.memory)
        gate = None if self.pointer is None else self.pointer(summary, states, embedded)
        return self._to_features(DecoderStep(self.compose(states, summary, embedded), gate, weights), state)

    def output(self, features: Float[Tensor, "*places width"] | Features) -> Float[Tensor, "*places vocabulary"]:
        if isinstance(features, CopyFeatures):
            return features.mix(self.output(features.hidden))
        assert isinstance(features, Tensor)
        if self.config.tied_embeddings:
            return nn.functional.linear(features, self._get_target_embedding().weight, self.bias)
        return self.vocabulary(features)

    def start(self, batch: Batch, capacity: int, copies: int = 1) -> RecurrentState:
        state = self._encode(batch, looks=max(2, capacity))
        state.select(torch.arange(len(batch), device=batch.source.device).repeat_interleave(copies))
        return state

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, RecurrentState)
        return self.output(self._to_features(self._advance(self._embed_target(tokens), state), state)), state

    def _encode(self, batch: Batch, looks: int) -> RecurrentState:
        """Encode the sources; return the initial decoder state and the memory to attend to."""
        lengths = batch.source_lengths
        order = build_reversal(lengths.on_device, batch.source.shape[1]) if self.reverses_source else None
        source = batch.source if order is None else batch.source.gather(1, order)
        states, layers = self.encoder(self.dropout(self.source_embedding(source)), lengths)
        if self.bridge is not None:
            layers = self.bridge(layers)
        if self.attention is None:
            return RecurrentState(None, layers, None)
        copy_source = None if self.pointer is None else CopySource.of(batch, self.config.target_vocab_size)
        if order is not None:  # attention weights refer to the source in its original order
            states = states.gather(1, order[..., None].expand_as(states))
        fed = self.config.feeds and self.config.attention == "after"
        feed = states.new_zeros(len(states), self.compose.width) if fed else None
        return RecurrentState(self.attention.remember(states, lengths, looks), layers, feed, copy_source)

    def _advance_all(self, embedded: Float[Tensor, "rows target embedding"], state: RecurrentState) -> DecoderStep:
        """Run all decoder steps, one after the other."""
        return stack_steps([self._advance(step_input, state) for step_input in embedded.unbind(1)])

    def _advance(self, embedded: Float[Tensor, "rows embedding"], state: RecurrentState) -> DecoderStep:
        """Run one decoder step for every hypothesis and update the state."""
        attends_first, weights = self.config.attention == "before", None
        fed = state.feed
        if attends_first:
            fed, weights = self._attend(state.layers[-1][0], state)
        inputs = embedded if fed is None else torch.cat([embedded, fed], -1)
        top, state.layers = self._get_decoder().step(inputs, state.layers)
        if state.memory is None:
            return DecoderStep(top)
        summary = fed
        if summary is None or not attends_first:
            summary, weights = self._attend(top, state)
        composed: Tensor = self.compose(top, summary, embedded)
        if state.feed is not None:
            state.feed = composed
        gate = None if self.pointer is None else self.pointer(summary, top, embedded)
        return DecoderStep(composed, gate, weights)

    def _attend(
        self, query: Float[Tensor, "rows hidden"], state: RecurrentState
    ) -> tuple[Float[Tensor, "rows summary"], Float[Tensor, "rows source"] | None]:
        """Return the context and, with copying, the weights; hypotheses of one source share its memory."""
        assert state.memory is not None
        summary, weights = self._look(query.unflatten(0, (len(state.memory.keys), -1)), state.memory)
        return summary.flatten(0, 1), None if weights is None else weights.flatten(0, 1)

    def _look(
        self, query: Float[Tensor, "batch queries hidden"], memory: Memory
    ) -> tuple[Float[Tensor, "batch queries summary"], Float[Tensor, "batch queries source"] | None]:
        """Return the context of each query and, with copying, its weights."""
        assert self.attention is not None
        attended = self.attention(query, memory, return_weights=self.copies)
        return attended if isinstance(attended, tuple) else (attended, None)

    def _to_features(self, step: DecoderStep, state: RecurrentState) -> Float[Tensor, "*places width"] | CopyFeatures:
        """Return the input of the output layer."""
        hidden = self.dropout(step.composed if self.reduce is None else self.reduce(step.composed))
        if state.copy_source is None or step.gate is None or step.weights is None:
            return hidden
        ids = state.copy_source.expand(step.gate.shape)
        return CopyFeatures(hidden, step.gate, step.weights, ids, state.copy_source.size)

    def _embed_target(self, tokens: Int[Tensor, "..."]) -> Float[Tensor, "... embedding"]:
        """Return the embeddings of target tokens, with dropout."""
        return self.dropout(self._get_target_embedding()(to_known_tokens(tokens, self.config.target_vocab_size)))

    def _get_target_embedding(self) -> Embedding:
        """Return the target embedding; with `tied`, the source embedding."""
        return self.source_embedding if self.target_embedding is None else self.target_embedding

    def _get_decoder(self) -> Recurrent:
        """Return the decoder's recurrent layers; with `tied`, the encoder's."""
        return self.encoder if self.decoder is None else self.decoder


def build_reversal(lengths: Int[Tensor, " batch"], size: int) -> Int[Tensor, "batch source"]:
    """Return indices that reverse each sequence but keep <eos> and padding in place; they are their own inverse."""
    positions = torch.arange(size, device=lengths.device)
    last = lengths[:, None] - 2
    return torch.where(positions <= last, last - positions, positions)


def new_stack(config: RecurrentConfig, inputs: int, *, bidirectional: bool = False) -> Recurrent:
    """Build recurrent layers with the settings of a config."""
    return Recurrent(
        config.cell, inputs, config.hidden, config.layers, bidirectional=bidirectional, dropout=config.dropout
    )


def build_source_attention(config: RecurrentConfig, key_width: int) -> SourceAttention:
    """Build the attention from decoder states to encoder states of width `key_width`."""
    return SourceAttention(
        config.hidden,
        key_width,
        config.score,
        config.heads,
        project=config.project,
        normalizer=config.normalizer,
        learn_width=config.learn_width,
        score_settings=get_score_settings(config),
    )
