"""GPT: a Transformer decoder as language model (Radford et al. 2018, 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.visible import causal
from regard.bounds import Count, Layers, Length, VocabularySize
from regard.errors import RegardError, refuse_less
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding
from regard.layers.positions import EncodedPositions, PositionalEncoding, check_positions
from regard.layers.transformer import LayerConfig, LayerMemory, TransformerLayer, TransformerStack
from regard.models.language_model import LanguageModel, SegmentState
from regard.models.state import State

INIT_STD = 0.02
"""Standard deviation of the initial parameters."""


@dataclass(frozen=True, kw_only=True)
class GptConfig(LayerConfig):
    """Settings of `Gpt`."""

    vocab_size: VocabularySize  # number of tokens in the vocabulary
    layers: Layers = 4  # number of Transformer layers
    positions: Literal["sinusoidal", "learned", "rotary"] = "learned"  # positional encoding
    context_length: Length = 256  # maximum number of tokens the model sees at once
    activation: Literal["relu", "gelu", "gelu-tanh"] = "gelu-tanh"  # activation of the feed-forward layers
    norm: Literal["post", "pre"] = "pre"  # layer norm before each sublayer as in GPT-2, or after it as in GPT-1
    tied: bool = True  # share weights between the embedding and the output layer
    mute: tuple[Count, ...] = ()  # ids of tokens that are never generated

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positions(self.positions, self.width_per_head)
        for token_id in self.mute:
            if token_id >= self.vocab_size:
                raise RegardError(f"mute must contain token ids from 0 to {self.vocab_size - 1}, got {token_id}")
        if len(set(self.mute)) == self.vocab_size:
            raise RegardError("mute must not contain every token")


@dataclass(eq=False)
class GptState:
    """The decoding state: tokens of the context, and their keys and values in each layer."""

    memory: Sequence[LayerMemory]
    positions: EncodedPositions
    tokens: Int[Tensor, "rows room"]
    steps_left: int  # steps until the capacity is used up

    @property
    def length(self) -> int:
        """The number of cached tokens per hypothesis."""
        return self.memory[0].self_cache.length

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the hypotheses in place: row i becomes what was row rows[i]."""
        for layer in self.memory:
            layer.self_cache.select(rows)
        tokens = self.tokens[:, : self.length]
        tokens.copy_(tokens.index_select(0, rows))

    def copy(self, other: GptState, copies: int) -> None:
        """Copy another state's cache, repeating each of its rows `copies` times."""
        for layer, other_layer in zip(self.memory, other.memory, strict=True):
            layer.self_cache.append(
                *(
                    part.repeat_interleave(copies, 0)
                    for part in (other_layer.self_cache.keys, other_layer.self_cache.values)
                )
            )
        self.tokens[:, : other.length] = other.tokens[:, : other.length].repeat_interleave(copies, 0)

    def forget(self, count: int) -> Int[Tensor, "rows kept"]:
        """Clear the cache and return the last `count` tokens, to be read again."""
        last = self.tokens[:, self.length - count : self.length].clone()
        for layer in self.memory:
            layer.self_cache.length = 0
        return last


class Gpt(LanguageModel):
    """A language model of Transformer layers with causal self-attention.

    With `norm="pre"` it is GPT-2, with `norm="post"` GPT-1. Parameters are initialized small, with a
    standard deviation of 0.02; in GPT-2, those of layers that feed a residual are scaled down by depth (Radford et al.
    2019, 2.3).

    Generation caches keys and values of at most `context_length` tokens. When the context is
    full, the cache is cleared and the second half is read again, as if the text began there.

    Example:
        >>> model = Gpt(GptConfig(vocab_size=1000, width=64, heads=4, layers=2))
    """

    residual_attentions = frozenset({"self"})

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.max_length = config.context_length
        self.embedding = Embedding(config.vocab_size, config.width)
        self.positions = PositionalEncoding(
            config.positions,
            config.width,
            head_width=config.width_per_head,
            max_length=config.context_length,
            scale=INIT_STD * math.sqrt(2),
        )
        self.dropout = Dropout(config.dropout)
        self.stack = TransformerStack(config, config.layers)
        self.attentions = {"self": self.stack.get_attention_paths("stack", "attention")}
        self.vocabulary = None if config.tied else Embedding(config.vocab_size, config.width)
        self.register_buffer("muted", torch.tensor(config.mute, dtype=torch.long), persistent=False)
        self._init_parameters()

    @property
    def input_embedding(self) -> nn.Module:
        return self.embedding

    def read(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time width"], SegmentState]:
        """Return the features after each token; the segment state is empty."""
        positions = self.positions(tokens.shape[1], self.embedding.weight)
        features: Tensor = self.stack(self._embed(tokens, positions), visible=causal(), turn=positions.turn)
        return features, ()

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """Return the logits of the next token, -inf for muted tokens."""
        tokens = self.embedding if self.vocabulary is None else self.vocabulary
        logits = functional.linear(features, tokens.weight)
        if self.config.mute:
            assert isinstance(self.muted, Tensor)
            logits.index_fill_(-1, self.muted, -math.inf)  # in place: logits are the largest tensor
        return logits

    @torch.no_grad()
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> GptState:
        """Read a prompt except for its last token, in one pass; a prompt longer than the context is truncated."""
        refuse_less("Gpt", 1, capacity=capacity, copies=copies, **{"prompt length": tokens.shape[1]})
        prefix = tokens[:, max(0, tokens.shape[1] - self.config.context_length) : -1]
        room = min(prefix.shape[1] + capacity, self.config.context_length)
        state = self._new_state(len(tokens), room, capacity)
        if prefix.shape[1]:
            self._append_tokens(prefix, state)
        if copies == 1:
            return state
        copied = self._new_state(len(tokens) * copies, room, capacity)
        copied.copy(state, copies)
        return copied

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], GptState]:
        """Read one token of each hypothesis and return the logits of the next."""
        assert isinstance(state, GptState)
        if not state.steps_left:
            raise RegardError("Gpt: capacity exceeded; call start with a larger capacity")
        state.steps_left -= 1
        new = tokens[:, None]
        if state.length == self.config.context_length:
            new = torch.cat([state.forget(self.config.context_length // 2), new], 1)
        return self.output(self._append_tokens(new, state)[:, -1]), state

    def _new_state(self, rows: int, room: int, capacity: int) -> GptState:
        weight = self.embedding.weight
        tokens = torch.empty(rows, room, dtype=torch.long, device=weight.device)
        return GptState(self.stack.new_memory(rows, room), self.positions(room, weight), tokens, capacity)

    def _append_tokens(self, tokens: Tensor, state: GptState) -> Tensor:
        """Read tokens after the cached ones and cache them; return the features (rows, n, width)."""
        start, count = state.length, tokens.shape[1]
        state.tokens[:, start : start + count] = tokens
        positions = state.positions.slice_from(start, count)
        return self.stack.step(self._embed(tokens, positions), state.memory, turn=positions.turn)

    def _embed(self, tokens: Tensor, positions: EncodedPositions) -> Tensor:
        """Return token embeddings with positions added, (rows, n, width)."""
        x = self.embedding(tokens)
        return self.dropout(x if positions.added is None else x + positions.added)

    def _init_parameters(self) -> None:
        depth = 2 * len(self.stack.layers) if self.config.norm == "pre" else 1
        for tokens in (self.embedding, self.vocabulary):
            if tokens is not None:
                nn.init.normal_(tokens.weight, std=INIT_STD)
        for layer in self.stack.layers:
            assert isinstance(layer, TransformerLayer)
            attention, between = layer.attention, layer.feed_forward
            for linear in (attention.query, attention.keys, attention.values, between.wider):
                assert isinstance(linear, nn.Linear)
                nn.init.normal_(linear.weight, std=INIT_STD)
            for linear in (attention.output, between.back):
                nn.init.normal_(linear.weight, std=INIT_STD / math.sqrt(depth))
