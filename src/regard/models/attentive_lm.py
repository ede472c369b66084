"""A recurrent language model that attends over its own states so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.normalise import NORMALISERS
from regard.attention.scores import SCORES
from regard.attention.visible import Rule, causal, window
from regard.errors import RegardError
from regard.layers.attention import PROJECTED
from regard.layers.cache import KeyValueCache
from regard.layers.source import Composition, Memory, SourceAttention
from regard.models.language import Carried, VocabularyModel
from regard.models.recurrent_lm import CarriedStack, RecurrentLmConfig, RecurrentLmState, new_dropout, new_vocabulary
from regard.models.state import State
from regard.settings import check_known, check_shares

LOOKS = 2  # more than one: what is done once for each key is done when it is kept


@dataclass(frozen=True, kw_only=True)
class AttentiveLmConfig(RecurrentLmConfig):
    """Recurrent layers over a text, and what attends over their states."""

    score: str = "scaled_dot"  # how well a state answers the state now
    heads: int = 1  # attentions side by side
    project: tuple[str, ...] = PROJECTED  # which of query, keys and values are projected: W^Q, W^K, W^V
    window: int = 256  # how many states can be seen, that of now among them
    current: bool = True  # whether that of now is seen too
    keeps: Literal["states", "words"] = "states"  # of a step: its state, or its token and the state before
    memory_dropout: float = 0.0  # on what is kept of the steps
    normaliser: str = "softmax"  # softmax, sparsemax, entmax15 or none
    learn_width: bool = True  # whether the width of a kernel is learnt
    composition: Literal["join", "concat", "sum", "gate", "maxout"] = "join"  # of state and what was found

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 1 if self.current else 2
        if self.window < least:
            raise RegardError(f"window is {self.window}; {least} is the least{'' if self.current else ' to see any'}")
        if self.heads < 1 or self.hidden % self.heads:
            raise RegardError(f"heads is {self.heads}; a number that divides hidden, {self.hidden}, is needed")
        check_shares(self, "memory_dropout")
        check_known(self, score=SCORES, normaliser=NORMALISERS, project=PROJECTED)


@dataclass(eq=False)
class AttentiveLmState(RecurrentLmState):
    """What the layers remember of each hypothesis, and its last states as keys and values."""

    past: KeyValueCache

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        super().select(rows)
        self.past.select(rows)


class AttentiveLm(VocabularyModel):
    """Recurrent layers, attention from each state to those before it, and a softmax over what comes next.

    The state now is the query; keys and values are the states up to now, or with
    `keeps="words"` the tokens up to now, each beside the state that it came after: to look
    for a state like this one is then to ask what came next (Grave et al. 2017). A query that
    sees none, the first where the step of now is left out, finds zeros. What is carried
    on is what the layers remember, and what is kept of the last steps.
    """

    carries = True
    attentions = MappingProxyType({"self": ("attention",)})

    def __init__(self, config: AttentiveLmConfig) -> None:
        super().__init__()
        self.config = config
        self.stack = CarriedStack(config)
        self.attention = SourceAttention(
            config.hidden,
            config.hidden + (config.embedding if config.keeps == "words" else 0),
            config.score,
            config.heads,
            project=config.project,
            normaliser=config.normaliser,
            learn_width=config.learn_width,
        )
        self.compose = Composition(config.composition, config.hidden, self.attention.width, config.embedding)
        self.vocabulary = new_vocabulary(config, self.compose.width)
        self.input_dropout = new_dropout(config, config.input_dropout)
        self.output_dropout = new_dropout(config, config.output_dropout)
        self.memory_dropout = new_dropout(config, config.memory_dropout)

    def read(
        self, tokens: Int[Tensor, "rows time"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows time width"], Carried]:
        embedded, states, known, carried = self._states(tokens, carried)
        summary = self.attention(states, self.attention.remember(self.memory_dropout(known)), self._visible())
        return self.output_dropout(self.compose(states, summary, embedded)), carried

    @torch.no_grad()
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> AttentiveLmState:
        *_, carried = self._states(tokens[:, :-1], None)
        *layers, last = carried
        kept = self.attention.remember(self.memory_dropout(last), looks=LOOKS)
        past = self._room(kept, len(tokens) * copies, last.shape[1] + max(1, capacity))
        past.append(kept.keys.repeat_interleave(copies, 0), kept.values.repeat_interleave(copies, 0))
        return AttentiveLmState(tuple(part.repeat_interleave(copies, 0) for part in layers), past)

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, AttentiveLmState)
        embedded = self.input_dropout(self.vocabulary.embed(tokens)[:, None])
        before = self._last_state(state.carried)
        found, state.carried = self.stack.step(embedded[:, 0], state.carried)
        now = found[:, None]
        seen = self._seen(self._kept(now, embedded, before), state.past)
        summary = self.attention(now, seen, None if self.config.current else self._visible())
        features = self.output_dropout(self.compose(now, summary, embedded))
        return self.output(features[:, 0]), state

    def _states(
        self, tokens: Int[Tensor, "rows time"], carried: Carried | None
    ) -> tuple[
        Float[Tensor, "rows time embedding"],
        Float[Tensor, "rows time hidden"],
        Float[Tensor, "rows known width"],
        Carried,
    ]:
        """Tokens as vectors, their states, what is kept of them behind what they can see, and what is carried on."""
        embedded = self.input_dropout(self.vocabulary.embed(tokens))
        layers, earlier = (self.stack.first(embedded), None) if carried is None else (carried[:-1], carried[-1])
        before = self._last_state(layers)
        states, layers = self.stack(embedded, layers)
        kept = self._kept(states, embedded, before)
        known = kept if earlier is None else torch.cat([earlier, kept], 1)
        last = known[:, max(0, known.shape[1] - self.config.window + 1) :]
        return embedded, states, known, (*layers, last.contiguous())

    def _last_state(self, layers: Carried) -> Float[Tensor, "rows 1 hidden"]:
        """The last layer's h, of all that the layers remember."""
        return layers[-len(layers) // self.config.layers][:, None]

    def _kept(
        self,
        states: Float[Tensor, "rows time hidden"],
        embedded: Float[Tensor, "rows time embedding"],
        before: Float[Tensor, "rows 1 hidden"],
    ) -> Float[Tensor, "rows time width"]:
        """What is kept of each step, where `before` is the state before the first of them."""
        if self.config.keeps == "states":
            return states
        return torch.cat([torch.cat([before, states], 1)[:, :-1], embedded], -1)

    def _visible(self) -> Rule:
        """Which states each one sees."""
        return causal(strict=not self.config.current) & window(self.config.window - 1, None)

    def _room(self, kept: Memory, rows: int, places: int) -> KeyValueCache:
        """Memory for the past: for all places, or for so many that what has passed the window seldom moves out."""
        return KeyValueCache(
            (rows,),
            self.attention.heads,
            min(places, 2 * self.config.window),
            kept.keys.shape[-1],
            value_width=kept.values.shape[-1],
            dtype=kept.keys.dtype,
            device=kept.keys.device,
        )

    def _seen(self, now: Float[Tensor, "rows 1 width"], past: KeyValueCache) -> Memory:
        """Keep what is kept of now, and give all that can be seen."""
        if past.length == past.capacity:
            keep_last(past, min(past.length, self.config.window - 1))
        memory = self.attention.remember(self.memory_dropout(now), looks=LOOKS)
        past.append(memory.keys, memory.values)
        begin = max(0, past.length - self.config.window)
        return replace(memory, keys=past.keys[..., begin:, :], values=past.values[..., begin:, :], lasts=False)


def keep_last(past: KeyValueCache, places: int) -> None:
    """Move the last places to the beginning of the memory, and forget those before them."""
    begin = past.length - places
    keys, values = past.keys[..., begin:, :].clone(), past.values[..., begin:, :].clone()
    past.length = 0
    past.append(keys, values)
