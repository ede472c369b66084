"""Attention over a source, as a recurrent decoder pays it: all steps at once, or again and again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.base_score import Score
from regard.attention.functional import attend
from regard.attention.kernel_scores import Kernel
from regard.attention.scores import EQUAL_WIDTHS, build_score
from regard.attention.visible import Rule
from regard.errors import RegardError, unknown_name
from regard.layers.attention import PROJECTED, new_linear
from regard.layers.lengths import AnyLengths, SequenceLengths

KEPT = 2**28  # numbers of a score that may be kept for backward over all looks at a source

COMPOSITIONS = ("concat", "gate", "join", "maxout", "sum")


@dataclass(frozen=True, eq=False)
class Memory:
    """A source made ready to be looked at, with all that is done once for each key done."""

    score: Score
    keys: Float[Tensor, "batch heads source key_width"]
    values: Float[Tensor, "batch heads source value_width"]
    visible: Bool[Tensor, "batch 1 1 source"] | None
    looks: int  # how many times it will be looked at
    lasts: bool = True  # whether keys and values stay as they are; False for memory that is written again

    def path(self, query: Float[Tensor, "batch heads queries width"]) -> Literal["reference"] | None:
        """The plain formula for looks so small that what a score holds is better kept than computed again."""
        each = self.score.numbers_per_pair(query, self.keys)
        if self.looks == 1 or each == 1:
            return None
        kept = self.looks if torch.is_grad_enabled() else 1
        return "reference" if kept * query.shape[:-1].numel() * self.keys.shape[-2] * each <= KEPT else None


class SourceAttention(nn.Module):
    """From a decoder's states to the states of a source, with any score and any number of heads.

    Without projections nothing is learnt but what the score learns. A score that needs
    equal widths gets a projection of the keys where they differ.

    Args:
        query_width: Of the decoder's states.
        key_width: Of the source's states.
        score: Any name of `regard.attention.SCORES`.
        heads: How many attentions side by side; what comes in is cut into as many parts.
        project: Which of query, keys and values get a projection (W^Q, W^K, W^V).
        normaliser: As in `attend`.
        learn_width: Whether the width of a kernel is learnt.
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        score: str = "dot",
        heads: int = 1,
        *,
        project: Collection[str] = (),
        normaliser: str = "softmax",
        learn_width: bool = False,
    ) -> None:
        super().__init__()
        if heads < 1:
            raise RegardError(f"SourceAttention: {heads} heads are too few; 1 is the least")
        unknown = [name for name in project if name not in PROJECTED]
        if unknown:
            raise RegardError(f'SourceAttention: project names "{unknown[0]}"; there are query, keys and values')
        asked = key_width if "query" in project and "keys" not in project else query_width
        differ = score in EQUAL_WIDTHS and asked != key_width
        self.query = new_linear(query_width, asked, False) if "query" in project else nn.Identity()
        self.keys = new_linear(key_width, query_width, False) if "keys" in project or differ else nn.Identity()
        self.values = new_linear(key_width, query_width, False) if "values" in project else nn.Identity()
        compared = query_width if isinstance(self.keys, nn.Linear) else key_width
        self.width = query_width if "values" in project else key_width
        for name, width in (("query", asked), ("keys", compared), ("values", self.width)):
            if width % heads:
                raise RegardError(f"SourceAttention: {heads} heads do not divide {name} of width {width}")
        self.heads, self.normaliser = heads, normaliser
        self.score = build_score(
            score,
            asked // heads,
            compared // heads,
            hidden=max(1, query_width // heads),
            heads=heads if heads > 1 else None,
        )
        if isinstance(self.score, Kernel):
            self.score.width.requires_grad_(learn_width)

    def remember(
        self,
        states: Float[Tensor, "batch source key_width"],
        lengths: AnyLengths | None = None,
        looks: int = 1,
    ) -> Memory:
        """A source to be looked at `looks` times, of which only the first `lengths` states are to be seen."""
        keys, values = self._heads(self.keys(states)), self._heads(self.values(states))
        score: Score = self.score
        if looks > 1:
            score, keys = score.settle(keys)
        visible = None
        lengths = None if lengths is None else SequenceLengths.of(lengths, states.device)
        if lengths is not None and not lengths.fill(states.shape[1]):
            visible = lengths.real(states.shape[1]).mT[:, None]
        return Memory(score, keys, values, visible, looks)

    def forward(
        self, query: Float[Tensor, "batch queries query_width"], memory: Memory, visible: Rule | None = None
    ) -> Float[Tensor, "batch queries width"]:
        """What the source answers to each query: its values averaged by weight, those of all heads side by side.

        A rule tells which of its states each query may see, where not all see the same.
        """
        ours = self._heads(self.query(query))
        if visible is not None and memory.visible is not None:
            visible = visible & memory.visible
        found = attend(
            ours,
            memory.keys,
            memory.values,
            memory.score,
            visible=memory.visible if visible is None else visible,
            normaliser=self.normaliser,
            path=memory.path(ours),
            lazy=memory.lasts,
        )
        return found.transpose(1, 2).flatten(2)

    def _heads(self, tensor: Tensor) -> Tensor:
        """(batch, n, width) -> (batch, heads, n, width / heads)."""
        return tensor.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Composition(nn.Module):
    """A decoder's state and what it found in the source, made into one vector of width `width`.

    Args:
        how: `join` puts them side by side as they are. `concat` is tanh(W [c; s]), the
            attentional state of Luong et al. 2015; `sum` is s + c and `gate` g s + (1 - g) c
            with g = sigmoid(W [c; s]), c first projected where it is not as wide as s.
            `maxout` is the deep output of Bahdanau et al. 2015 (A.2.2), which sees the
            token before too: the greater of each two numbers of W [c; s; e], half as many as s has.
        state: The width of s.
        summary: The width of c.
        embedding: The width of e.
    """

    def __init__(self, how: str, state: int, summary: int, embedding: int) -> None:
        super().__init__()
        if how not in COMPOSITIONS:
            raise unknown_name("composition", how, COMPOSITIONS)
        self.how = how
        self.width = {"join": state + summary, "maxout": max(1, state // 2)}.get(how, state)
        if how in ("sum", "gate") and summary != state:
            self.project: nn.Module = new_linear(summary, state, False)
        else:
            self.project = nn.Identity()
        if how in ("concat", "gate"):
            self.mix = new_linear(summary + state, state, how == "gate")
        elif how == "maxout":
            self.mix = new_linear(summary + state + embedding, 2 * self.width, True)

    def forward(
        self,
        state: Float[Tensor, "*places state"],
        summary: Float[Tensor, "*places summary"],
        embedded: Float[Tensor, "*places embedding"],
    ) -> Float[Tensor, "*places width"]:
        """One vector for each place."""
        if self.how == "join":
            return torch.cat([state, summary], -1)
        if self.how == "sum":
            return state + self.project(summary)
        if self.how == "concat":
            return torch.tanh(self.mix(torch.cat([summary, state], -1)))
        if self.how == "gate":
            gate = torch.sigmoid(self.mix(torch.cat([summary, state], -1)))
            return gate * state + (1 - gate) * self.project(summary)  # autocast may have given them two types
        both: Tensor = self.mix(torch.cat([summary, state, embedded], -1))
        return torch.maximum(*both.chunk(2, -1))
