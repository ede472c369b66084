"""Attention with any score in memory linear in queries + keys: compute tiles, and recompute them in backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast, upcast_matmul
from regard.attention.call import Call
from regard.attention.gradients import GradientSums, add_rows
from regard.attention.kernels.kernel import FORWARD_JOBS, AttentionKernel, Result
from regard.attention.normalizers import LOG2_E, Softmax
from regard.attention.reductions import LogRows, Rows, reduce_rows
from regard.attention.rng_state import RandomState
from regard.attention.visible import select_index


@dataclass(frozen=True)
class TileDropout:
    """Dropout on weights that is the same each time a tile is computed."""

    rate: float
    seed: int
    batch: torch.Size  # (*batch) of the weights

    def apply(self, weights: Tensor, rows: slice, *tiles: slice) -> Tensor:
        """Return the weights of a row of tiles, each set to zero or divided by 1 - rate."""
        if not self.rate:
            return weights
        return weights * torch.cat([self._sample_mask(weights, rows, cols) for cols in tiles], -1)

    def _sample_mask(self, weights: Tensor, rows: slice, cols: slice) -> Tensor:
        mask = weights.new_empty(*self.batch, rows.stop - rows.start, cols.stop - cols.start)
        generator = torch.Generator(weights.device).manual_seed(hash((self.seed, rows.start, cols.start)))
        mask.bernoulli_(1 - self.rate, generator=generator)
        return mask.div_(1 - self.rate) if self.rate < 1 else mask


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute output and the statistic of every row; random state is saved for backward."""
    terms = call.terms
    seed = int(torch.randint(2**31, ())) if terms.dropout else 0
    dropout = TileDropout(terms.dropout, seed, terms.shape[:-2])
    rng_state = RandomState(values.device) if terms.score.stochastic else None
    with call.autocast():
        result = forward_tiles(call, values, dropout)
    return result._replace(used_rng=rng_state is not None and rng_state.has_advanced(), extra=(dropout, rng_state))


def forward_tiles(call: Call, values: Float[Tensor, "*values_batch keys width"], dropout: TileDropout) -> Result:
    """Compute output, the statistic of every row, and the mean for backward if it is not the output."""
    normalizer = call.terms.normalizer
    *batch, n, _ = call.terms.shape
    output = values.new_zeros(*batch, n, values.shape[-1])
    mean = None if normalizer.shares_by_weight else torch.zeros_like(output)
    statistic = upcast(values).new_full((*batch, n, 1), normalizer.blind)
    for rows in call.row_blocks():
        tiles = list(call.columns(rows))
        if not tiles:
            continue
        span = slice(tiles[0].start, tiles[-1].stop)
        scores = torch.cat([call.tile(rows, cols) for cols in tiles], -1)
        select_index(statistic, -2, rows)[:] = normalizer.statistic(scores, span)
        weights = normalizer.row_weights(scores, select_index(statistic, -2, rows), span)
        span_values = select_index(values, -2, span)
        select_index(output, -2, rows)[:] = upcast_matmul(dropout.apply(weights, rows, *tiles), span_values)
        if mean is not None:
            select_index(mean, -2, rows)[:] = upcast_matmul(
                dropout.apply(normalizer.share(weights), rows, *tiles), span_values
            )
    return Result(output, statistic, mean)


def backward(
    call: Call,
    values: Float[Tensor, "*values_batch keys width"],
    result: Result,
    gradient: Float[Tensor, "*batch queries width"],
    needs_grad: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of any kernel's result, tile by tile."""
    dropout, rng_state = result.extra or (TileDropout(0.0, 0, call.terms.shape[:-2]), None)
    of_values = torch.zeros_like(upcast(values), memory_format=torch.contiguous_format) if needs_grad[0] else None
    sums = GradientSums(call, needs_grad[1:])
    if of_values is not None or any(sums.requires_grad):
        with call.autocast(), rng_state.restore() if rng_state is not None else nullcontext():
            backward_tiles(sums, of_values, values, result, upcast(gradient), dropout)
    return None if of_values is None else of_values.to(values.dtype), *sums.collect()


def backward_tiles(
    sums: GradientSums,
    of_values: Float[Tensor, "*values_batch keys width"] | None,
    values: Float[Tensor, "*values_batch keys width"],
    result: Result,
    gradient: Float[Tensor, "*batch queries width"],
    dropout: TileDropout,
) -> None:
    """Accumulate the gradients of all tiles, and of the values if needed."""
    call, statistic = sums.call, result.statistic
    assert statistic is not None
    normalizer = call.terms.normalizer
    delta = (gradient * (result.output if result.mean is None else result.mean)).sum(-1, keepdim=True)
    for rows in call.row_blocks():
        of_rows, row_statistic = select_index(gradient, -2, rows), select_index(statistic, -2, rows)
        for cols in call.columns(rows):
            scores, accumulate = sums.tile(rows, cols)
            weights = normalizer.weights(scores, row_statistic, cols)
            if of_values is not None:
                value_gradient = upcast_matmul(dropout.apply(weights, rows, cols).mT, of_rows)
                add_rows(of_values, cols, value_gradient.sum_to_size(*values.shape[:-2], *value_gradient.shape[-2:]))
            if accumulate is not None:
                of_weights = dropout.apply(upcast_matmul(of_rows, select_index(values, -2, cols).mT), rows, cols)
                slope = normalizer.slope(scores, weights, row_statistic)
                accumulate((slope * (of_weights - select_index(delta, -2, rows))).sum_to_size(scores.shape))


def walk_rows(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Iterator[Rows]:
    """Iterate over the weights of any score in blocks of rows."""
    call = call.bind_parameters()
    for rows in call.row_blocks():
        with call.autocast():
            block = compute_row_block(call, select_index(statistic, -2, rows), rows)
        yield block


def compute_row_block(call: Call, statistic: Float[Tensor, "*batch rows 1"], rows: slice) -> Rows:
    """Compute one block of rows; for softmax, as logarithms."""
    span, normalizer = call.reach(rows), call.terms.normalizer
    scores = call.span(rows, span)
    if isinstance(normalizer, Softmax):
        scores = scores.expand(*call.terms.shape[:-2], -1, -1)
        return LogRows(rows, span, (scores - statistic) * LOG2_E)
    return Rows(rows, span, normalizer.weights(scores, statistic, span))


def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """Compute reductions of any weights from blocks of rows."""
    return reduce_rows(walk_rows(call, statistic), names, call.terms.shape, statistic)


def get_unsupported_reason(call: Call, job: str) -> str | None:
    """Return why tiles cannot compute a call, or None."""
    if job in FORWARD_JOBS and call.terms.score.needs_autograd(call.query, call.keys):
        return f"{call.terms.score.title} closes over tensors that need a gradient"
    return None


TILED = AttentionKernel(
    "tiled",
    unsupported_reason=get_unsupported_reason,
    forward=forward,
    backward=backward,
    reduce=reduce,
    rows=walk_rows,
)
