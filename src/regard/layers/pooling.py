"""One vector for a whole text: attention with a learned query, and the plain ways that it is to beat."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import refuse_less, unknown_name
from regard.layers.lengths import AnyLengths, SequenceLengths
from regard.layers.source import SourceAttention

How = Literal["attention", "mean", "sum", "max", "last"]
POOLINGS: tuple[How, ...] = get_args(How)
"""The ways there are."""


class Pooling(nn.Module):
    """The states of a text made into one vector of width `self.width`.

    Args:
        how: `attention` is the mean of the states by how well each answers a learned query;
            `mean`, `sum` and `max` are over all states, and `last` is the last one: of a text
            read both ways, the last of each direction.
        width: Of a state.
        queries: How many learned queries look at the text; what they find stands side by side.
        score: How well a state answers a query; any name of `regard.attention.SCORES`.
        heads: Attentions of each query, side by side.
        normaliser: As in `attend`.
        bidirectional: Whether the second half of a state read the text from its end.
    """

    def __init__(
        self,
        how: str,
        width: int,
        *,
        queries: int = 1,
        score: str = "additive",
        heads: int = 1,
        normaliser: str = "softmax",
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        if how not in POOLINGS:
            raise unknown_name("pooling", how, POOLINGS)
        refuse_less("Pooling", 1, queries=queries)
        self.how, self.bidirectional = how, bidirectional
        self.width = width
        if how == "attention":
            self.attention = SourceAttention(
                width, width, score, heads, project=("values",), normaliser=normaliser, learn_width=True
            )
            self.queries = nn.Parameter(torch.randn(queries, width) * width**-0.5)
            self.width = queries * self.attention.width

    def forward(self, states: Float[Tensor, "texts words states"], lengths: AnyLengths) -> Float[Tensor, "texts width"]:
        """One vector a text; nothing for one without words."""
        lengths = SequenceLengths.of(lengths, states.device)
        if self.how == "attention":
            asked = self.queries.expand(len(states), -1, -1)
            return self.attention(asked, self.attention.remember(states, lengths)).flatten(1)
        if self.how == "last":
            return self._last(states, lengths.on_device)
        return POOLS[self.how](states, lengths.real(states.shape[1]))

    def _last(
        self, states: Float[Tensor, "texts words states"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts states"]:
        last = states[torch.arange(len(states), device=states.device), (lengths - 1).clamp_min(0)]
        if self.bidirectional:
            half = states.shape[-1] // 2
            last = torch.cat([last[:, :half], states[:, 0, half:]], -1)
        return last * (lengths > 0)[:, None]


def summed(states: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words 1"]) -> Tensor:
    """The sum over the words of each text."""
    return states.where(real, 0).sum(1)


def mean(states: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words 1"]) -> Tensor:
    """The mean over the words of each text."""
    return summed(states, real) / real.sum(1).clamp_min(1)


def greatest(states: Float[Tensor, "texts words width"], real: Bool[Tensor, "texts words 1"]) -> Tensor:
    """The greatest of each number over the words of each text; zero where there are none."""
    return states.masked_fill(~real, -torch.inf).amax(1).where(real.any(1), 0)


POOLS = {"sum": summed, "mean": mean, "max": greatest}
