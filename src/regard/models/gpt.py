"""GPT: a Transformer that writes text (Radford et al. 2018, 2019)."""

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
from regard.errors import RegardError, refuse_less
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding
from regard.layers.positions import Places, Positions, check_positions
from regard.layers.transformer import LayerConfig, LayerMemory, TransformerLayer, TransformerStack, check_counts
from regard.models.language import Carried, LanguageModel
from regard.models.state import State

DEVIATION = 0.02
"""How far the parameters of GPT lie from 0 when it starts."""


@dataclass(frozen=True, kw_only=True)
class GptConfig(LayerConfig):
    """A decoder alone, and how it is told tokens and places."""

    size: int
    layers: int = 4  # one upon the other
    positions: Literal["sinusoidal", "learned", "rotary"] = "learned"  # how it is told where a token stands
    longest: int = 256  # the context: how many tokens are read at once
    activation: Literal["relu", "gelu", "gelu-tanh"] = "gelu-tanh"  # of the feed-forward layer
    norm: Literal["post", "pre"] = "pre"  # before each sublayer as GPT-2 has it, or after each residual as GPT-1
    tied: bool = True  # the output with the embedding
    mute: tuple[int, ...] = ()  # numbers of tokens that are never written

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "size", "layers", "longest")
        check_positions(self.positions, self.head_width)
        for number in self.mute:
            if not 0 <= number < self.size:
                raise RegardError(f"mute: {number} is no token; there are {self.size}, from 0 on")
        if len(set(self.mute)) == self.size:
            raise RegardError("mute: has every token; one at least must be left to write")


@dataclass(eq=False)
class GptState:
    """What is remembered of the context: its tokens, and their keys and values in each layer."""

    memory: Sequence[LayerMemory]
    places: Places
    tokens: Int[Tensor, "rows room"]
    left: int  # steps that may still be made

    @property
    def length(self) -> int:
        """How many tokens of each hypothesis are remembered."""
        return self.memory[0].own.length

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Put hypothesis rows[i] in place i."""
        for layer in self.memory:
            layer.own.select(rows)
        seen = self.tokens[:, : self.length]
        seen.copy_(seen.index_select(0, rows))

    def copy(self, other: GptState, copies: int) -> None:
        """Remember what another state does, so many times for each of its rows."""
        for own, seen in zip(self.memory, other.memory, strict=True):
            own.own.append(*(part.repeat_interleave(copies, 0) for part in (seen.own.keys, seen.own.values)))
        self.tokens[:, : other.length] = other.tokens[:, : other.length].repeat_interleave(copies, 0)

    def forget(self, kept: int) -> Int[Tensor, "rows kept"]:
        """Forget all; the last tokens are given back, to be read anew."""
        last = self.tokens[:, self.length - kept : self.length].clone()
        for layer in self.memory:
            layer.own.length = 0
        return last


class Gpt(LanguageModel):
    """Each token looks at itself and those before it, layer upon layer.

    With norms before the sublayers it is GPT-2, with norms after them GPT-1, and starts
    with the parameters that GPT-2 starts with: small ones, those that end in a residual
    smaller still the more layers there are (Radford et al. 2019, 2.3).

    While it writes, it remembers keys and values of as many tokens as its context has, and no
    more. When the context is full, it forgets all but the later half, which is read
    anew in one pass as if the text began there, and goes on.
    """

    residual_attentions = frozenset({"self"})

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.most_places = config.longest
        self.embedding = Embedding(config.size, config.width)
        self.positions = Positions(
            config.positions,
            config.width,
            head_width=config.head_width,
            longest=config.longest,
            scale=DEVIATION * math.sqrt(2),
        )
        self.dropout = Dropout(config.dropout)
        self.stack = TransformerStack(config, config.layers)
        self.attentions = {"self": self.stack.paths("stack", "attention")}
        self.vocabulary = None if config.tied else Embedding(config.size, config.width)
        self.register_buffer("muted", torch.tensor(config.mute, dtype=torch.long), persistent=False)
        self._start_small()

    @property
    def input_embedding(self) -> nn.Module:
        return self.embedding

    def read(
        self, tokens: Int[Tensor, "rows time"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows time width"], Carried]:
        """What the model thinks after each token; nothing is carried on."""
        places = self.positions(tokens.shape[1], self.embedding.weight)
        features: Tensor = self.stack(self._embedded(tokens, places), visible=causal(), turn=places.turn)
        return features, ()

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """The logits of the next token: the product with each token's vector; -inf where it is mute."""
        tokens = self.embedding if self.vocabulary is None else self.vocabulary
        logits = functional.linear(features, tokens.weight)
        if self.config.mute:
            assert isinstance(self.muted, Tensor)
            logits.index_fill_(-1, self.muted, -math.inf)  # in place: there is no larger tensor
        return logits

    @torch.no_grad()
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> GptState:
        """Read all of a beginning but its last token, in one pass; of one beyond the context, its last tokens."""
        refuse_less("Gpt", 1, capacity=capacity, copies=copies, **{"a beginning's length": tokens.shape[1]})
        read = tokens[:, max(0, tokens.shape[1] - self.config.longest) : -1]
        room = min(read.shape[1] + capacity, self.config.longest)
        state = self._new_state(len(tokens), room, capacity)
        if read.shape[1]:
            self._read_on(read, state)
        if copies == 1:
            return state
        several = self._new_state(len(tokens) * copies, room, capacity)
        several.copy(state, copies)
        return several

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], GptState]:
        """Read one more token of each hypothesis and give the logits of the next."""
        assert isinstance(state, GptState)
        if not state.left:
            raise RegardError("Gpt: there is no room for one token more; start with a greater capacity")
        state.left -= 1
        new = tokens[:, None]
        if state.length == self.config.longest:
            new = torch.cat([state.forget(self.config.longest // 2), new], 1)
        return self.output(self._read_on(new, state)[:, -1]), state

    def _new_state(self, rows: int, room: int, capacity: int) -> GptState:
        weight = self.embedding.weight
        tokens = torch.empty(rows, room, dtype=torch.long, device=weight.device)
        return GptState(self.stack.new_memory(rows, room), self.positions(room, weight), tokens, capacity)

    def _read_on(self, tokens: Tensor, state: GptState) -> Tensor:
        """Read tokens behind those that are remembered, and remember them, (rows, n, width)."""
        start, count = state.length, tokens.shape[1]
        state.tokens[:, start : start + count] = tokens
        here = state.places.at(start, count)
        return self.stack.step(self._embedded(tokens, here), state.memory, turn=here.turn)

    def _embedded(self, tokens: Tensor, places: Places) -> Tensor:
        """Tokens as vectors that know their places, (rows, n, width)."""
        x = self.embedding(tokens)
        return self.dropout(x if places.added is None else x + places.added)

    def _start_small(self) -> None:
        for tokens in (self.embedding, self.vocabulary):
            if tokens is not None:
                nn.init.normal_(tokens.weight, std=DEVIATION)
        for layer in self.stack.layers:
            assert isinstance(layer, TransformerLayer)
            attention, between = layer.attention, layer.feed_forward
            for linear in (attention.query, attention.keys, attention.values, between.wider):
                assert isinstance(linear, nn.Linear)
                nn.init.normal_(linear.weight, std=DEVIATION)
            for linear in (attention.output, between.back):
                nn.init.normal_(linear.weight, std=DEVIATION / math.sqrt(2 * len(self.stack.layers)))
