"""Any score in memory linear in queries + keys: walk over tiles, and compute them again in backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import product, widened
from regard.attention.call import Call
from regard.attention.gradients import Gradients, add_rows
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.normalise import LOG2_E, Softmax
from regard.attention.reductions import LogRows, Rows, reduce_rows
from regard.attention.rng_state import RandomState
from regard.attention.visible import pick


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


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Output and the statistic of every row; what is drawn at random is kept for backward."""
    terms = call.terms
    seed = int(torch.randint(2**31, ())) if terms.dropout else 0
    dropping = Dropping(terms.dropout, seed, terms.shape[:-2])
    before = RandomState(values.device) if terms.score.draws else None
    with call.autocast():
        result = walk(call, values, dropping)
    return result._replace(drew=before is not None and before.moved(), extra=(dropping, before))


def walk(call: Call, values: Float[Tensor, "*values_batch keys width"], dropping: Dropping) -> Result:
    """Output, the mean that backward takes back where it is another, and the statistic of every row."""
    normaliser = call.terms.normaliser
    *batch, n, _ = call.terms.shape
    output = values.new_zeros(*batch, n, values.shape[-1])
    mean = None if normaliser.shares_by_weight else torch.zeros_like(output)
    statistic = widened(values).new_full((*batch, n, 1), normaliser.blind)
    for rows in call.row_blocks():
        tiles = list(call.columns(rows))
        if not tiles:
            continue
        span = slice(tiles[0].start, tiles[-1].stop)
        scores = torch.cat([call.tile(rows, cols) for cols in tiles], -1)
        pick(statistic, -2, rows)[:] = normaliser.statistic(scores, span)
        weights = normaliser.of_rows(scores, pick(statistic, -2, rows), span)
        seen = pick(values, -2, span)
        pick(output, -2, rows)[:] = product(dropping.drop(weights, rows, *tiles), seen)
        if mean is not None:
            pick(mean, -2, rows)[:] = product(dropping.drop(normaliser.share(weights), rows, *tiles), seen)
    return Result(output, statistic, mean)


def backward(
    call: Call,
    values: Float[Tensor, "*values_batch keys width"],
    result: Result,
    gradient: Float[Tensor, "*batch queries width"],
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of any kernel's result, tile by tile."""
    dropping, before = result.extra or (Dropping(0.0, 0, call.terms.shape[:-2]), None)
    of_values = torch.zeros_like(widened(values), memory_format=torch.contiguous_format) if wanted[0] else None
    sums = Gradients(call, wanted[1:])
    if of_values is not None or any(sums.learning):
        with call.autocast(), before.restored() if before is not None else nullcontext():
            pull_tiles(sums, of_values, values, result, widened(gradient), dropping)
    return None if of_values is None else of_values.to(values.dtype), *sums.all()


def pull_tiles(
    sums: Gradients,
    of_values: Float[Tensor, "*values_batch keys width"] | None,
    values: Float[Tensor, "*values_batch keys width"],
    result: Result,
    gradient: Float[Tensor, "*batch queries width"],
    dropping: Dropping,
) -> None:
    """Add up the gradients of all tiles, and of the values where they are wanted."""
    call, statistic = sums.call, result.statistic
    assert statistic is not None
    normaliser = call.terms.normaliser
    taken_back = (gradient * (result.output if result.mean is None else result.mean)).sum(-1, keepdim=True)
    for rows in call.row_blocks():
        of_rows, own = pick(gradient, -2, rows), pick(statistic, -2, rows)
        for cols in call.columns(rows):
            scores, pull = sums.tile(rows, cols)
            weights = normaliser.weights(scores, own, cols)
            if of_values is not None:
                found = product(dropping.drop(weights, rows, cols).mT, of_rows)
                add_rows(of_values, cols, found.sum_to_size(*values.shape[:-2], *found.shape[-2:]))
            if pull is not None:
                of_weights = dropping.drop(product(of_rows, pick(values, -2, cols).mT), rows, cols)
                slope = normaliser.slope(scores, weights, own)
                pull((slope * (of_weights - pick(taken_back, -2, rows))).sum_to_size(scores.shape))


def walk_rows(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Iterator[Rows]:
    """The weights of any score, a block of rows at a time."""
    call = call.bound()
    for rows in call.row_blocks():
        with call.autocast():
            block = rows_of(call, pick(statistic, -2, rows), rows)
        yield block


def rows_of(call: Call, statistic: Float[Tensor, "*batch rows 1"], rows: slice) -> Rows:
    """One block of rows; where they are a softmax, by their logarithms."""
    span, normaliser = call.reach(rows), call.terms.normaliser
    scores = call.span(rows, span)
    if isinstance(normaliser, Softmax):
        scores = scores.expand(*call.terms.shape[:-2], -1, -1)
        return LogRows(rows, span, (scores - statistic) * LOG2_E)
    return Rows(rows, span, normaliser.weights(scores, statistic, span))


def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """Any reduction of any weights, from blocks of rows."""
    return reduce_rows(walk_rows(call, statistic), names, call.terms.shape, statistic)


TILED = AttentionKernel("tiled", forward=forward, backward=backward, reduce=reduce, rows=walk_rows)
