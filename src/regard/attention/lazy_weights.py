"""Weights computed on demand from query and keys."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import get_score_parameters
from regard.attention.call import Call, Terms, iter_blocks
from regard.attention.gradients import GradientSums, refuse_second_derivative
from regard.attention.indexing import select_leading
from regard.attention.kernels.dispatch import reduce, walk_rows
from regard.attention.kernels.kernel import Result
from regard.attention.products import multiply, multiply_transposed
from regard.attention.reductions import Rows
from regard.attention.sink import sink_gradient
from regard.attention.visible import BatchSliceRule, Index, count_indices, index_to_tensor, select_index
from regard.attention.weights import DenseWeights, Weights
from regard.errors import RegardError


def build_weights(call: Call, result: Result) -> Weights:
    """Build the weights of a call from the result of its kernel."""
    if result.weights is not None:
        return DenseWeights(result.weights, ranked=call.terms.normalizer.ranked)
    assert result.statistic is not None
    return LazyWeights(call.prepared, result.statistic, used_rng=result.used_rng)


class LazyWeights(Weights):
    """Weights computed on demand from query, keys and the statistic of each row."""

    def __init__(
        self,
        call: Call,
        statistic: Float[Tensor, "*batch queries 1"],
        *,
        used_rng: bool = False,
        grad: bool | None = None,
    ) -> None:
        self.call = call  # prepared
        self.statistic = statistic
        self.used_rng = used_rng  # the score drew random numbers, so its weights cannot be recomputed
        self.grad = torch.is_grad_enabled() if grad is None else grad
        self.shape, self.ranked = call.terms.shape, call.terms.normalizer.ranked
        self.device, self.dtype = statistic.device, statistic.dtype
        self._versions = [get_version(tensor) for tensor in self.iter_tensors()]

    def iter_tensors(self) -> Iterator[Tensor]:
        """Iterate over all tensors that the weights are computed from."""
        yield self.statistic
        yield from (tensor for tensor in (*self.call.inputs, self.call.sink) if tensor is not None)
        yield from self.call.terms.score.iter_captured_tensors()
        if self.call.terms.visible is not None:
            yield from self.call.terms.visible.iter_tensors()

    def row_blocks(self) -> Iterator[Rows]:
        self.check_unchanged()
        return walk_rows(self.call, self.statistic)

    def compute_reductions(self, names: Sequence[str]) -> dict[str, Any]:
        self.check_unchanged()
        return reduce(self.call, self.statistic, names)

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        self.check_unchanged()
        if not (self.grad and torch.is_grad_enabled()):
            with torch.no_grad():
                return compute_block(self.call, self.statistic, rows, cols)
        return _Block.apply(self.call.terms, self.statistic, rows, cols, self.call.sink, *self.call.inputs)

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        self.check_unchanged()
        return multiply(self.call if self.grad else self.call.detach(), factor)

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        self.check_unchanged()
        return multiply_transposed(self.call if self.grad else self.call.detach(), self.statistic, factor)

    def select_batch(self, leading: list[Any]) -> Weights:
        call, batch = self.call, self.shape[:-2]
        if (
            call.terms.score.has_head_parameters
            or all(part == slice(None) for part in leading)
            or any(isinstance(part, Tensor) for part in leading)
        ):
            return self

        def select_part(tensor: Tensor) -> Tensor:
            return select_leading(tensor, batch, leading)

        statistic = select_part(self.statistic)
        visible = None if call.terms.visible is None else BatchSliceRule(call.terms.visible, self.shape, tuple(leading))
        shape = torch.Size((*statistic.shape[:-2], *self.shape[-2:]))
        terms = call.terms._replace(visible=visible, shape=shape)
        bias, sink = (None if part is None else select_part(part) for part in (call.bias, call.sink))
        self.check_unchanged()
        query, keys = select_part(call.query), select_part(call.keys)
        selected = replace(call, terms=terms, query=query, keys=keys, bias=bias, sink=sink)
        return LazyWeights(selected, statistic, grad=self.grad)

    def clone(self) -> Weights:
        if self.shape[-2] == 1:
            return self.materialize()  # a single row is smaller than query and keys
        return self.map(lambda tensor: tensor.clone())

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        self.check_unchanged()
        old, terms = self.call, self.call.terms
        current = get_score_parameters(terms.score).values()
        changed = {id(now): change(used.detach()).clone() for now, used in zip(current, old.parameters, strict=True)}
        score = copy.deepcopy(terms.score, changed)
        visible = None if terms.visible is None else terms.visible.map_tensors(change)
        bias, sink = (None if part is None else change(part) for part in (old.bias, old.sink))
        terms = terms._replace(score=score, visible=visible)
        parameters = tuple(get_score_parameters(score).values())
        call = Call(terms, change(old.query), change(old.keys), bias, parameters, sink, is_prepared=True)
        return LazyWeights(call, change(self.statistic), grad=self.grad)

    def check_unchanged(self) -> None:
        """Raise a `RegardError` if the weights cannot be recomputed as they were in the call."""
        if self.used_rng:
            raise RegardError(
                f"weights: cannot recompute them, since {self.call.terms.score.title} drew random numbers "
                '(dropout in training?); call attend with path="reference"'
            )
        if [get_version(tensor) for tensor in self.iter_tensors()] != self._versions:
            raise RegardError(
                "weights: query, keys, visible, bias, sink or parameters were modified in place after the call; "
                "use the weights before that, or call attend with lazy=False"
            )


class _Block(torch.autograd.Function):
    """Some rows and columns of lazy weights, with gradients for the keys outside of them, too."""

    @staticmethod
    def forward(
        ctx: Any, terms: Terms, statistic: Tensor, rows: Index, cols: Index, sink: Tensor | None, *inputs: Any
    ) -> Tensor:
        ctx.terms, ctx.rows, ctx.cols = terms, rows, cols
        ctx.save_for_backward(statistic, sink, *inputs)
        query, keys, bias, *parameters = inputs
        return compute_block(Call(terms, query, keys, bias, tuple(parameters), is_prepared=True), statistic, rows, cols)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        statistic, sink, query, keys, bias, *parameters = ctx.saved_tensors
        call = Call(ctx.terms, query, keys, bias, tuple(parameters), is_prepared=True)
        needs_sink, *needs_inputs = ctx.needs_input_grad[4:]
        sums = GradientSums(call, tuple(needs_inputs))
        of_sink = torch.zeros_like(sink) if needs_sink else None
        with call.autocast():
            for local, row_index in split_rows(call, ctx.rows) if needs_sink or any(sums.requires_grad) else ():
                row_statistic = select_index(statistic, -2, row_index)
                mean = backward_rows(sums, row_index, ctx.cols, row_statistic, select_index(gradient, -2, local))
                if of_sink is not None:
                    of_sink += sink_gradient(sink, row_statistic, mean)
        return None, None, None, None, of_sink, *sums.collect()


def compute_block(
    call: Call, statistic: Float[Tensor, "*batch queries 1"], rows: Index, cols: Index
) -> Float[Tensor, "*batch rows cols"]:
    """Compute some rows and columns of the weights of a prepared call."""
    terms, call = call.terms, call.bind_parameters()
    block = statistic.new_empty(*terms.shape[:-2], count_indices(rows), count_indices(cols))
    with call.autocast():
        for local, row_index in split_rows(call, rows):
            weights = terms.normalizer.weights(call.span(row_index, cols), select_index(statistic, -2, row_index), cols)
            select_index(block, -2, local)[:] = weights
    return block


def backward_rows(
    sums: GradientSums, rows: Index, cols: Index, statistic: Tensor, gradient: Tensor
) -> Float[Tensor, "*batch rows 1"]:
    """Add the gradients of some rows, given the gradient of their weights at `cols`.

    Returns the mean gradient of each row, the sum of each weight's share times its gradient.
    """
    call, normalizer = sums.call, sums.call.terms.normalizer
    everything = slice(0, call.terms.shape[-1])
    scores = call.span(rows, everything)
    weights = normalizer.weights(scores, statistic, everything)
    of_weights = torch.zeros_like(weights.expand(*gradient.shape[:-1], weights.shape[-1]))
    of_weights.index_add_(of_weights.ndim - 1, index_to_tensor(cols, weights.device), gradient)
    mean = (normalizer.share(weights) * of_weights).sum(-1, keepdim=True)
    of_scores = normalizer.slope(scores, weights, statistic) * (of_weights - mean)
    for tile in call.columns(rows):
        tile_scores, accumulate = sums.tile(rows, tile)
        if accumulate is not None:
            accumulate(select_index(of_scores, -1, tile).sum_to_size(tile_scores.shape))
    return mean


def split_rows(call: Call, rows: Index) -> Iterator[tuple[slice, Index]]:
    """Split rows into parts that fit a tile; yield the slice of each part within `rows` and its row indices."""
    size, _ = call.tile_size()
    for local in iter_blocks(range(count_indices(rows)), size):
        if isinstance(rows, slice):
            yield local, slice(rows.start + local.start, rows.start + local.stop)
        else:
            yield local, rows[local]


def get_version(tensor: Tensor) -> int:
    """Return how often a tensor was modified in place; always 0 for inference tensors."""
    return 0 if tensor.is_inference() else tensor._version
