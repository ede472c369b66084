"""Attention from a recurrent decoder to a source, for all steps at once or step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.base_score import Score
from regard.attention.functional import attend
from regard.attention.kernel_scores import Kernel
from regard.attention.scores import EQUAL_WIDTHS, build_score
from regard.attention.visible import Rule
from regard.errors import RegardError, unknown_name
from regard.layers.attention import NO_SETTINGS, PROJECTED, new_linear
from regard.layers.lengths import AnyLengths, SequenceLengths

MAX_SAVED = 2**28  # maximum score elements saved for backward over all calls on a source

COMPOSITIONS = ("concat", "gate", "join", "maxout", "sum")


@dataclass(frozen=True, eq=False)
class Memory:
    """A source prepared for attention, with the work per key done."""

    score: Score
    keys: Float[Tensor, "batch heads source key_width"]
    values: Float[Tensor, "batch heads source value_width"]
    visible: Bool[Tensor, "batch 1 1 source"] | None
    looks: int  # number of attention calls on this source
    lasts: bool = True  # whether keys and values stay unchanged; False for buffers that are overwritten

    def choose_path(self, query: Float[Tensor, "batch heads queries width"]) -> Literal["reference"] | None:
        """Return "reference" if saving the scores for backward is cheaper than recomputing them, else None."""
        elements_per_pair = self.score.numbers_per_pair(query, self.keys)
        if self.looks == 1 or elements_per_pair == 1:
            return None
        saved_looks = self.looks if torch.is_grad_enabled() else 1
        return (
            "reference"
            if saved_looks * query.shape[:-1].numel() * self.keys.shape[-2] * elements_per_pair <= MAX_SAVED
            else None
        )


class SourceAttention(nn.Module):
    """Attention from the states of a decoder to the states of a source.

    Without projections, only the score has parameters. If a score requires equal widths and they
    differ, the keys get a projection.

    Args:
        query_width: Width of the decoder states.
        key_width: Width of the source states.
        score: A name from `regard.attention.SCORES`.
        heads: Number of heads; the inputs are split into as many parts.
        project: Which of `query`, `keys` and `values` get a projection (W^Q, W^K, W^V).
        normalizer: How scores become weights, as in `attend`.
        learn_width: Whether the width of a kernel score is learned.
        score_settings: More arguments of `build_score`, such as `rank`.

    Attributes:
        adds_projection: Whether the keys get a projection only because widths differ.
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        score: str = "dot",
        heads: int = 1,
        *,
        project: Collection[str] = (),
        normalizer: str = "softmax",
        learn_width: bool = False,
        score_settings: Mapping[str, Any] = NO_SETTINGS,
    ) -> None:
        super().__init__()
        if heads < 1:
            raise RegardError(f"SourceAttention: heads must be at least 1, got {heads}")
        unknown = [name for name in project if name not in PROJECTED]
        if unknown:
            raise RegardError(f'SourceAttention: unknown "{unknown[0]}" in project; choose from query, keys, values')
        query_dim = key_width if "query" in project and "keys" not in project else query_width
        differ = score in EQUAL_WIDTHS and query_dim != key_width
        self.adds_projection = differ and "keys" not in project
        self.query = new_linear(query_width, query_dim, False) if "query" in project else nn.Identity()
        self.keys = new_linear(key_width, query_width, False) if "keys" in project or differ else nn.Identity()
        self.values = new_linear(key_width, query_width, False) if "values" in project else nn.Identity()
        key_dim = query_width if isinstance(self.keys, nn.Linear) else key_width
        self.width = query_width if "values" in project else key_width
        for name, width in (("query", query_dim), ("keys", key_dim), ("values", self.width)):
            if width % heads:
                raise RegardError(
                    f"SourceAttention: the width of {name} must be divisible by heads, got {width} and {heads}"
                )
        self.heads, self.normalizer = heads, normalizer
        self.score = build_score(
            score,
            query_dim // heads,
            key_dim // heads,
            heads=heads if heads > 1 else None,
            **{"hidden": max(1, query_width // heads), **score_settings},
        )
        if isinstance(self.score, Kernel):
            self.score.width.requires_grad_(learn_width)

    def remember(
        self,
        states: Float[Tensor, "batch source key_width"],
        lengths: AnyLengths | None = None,
        looks: int = 1,
    ) -> Memory:
        """Prepare a source for `looks` attention calls; only the first `lengths` states are visible."""
        keys, values = self._split_heads(self.keys(states)), self._split_heads(self.values(states))
        score: Score = self.score
        if looks > 1:
            score, keys = score.precompute_keys(keys)
        visible = None
        lengths = None if lengths is None else SequenceLengths.of(lengths, states.device)
        if lengths is not None and not lengths.has_no_padding(states.shape[1]):
            visible = lengths.real(states.shape[1]).mT[:, None]
        return Memory(score, keys, values, visible, looks)

    def forward(
        self,
        query: Float[Tensor, "batch queries query_width"],
        memory: Memory,
        visible: Rule | None = None,
        *,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "batch queries width"]
        | tuple[Float[Tensor, "batch queries width"], Float[Tensor, "batch queries source"]]
    ):
        """Attend from each query to the source; return the outputs of all heads, concatenated.

        `visible` restricts the source states each query may attend to. With `return_weights`, also return the mean
        weights of all heads, which have a gradient.
        """
        query_heads = self._split_heads(self.query(query))
        if visible is not None and memory.visible is not None:
            visible = visible & memory.visible
        attended = attend(
            query_heads,
            memory.keys,
            memory.values,
            memory.score,
            visible=memory.visible if visible is None else visible,
            normalizer=self.normalizer,
            path=memory.choose_path(query_heads),
            lazy=memory.lasts,
            return_weights=return_weights,
        )
        output, weights = attended if isinstance(attended, tuple) else (attended, None)
        joined = output.transpose(1, 2).flatten(2)
        return joined if weights is None else (joined, weights.dense().mean(1))

    def _split_heads(self, tensor: Tensor) -> Tensor:
        """Reshape (batch, n, width) to (batch, heads, n, width / heads)."""
        return tensor.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def find_added_projections(model: nn.Module) -> list[str]:
    """Return the scores in a model whose keys get a projection only because query and keys differ in width."""
    attentions = [module for module in model.modules() if isinstance(module, SourceAttention)]
    return sorted({type(module.score).__name__ for module in attentions if module.adds_projection})


class Composition(nn.Module):
    """A layer that combines a decoder state s and a context vector c into a vector of width `width`.

    Args:
        kind: `join` concatenates them. `concat` is tanh(W [c; s]), the attentional state of Luong et
            al. (2015). `sum` is s + c, and `gate` is g s + (1 - g) c with g = sigmoid(W [c; s]);
            both project c first if its width differs from that of s. `maxout` is the deep output of
            Bahdanau et al. (2015, A.2.2), which includes the embedding e of the previous token: the
            maximum of pairs of W [c; s; e], half as wide as s.
        state: Width of s.
        summary: Width of c.
        embedding: Width of e.
    """

    def __init__(self, kind: str, state: int, summary: int, embedding: int) -> None:
        super().__init__()
        if kind not in COMPOSITIONS:
            raise unknown_name("composition", kind, COMPOSITIONS)
        self.kind = kind
        self.width = {"join": state + summary, "maxout": max(1, state // 2)}.get(kind, state)
        if kind in ("sum", "gate") and summary != state:
            self.project: nn.Module = new_linear(summary, state, False)
        else:
            self.project = nn.Identity()
        if kind in ("concat", "gate"):
            self.mix = new_linear(summary + state, state, kind == "gate")
        elif kind == "maxout":
            self.mix = new_linear(summary + state + embedding, 2 * self.width, True)

    def forward(
        self,
        state: Float[Tensor, "*positions state"],
        summary: Float[Tensor, "*positions summary"],
        embedded: Float[Tensor, "*positions embedding"],
    ) -> Float[Tensor, "*positions width"]:
        """Return one vector per position."""
        if self.kind == "join":
            return torch.cat([state, summary], -1)
        if self.kind == "sum":
            return state + self.project(summary)
        if self.kind == "concat":
            return torch.tanh(self.mix(torch.cat([summary, state], -1)))
        if self.kind == "gate":
            gate = torch.sigmoid(self.mix(torch.cat([summary, state], -1)))
            return gate * state + (1 - gate) * self.project(
                summary
            )  # not torch.lerp: under autocast their types may differ
        projected: Tensor = self.mix(torch.cat([summary, state, embedded], -1))
        return torch.maximum(*projected.chunk(2, -1))
