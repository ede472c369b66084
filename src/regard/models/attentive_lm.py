"""A recurrent language model that attends to its own previous states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.normalizers import NORMALIZERS
from regard.attention.scores import SCORE_ACTIVATIONS, SCORES
from regard.attention.visible import Rule, causal, window
from regard.bounds import Heads, Length, Power, Share, Width
from regard.errors import RegardError
from regard.layers.attention import PROJECTED, check_score_settings, get_score_settings
from regard.layers.cache import KeyValueCache
from regard.layers.source_attention import Composition, Memory, SourceAttention
from regard.models.language_model import SegmentState, VocabularyModel
from regard.models.recurrent_lm import RecurrentLmConfig, RecurrentLmState, StatefulStack, new_dropout, new_vocabulary
from regard.models.state import State
from regard.settings import check_choices

LOOKS = 2  # more than one, so that per-key work is done once, when a key is stored


@dataclass(frozen=True, kw_only=True)
class AttentiveLmConfig(RecurrentLmConfig):
    """Settings of `AttentiveLm`: recurrent layers, and attention over their states."""

    score: str = "scaled_dot"  # attention score function
    score_rank: Width | None = None  # rank of the score reduced_rank; a quarter of the smaller width by default
    score_hidden: Width | None = None  # hidden width of the scores additive and concat; that of the query by default
    score_activation: Literal["tanh", "relu", "sigmoid"] = "tanh"  # activation of the score additive
    score_power: Power = 1.0  # power of the score epanechnikov; 2 is the kernel of textbooks
    heads: Heads = 1  # number of attention heads
    project: tuple[str, ...] = PROJECTED  # which of query, keys and values get a linear projection
    window: Length = 256  # number of recent states to attend to, including the current one
    include_current: bool = True  # let a state attend to itself
    memory: Literal["states", "words"] = "states"  # what each step stores: its state, or its token and previous state
    memory_dropout: Share = 0.0  # dropout on the stored steps
    normalizer: str = "softmax"  # how attention scores become weights: softmax, sparsemax, entmax15 or none
    learn_width: bool = True  # learn the width of a kernel score
    composition: Literal["join", "concat", "sum", "gate", "maxout"] = "join"  # how state and context are combined

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 2 and not self.include_current:
            raise RegardError(f"window must be at least 2 with include_current = false, got {self.window}")
        if self.hidden % self.heads:
            raise RegardError(f"heads must divide hidden ({self.hidden}), got {self.heads}")
        check_choices(self, score=SCORES, normalizer=NORMALIZERS, project=PROJECTED, score_activation=SCORE_ACTIVATIONS)
        check_score_settings(self, self.score)


@dataclass(eq=False)
class AttentiveLmState(RecurrentLmState):
    """The decoding state: recurrent state of each hypothesis, and a cache of its recent keys and values."""

    past: KeyValueCache

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        super().select(rows)
        self.past.select(rows)


class AttentiveLm(VocabularyModel):
    """A recurrent language model in which each state attends to the previous ones.

    The current state is the query. Keys and values are the recent states or, with
    `memory="words"`, each token concatenated with the state before it: searching for a
    similar state then answers what came next (Grave et al. 2017). A query without visible
    keys (the first one, with `include_current=False`) gets a context of zeros.

    With `memory="words"`, the first step of a text stores zeros: an empty position, visible to
    every query however far away, so that a query that finds nothing similar can attend to
    nothing. Otherwise all weight of the first words would go to the few tokens there are.

    The segment state holds the recurrent states, the stored steps inside the window and the
    empty position.
    """

    stateful = True
    attentions = MappingProxyType({"self": ("attention",)})

    def __init__(self, config: AttentiveLmConfig) -> None:
        super().__init__()
        self.config = config
        self.stack = StatefulStack(config)
        self.attention = SourceAttention(
            config.hidden,
            config.hidden + (config.embedding if config.memory == "words" else 0),
            config.score,
            config.heads,
            project=config.project,
            normalizer=config.normalizer,
            learn_width=config.learn_width,
            score_settings=get_score_settings(config),
        )
        self.compose = Composition(config.composition, config.hidden, self.attention.width, config.embedding)
        self.vocabulary = new_vocabulary(config, self.compose.width)
        self.input_dropout = new_dropout(config, config.input_dropout)
        self.output_dropout = new_dropout(config, config.output_dropout)
        self.memory_dropout = new_dropout(config, config.memory_dropout)

    def read(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time width"], SegmentState]:
        embedded, states, memory, segment_state = self._run_stack(tokens, segment_state)
        visible = self._build_visible(memory.shape[1], memory.device)
        summary = self.attention(states, self.attention.remember(self.memory_dropout(memory)), visible)
        return self.output_dropout(self.compose(states, summary, embedded)), segment_state

    @torch.no_grad()
    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> AttentiveLmState:
        *_, segment_state = self._run_stack(tokens[:, :-1], None)
        *layers, last = segment_state
        memory = self.attention.remember(self.memory_dropout(last), looks=LOOKS)
        past = self._new_cache(memory, len(tokens) * copies, last.shape[1] + max(1, capacity))
        past.append(memory.keys.repeat_interleave(copies, 0), memory.values.repeat_interleave(copies, 0))
        return AttentiveLmState(tuple(part.repeat_interleave(copies, 0) for part in layers), past)

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        assert isinstance(state, AttentiveLmState)
        embedded = self.input_dropout(self.vocabulary.embed(tokens)[:, None])
        previous = self._get_last_state(state.layer_states)
        hidden, state.layer_states = self.stack.step(embedded[:, 0], state.layer_states)
        query = hidden[:, None]
        step_memory = self._build_memory(query, embedded, previous, starts_text=state.past.length == 0)
        memory = self._extend_memory(step_memory, state.past)
        visible = None
        if not self.config.include_current:
            visible = self._build_visible(memory.keys.shape[-2], query.device)
        summary = self.attention(query, memory, visible)
        features = self.output_dropout(self.compose(query, summary, embedded))
        return self.output(features[:, 0]), state

    def _run_stack(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None
    ) -> tuple[
        Float[Tensor, "rows time embedding"],
        Float[Tensor, "rows time hidden"],
        Float[Tensor, "rows known width"],
        SegmentState,
    ]:
        """Return embeddings, states, the memory of all visible steps, and the next segment state."""
        embedded = self.input_dropout(self.vocabulary.embed(tokens))
        layers, earlier = (
            (self.stack.initial_state(embedded), None)
            if segment_state is None
            else (segment_state[:-1], segment_state[-1])
        )
        previous = self._get_last_state(layers)
        states, layers = self.stack(embedded, layers)
        starts_text = earlier is None or not earlier.shape[1]
        new_memory = self._build_memory(states, embedded, previous, starts_text=starts_text)
        memory = new_memory if earlier is None else torch.cat([earlier, new_memory], 1)
        last = self._keep_recent(memory, self.config.window - 1, 1)
        return embedded, states, memory, (*layers, last.contiguous())

    def _get_last_state(self, layers: SegmentState) -> Float[Tensor, "rows 1 hidden"]:
        """Return h of the last layer."""
        return layers[-len(layers) // self.config.layers][:, None]

    def _build_memory(
        self,
        states: Float[Tensor, "rows time hidden"],
        embedded: Float[Tensor, "rows time embedding"],
        previous: Float[Tensor, "rows 1 hidden"],
        *,
        starts_text: bool,
    ) -> Float[Tensor, "rows time width"]:
        """Return what each step stores; `previous` is the state before the first step."""
        if self.config.memory == "states":
            return states
        memory = torch.cat([torch.cat([previous, states], 1)[:, :-1], embedded], -1)
        return torch.cat([torch.zeros_like(memory[:, :1]), memory[:, 1:]], 1) if starts_text else memory

    def _build_visible(self, keys: int, device: torch.device) -> Rule:
        """Return the rule for which of the stored steps are visible to each state."""
        recent = causal(strict=not self.config.include_current) & window(self.config.window - 1, None)
        if self.config.memory == "states":
            return recent
        return recent | (torch.arange(keys, device=device) == 0)[None]

    def _keep_recent(self, steps: Float[Tensor, "..."], count: int, axis: int) -> Float[Tensor, "..."]:
        """Return the last `count` stored steps along an axis, after the empty position if there is one."""
        size, empty = steps.shape[axis], int(self.config.memory == "words")
        start = max(empty, size - count)
        if start <= empty:
            return steps
        recent = steps.narrow(axis, start, size - start)
        return torch.cat([steps.narrow(axis, 0, 1), recent], axis) if empty else recent

    def _new_cache(self, memory: Memory, rows: int, capacity: int) -> KeyValueCache:
        """Allocate a cache for all steps, or for two windows, so that entries are rarely moved."""
        return KeyValueCache(
            (rows,),
            self.attention.heads,
            min(capacity, 2 * self.config.window + 1),
            memory.keys.shape[-1],
            value_width=memory.values.shape[-1],
            dtype=memory.keys.dtype,
            device=memory.keys.device,
        )

    def _extend_memory(self, step_memory: Float[Tensor, "rows 1 width"], past: KeyValueCache) -> Memory:
        """Store the current step and return the visible memory."""
        if past.length == past.capacity:
            count = self.config.window - 1
            keys, values = (self._keep_recent(part, count, -2).clone() for part in (past.keys, past.values))
            past.length = 0
            past.append(keys, values)
        memory = self.attention.remember(self.memory_dropout(step_memory), looks=LOOKS)
        past.append(memory.keys, memory.values)
        keys, values = (self._keep_recent(part, self.config.window, -2) for part in (past.keys, past.values))
        return replace(memory, keys=keys, values=values, lasts=False)
