"""Pool the states of a text into one vector: attention with a learned query, and simple baselines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import refuse_less, unknown_name
from regard.layers.attention import NO_SETTINGS
from regard.layers.lengths import AnyLengths, SequenceLengths
from regard.layers.source_attention import SourceAttention

PoolingKind = Literal["attention", "mean", "sum", "max", "last"]
POOLINGS: tuple[PoolingKind, ...] = get_args(PoolingKind)
"""The kinds of pooling."""


class Pooling(nn.Module):
    """A layer that pools the states of a text into one vector of width `self.width`.

    Args:
        kind: `attention` averages the states by attention from learned queries; `mean`, `sum` and
            `max` pool over all states; `last` takes the last state, for bidirectional states the
            last of each direction.
        width: Width of a state.
        queries: Number of learned queries; their outputs are concatenated.
        score: The score of the attention, a name from `regard.attention.SCORES`.
        heads: Number of attention heads.
        project: Which of `query`, `keys` and `values` get a projection (W^Q, W^K, W^V).
        normalizer: How scores become weights, as in `attend`.
        score_settings: More arguments of `build_score`, such as `rank`.
        bidirectional: Whether the second half of each state comes from a backward layer.
    """

    def __init__(
        self,
        kind: str,
        width: int,
        *,
        queries: int = 1,
        score: str = "additive",
        heads: int = 1,
        project: Collection[str] = ("values",),
        normalizer: str = "softmax",
        score_settings: Mapping[str, Any] = NO_SETTINGS,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        if kind not in POOLINGS:
            raise unknown_name("pooling", kind, POOLINGS)
        refuse_less("Pooling", 1, queries=queries)
        self.kind, self.bidirectional = kind, bidirectional
        self.width = width
        if kind == "attention":
            self.attention = SourceAttention(
                width,
                width,
                score,
                heads,
                project=project,
                normalizer=normalizer,
                learn_width=True,
                score_settings=score_settings,
            )
            self.queries = nn.Parameter(torch.randn(queries, width) * width**-0.5)
            self.width = queries * self.attention.width

    def forward(self, states: Float[Tensor, "texts words states"], lengths: AnyLengths) -> Float[Tensor, "texts width"]:
        """Return one vector per text; zeros for a text without words."""
        lengths = SequenceLengths.of(lengths, states.device)
        if self.kind == "attention":
            queries = self.queries.expand(len(states), -1, -1)
            return self.attention(queries, self.attention.remember(states, lengths)).flatten(1)
        if self.kind == "last":
            return self._last(states, lengths.on_device)
        return POOLS[self.kind](states, lengths.real(states.shape[1]))

    def _last(
        self, states: Float[Tensor, "texts words states"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts states"]:
        last = states[torch.arange(len(states), device=states.device), (lengths - 1).clamp_min(0)]
        if self.bidirectional:
            half = states.shape[-1] // 2
            last = torch.cat([last[:, :half], states[:, 0, half:]], -1)
        return last * (lengths > 0)[:, None]


def sum_pool(states: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words 1"]) -> Tensor:
    """Return the sum over the words of each text."""
    return states.where(real, 0).sum(1)


def mean_pool(states: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words 1"]) -> Tensor:
    """Return the mean over the words of each text."""
    return sum_pool(states, real) / real.sum(1).clamp_min(1)


def max_pool(states: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words 1"]) -> Tensor:
    """Return the elementwise maximum over the words of each text; zeros for a text without words."""
    return states.masked_fill(~real, -torch.inf).amax(1).where(real.any(1), 0)


POOLS = {"sum": sum_pool, "mean": mean_pool, "max": max_pool}
