"""Any score in memory linear in queries + keys: walk over tiles, and compute them again in backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import learnt, product, widened
from regard.attention.comparison import Comparison, Gradients, Terms, add_rows
from regard.attention.surroundings import Autocast, RandomState, refuse_second_derivative
from regard.attention.visible import pick


def tiled_attention(
    comparison: Comparison, values: Float[Tensor, "*values_batch keys width"], dropout: float
) -> tuple[Float[Tensor, "*batch queries width"], Tensor, bool]:
    """Output, the statistic of every row, (*batch, queries, 1), and whether the score drew random numbers."""
    seed = int(torch.randint(2**31, ())) if dropout else 0
    dropping = Dropping(dropout, seed, comparison.terms.shape[:-2])
    parameters = learnt(comparison.terms.score).values()
    before = RandomState(values.device)
    output, statistic = _Tiled.apply(
        comparison.terms, dropping, before, comparison.query, comparison.keys, comparison.bias, values, *parameters
    )
    return output, statistic, before.moved()


@dataclass(frozen=True)
class Dropping:
    """What dropout leaves of each weight: the same each time a tile is asked for."""

    rate: float
    seed: int
    batch: torch.Size  # (*batch) of the weights

    def drop(self, weights: Tensor, rows: slice, *tiles: slice) -> Tensor:
        """The weights of a row of tiles, each set to zero or divided by 1 - rate."""
        if not self.rate:
            return weights
        return weights * torch.cat([self._kept(weights, rows, cols) for cols in tiles], -1)

    def _kept(self, weights: Tensor, rows: slice, cols: slice) -> Tensor:
        kept = weights.new_empty(*self.batch, rows.stop - rows.start, cols.stop - cols.start)
        generator = torch.Generator(weights.device).manual_seed(hash((self.seed, rows.start, cols.start)))
        kept.bernoulli_(1 - self.rate, generator=generator)
        return kept.div_(1 - self.rate) if self.rate < 1 else kept


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        terms: Terms,
        dropping: Dropping,
        random: RandomState,
        query: Tensor,
        keys: Tensor,
        bias: Tensor | None,
        values: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.terms, ctx.dropping, ctx.random, ctx.autocast = terms, dropping, random, Autocast.now(query.device)
        with ctx.autocast.restored():
            output, mean, statistic = walk(Comparison(terms, query, keys, bias), values, dropping)
        ctx.save_for_backward(query, keys, bias, values, mean, statistic, *parameters)
        ctx.mark_non_differentiable(statistic)
        return output, statistic

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, bias, values, mean, statistic, *parameters = ctx.saved_tensors
        comparison = Comparison(ctx.terms, query, keys, bias)
        wanted = ctx.needs_input_grad[3:]
        with ctx.autocast.restored(), ctx.random.restored():
            pulled = pull_back(comparison, values, mean, statistic, gradient, ctx.dropping, tuple(parameters), wanted)
        return None, None, None, *pulled


def walk(
    comparison: Comparison, values: Float[Tensor, "*values_batch keys width"], dropping: Dropping
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, the mean that backward takes back (often the output itself), and the statistic of every row."""
    normaliser = comparison.terms.normaliser
    *batch, n, _ = comparison.terms.shape
    output = values.new_zeros(*batch, n, values.shape[-1])
    mean = output if normaliser.shares_by_weight else torch.zeros_like(output)
    statistic = widened(values).new_full((*batch, n, 1), normaliser.blind)
    for rows in comparison.row_blocks():
        tiles = list(comparison.columns(rows))
        if not tiles:
            continue
        span = slice(tiles[0].start, tiles[-1].stop)
        scores = torch.cat([comparison.tile(rows, cols) for cols in tiles], -1)
        pick(statistic, -2, rows)[:] = normaliser.statistic(scores, span)
        weights = normaliser.of_rows(scores, pick(statistic, -2, rows), span)
        seen = pick(values, -2, span)
        pick(output, -2, rows)[:] = product(dropping.drop(weights, rows, *tiles), seen)
        if mean is not output:
            pick(mean, -2, rows)[:] = product(dropping.drop(normaliser.share(weights), rows, *tiles), seen)
    return output, mean, statistic


def pull_back(
    comparison: Comparison,
    values: Float[Tensor, "*values_batch keys width"],
    mean: Float[Tensor, "*batch queries width"],
    statistic: Float[Tensor, "*batch queries 1"],
    gradient: Float[Tensor, "*batch queries width"],
    dropping: Dropping,
    parameters: tuple[Tensor, ...],
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients of query, keys, bias, values and the score's parameters, as far as wanted."""
    refuse_second_derivative()
    normaliser = comparison.terms.normaliser
    sums = Gradients(comparison, parameters, (*wanted[:3], *wanted[4:]))
    of_values = torch.zeros_like(widened(values), memory_format=torch.contiguous_format)
    gradient = widened(gradient)
    taken_back = (gradient * mean).sum(-1, keepdim=True)

    def visit(rows: slice, cols: slice) -> None:
        scores, pull = sums.tile(rows, cols)
        of_rows, own = pick(gradient, -2, rows), pick(statistic, -2, rows)
        weights = normaliser.weights(scores, own, cols)
        if wanted[3]:
            found = product(dropping.drop(weights, rows, cols).mT, of_rows)
            add_rows(of_values, cols, found.sum_to_size(*values.shape[:-2], *found.shape[-2:]))
        if pull is None:
            return
        of_weights = dropping.drop(product(of_rows, pick(values, -2, cols).mT), rows, cols)
        slope = normaliser.slope(scores, weights, own)
        pull((slope * (of_weights - pick(taken_back, -2, rows))).sum_to_size(scores.shape))

    if wanted[3] or any(sums.learning):
        for rows in comparison.row_blocks():
            for cols in comparison.columns(rows):
                visit(rows, cols)
    query, keys, bias, *rest = sums.all()
    return query, keys, bias, of_values.to(values.dtype) if wanted[3] else None, *rest
