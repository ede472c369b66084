"""Exact hard attention: each target token is written by one source position, summed over all alignments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.scores import build_score
from regard.attention.watch import is_watching, report
from regard.attention.weights import DenseWeights
from regard.batch import PAD, Batch
from regard.bounds import Layers, Share, VocabularySize, Width, check_bounds
from regard.errors import RegardError
from regard.layers.attention import new_linear
from regard.layers.bridge import Bridge
from regard.layers.dropout import Dropout
from regard.layers.embedding import new_embedding
from regard.layers.hard_alignment import (
    compute_posterior,
    move_alignment,
    normalize_transitions,
    predict_alignment,
    start_alignment,
)
from regard.layers.recurrent import LayerState, Recurrent
from regard.models.features import Features
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.settings import check_choices

SCORE_NAMES = ("additive", "bilinear", "concat", "dot", "scaled_dot")
"""Scores whose value depends on the query and one key alone, and learns where to look."""


@dataclass(frozen=True, kw_only=True)
class HardAttentionConfig:
    """Settings of `HardAttention`."""

    source_vocab_size: VocabularySize  # number of source tokens in the vocabulary
    target_vocab_size: VocabularySize  # number of target tokens in the vocabulary
    embedding: Width = 256  # width of the embeddings
    hidden: Width = 256  # width of the recurrent state, per direction
    layers: Layers = 1  # number of recurrent layers, in the encoder and in the decoder
    cell: Literal["rnn", "rnn-sigmoid", "gru", "lstm"] = "lstm"  # recurrent cell
    dropout: Share = 0.2  # dropout on embeddings, between layers, and before the output layer
    score: Literal["additive", "bilinear", "concat", "dot", "scaled_dot"] = "bilinear"  # score of a source position
    monotonic: bool = True  # whether the alignment never moves back
    order: Literal[0, 1] = 1  # whether a step depends on the position of the step before (1) or not (0)
    max_jump: Width = 4  # with order 1, the longest move with a score of its own; longer ones share that score

    def __post_init__(self) -> None:
        check_bounds(self)
        check_choices(self, score=SCORE_NAMES)

    @property
    def jumps(self) -> int:
        """The number of moves with a score of their own."""
        if not self.order:
            return 1
        return self.max_jump + 1 if self.monotonic else 2 * self.max_jump + 1


@dataclass(frozen=True, eq=False)
class AlignedFeatures(Features):
    """The log-probability of each token at each source position, and of the position."""

    tokens: Float[Tensor, "*places source vocabulary"]
    positions: Float[Tensor, "*places source"]


@dataclass
class HardAttentionState:
    """The decoding state: encoded source, recurrent state of each hypothesis, and the features of the last step."""

    keys: Float[Tensor, "batch source hidden"]
    visible: Bool[Tensor, "batch 1 source"]
    layers: list[LayerState]
    last: AlignedFeatures | None = None

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        self.layers = [tuple(part.index_select(0, rows) for part in layer) for layer in self.layers]
        if self.last is not None:
            self.last = self.last[rows]


class HardAttention(Seq2Seq):
    """A bidirectional encoder, and a decoder whose every token is written by one source position.

    The state s_i of the decoder reads the target tokens so far, not the positions that wrote them, so the sum over all
    alignments is exact: p(y_i | a_i = j) = softmax(W tanh(S s_i + K h_j)), and p(a_i = j | a_{i-1} = k) is a softmax of
    score(s_i, K h_j) plus a score of the move from k to j, over the positions from k on if monotonic. The weights are
    the posterior of the alignment given the target or, while decoding, its distribution given the tokens so far.

    Time and memory grow with target * source * (source + vocabulary), so this is a model for letters and phones.

    Example:
        >>> model = HardAttention(HardAttentionConfig(source_vocab_size=30, target_vocab_size=40, hidden=64))
    """

    def __init__(self, config: HardAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = new_embedding(config.source_vocab_size, config.embedding, PAD, is_output=False)
        self.target_embedding = new_embedding(config.target_vocab_size, config.embedding, PAD, is_output=False)
        sizes = (config.embedding, config.hidden, config.layers)
        self.encoder = Recurrent(config.cell, *sizes, bidirectional=True, dropout=config.dropout)
        self.bridge = Bridge(config.cell, config.hidden, config.layers)
        self.decoder = Recurrent(config.cell, *sizes, dropout=config.dropout)
        self.keys = new_linear(2 * config.hidden, config.hidden, False)
        self.state = new_linear(config.hidden, config.hidden, True)
        self.alignment = Alignment(config)
        self.vocabulary = new_linear(config.hidden, config.target_vocab_size, True)
        self.dropout = Dropout(config.dropout)
        self.attentions = {"cross": ("alignment",)}

    @property
    def input_embedding(self) -> nn.Module:
        return self.source_embedding

    def features(self, batch: Batch) -> AlignedFeatures:
        if batch.target_in is None or batch.target_out is None:
            raise RegardError("HardAttention: batch has no targets; use start and step to decode without them")
        state = self._encode(batch)
        states, _ = self.decoder(self.dropout(self.target_embedding(batch.target_in)), state=state.layers)
        tokens = self.compute_token_log_probabilities(states, state.keys)
        written = batch.target_out[:, :, None, None].expand(-1, -1, tokens.shape[2], 1)
        emissions = tokens.gather(-1, written)[..., 0].masked_fill((batch.target_out == PAD)[..., None], 0)
        return AlignedFeatures(tokens, self.alignment(states, state.keys, state.visible, emissions))

    def output(self, features: Float[Tensor, "*places width"] | Features) -> Float[Tensor, "*places vocabulary"]:
        assert isinstance(features, AlignedFeatures)
        return (features.tokens + features.positions[..., None]).logsumexp(-2)

    @torch.no_grad()
    def start(self, batch: Batch, capacity: int, copies: int = 1) -> HardAttentionState:
        state = self._encode(batch)
        state.select(torch.arange(len(batch), device=batch.source.device).repeat_interleave(copies))
        return state

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, HardAttentionState)
        top, state.layers = self.decoder.step(self.dropout(self.target_embedding(tokens)), state.layers)
        together = top.unflatten(0, (len(state.keys), -1))  # hypotheses of one source share its keys
        before = None
        if state.last is not None:
            written = tokens[:, None, None].expand(-1, state.last.tokens.shape[1], 1)
            before = (state.last.positions, state.last.tokens.gather(-1, written)[..., 0])
        positions = self.alignment(together, state.keys, state.visible, before=before).flatten(0, 1)
        log_probabilities = self.compute_token_log_probabilities(together, state.keys).flatten(0, 1)
        state.last = AlignedFeatures(log_probabilities, positions)
        return self.output(state.last), state

    def compute_token_log_probabilities(
        self, states: Float[Tensor, "batch target hidden"], keys: Float[Tensor, "batch source hidden"]
    ) -> Float[Tensor, "batch target source vocabulary"]:
        """Return log p(y_i | a_i = j) of every token."""
        mixed = torch.tanh(self.state(states)[:, :, None] + keys[:, None])
        logits: Tensor = self.vocabulary(self.dropout(mixed))
        return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def _encode(self, batch: Batch) -> HardAttentionState:
        """Encode the sources; return the state before the first step, with one hypothesis per source."""
        states, layers = self.encoder(self.dropout(self.source_embedding(batch.source)), batch.source_lengths)
        visible = batch.source_lengths.real(batch.source.shape[1]).mT
        return HardAttentionState(self.keys(states), visible, self.bridge(layers))


class Alignment(nn.Module):
    """The distribution of the source position that writes each target token."""

    def __init__(self, config: HardAttentionConfig) -> None:
        super().__init__()
        self.monotonic = config.monotonic
        self.score = build_score(config.score, config.hidden, config.hidden)
        self.jumps = new_linear(config.hidden, config.jumps, True) if config.jumps > 1 else None

    def forward(
        self,
        states: Float[Tensor, "batch target hidden"],
        keys: Float[Tensor, "batch source hidden"],
        visible: Bool[Tensor, "batch 1 source"],
        emissions: Float[Tensor, "batch target source"] | None = None,
        before: tuple[Float[Tensor, "rows source"], Float[Tensor, "rows source"]] | None = None,
    ) -> Float[Tensor, "batch target source"]:
        """Return log p(a_i | y_1 ... y_{i-1}).

        With `emissions`, log p(y_i | a_i), of every step of a given target; the weights reported are p(a_i | y).
        Without, of the next step of each hypothesis, grouped by source; the weights reported are what is returned.
        `before` then has what was returned for the last step, and log p(y_{i-1} | a_{i-1}); it is None at the start.
        """
        transitions = self.compute_transitions(states, keys, visible)
        if emissions is not None:
            if is_watching():
                report(DenseWeights(compute_posterior(transitions.detach(), emissions.detach())[:, None]))
            return predict_alignment(transitions, emissions)
        if before is None:
            positions = start_alignment(transitions)
        else:
            positions = move_alignment(*before, transitions.flatten(0, 1)).unflatten(0, states.shape[:2])
        if is_watching():
            report(DenseWeights(positions.exp()[:, None]))
        return positions

    def compute_transitions(
        self,
        states: Float[Tensor, "batch target hidden"],
        keys: Float[Tensor, "batch source hidden"],
        visible: Bool[Tensor, "batch 1 source"],
    ) -> Float[Tensor, "batch target source source"]:
        """Return the transitions of every step."""
        jumps = states.new_zeros(*states.shape[:2], 1) if self.jumps is None else self.jumps(states)
        return normalize_transitions(self.score(states, keys), jumps, visible, monotonic=self.monotonic)
