"""Weights that are computed from query and keys when they are asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import learnt
from regard.attention.call import Call, Terms, blocks
from regard.attention.gradients import Gradients, refuse_second_derivative
from regard.attention.kernels.kernel import Result
from regard.attention.kernels.table import reduce, walk_rows
from regard.attention.reductions import Rows
from regard.attention.visible import Index, Within, count, pick, positions
from regard.attention.weights import DenseWeights, Weights
from regard.errors import RegardError


def weights_of(call: Call, result: Result) -> Weights:
    """The weights of a call, by what a kernel left of it."""
    if result.weights is not None:
        return DenseWeights(result.weights, ranked=call.terms.normaliser.ranked)
    assert result.statistic is not None
    return LazyWeights(call.prepared, result.statistic, drew=result.drew)


class LazyWeights(Weights):
    """Weights computed from query and keys, by what a kernel left of each row."""

    def __init__(
        self, call: Call, statistic: Float[Tensor, "*batch queries 1"], *, drew: bool = False, grad: bool | None = None
    ) -> None:
        self.call = call  # prepared
        self.statistic = statistic
        self.drew = drew  # the score drew random numbers, which will not be the same again
        self.grad = torch.is_grad_enabled() if grad is None else grad
        self.shape, self.ranked = call.terms.shape, call.terms.normaliser.ranked
        self.device, self.dtype = statistic.device, statistic.dtype
        self._versions = [version(tensor) for tensor in self.tensors()]

    def tensors(self) -> Iterator[Tensor]:
        """All that the weights are computed from."""
        yield self.statistic
        yield from (tensor for tensor in self.call.inputs if tensor is not None)
        if self.call.terms.visible is not None:
            yield from self.call.terms.visible.tensors()

    def row_blocks(self) -> Iterator[Rows]:
        self.check()
        return walk_rows(self.call, self.statistic)

    def answers(self, names: Sequence[str]) -> dict[str, Any]:
        self.check()
        return reduce(self.call, self.statistic, names)

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        self.check()
        with torch.set_grad_enabled(self.grad and torch.is_grad_enabled()):
            return _Block.apply(self.call.terms, self.statistic, rows, cols, *self.call.inputs)

    def at_batch(self, leading: list[Any]) -> Weights:
        whole, batch = self.call, self.shape[:-2]
        apart = whole.terms.score.dot_scale is None  # other scores may have parameters for each head
        if apart or all(part == slice(None) for part in leading) or any(isinstance(part, Tensor) for part in leading):
            return self

        def part(tensor: Tensor) -> Tensor:
            return tensor.expand(*batch, *tensor.shape[-2:])[tuple(leading)]

        statistic = part(self.statistic)
        visible = None if whole.terms.visible is None else Within(whole.terms.visible, self.shape, tuple(leading))
        shape = torch.Size((*statistic.shape[:-2], *self.shape[-2:]))
        terms = whole.terms._replace(visible=visible, shape=shape)
        bias = None if whole.bias is None else part(whole.bias)
        self.check()
        return LazyWeights(Call(terms, part(whole.query), part(whole.keys), bias), statistic, grad=self.grad)

    def apart(self) -> Weights:
        if self.shape[-2] == 1:
            return self.settled()  # its one row is less than query and keys
        return self.map(lambda tensor: tensor.clone())

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        self.check()
        whole, terms = self.call, self.call.terms
        own = learnt(terms.score).values()
        changed = {id(mine): change(used.detach()).clone() for mine, used in zip(own, whole.parameters, strict=True)}
        score = copy.deepcopy(terms.score, changed)
        visible = None if terms.visible is None else terms.visible.map(change)
        bias = None if whole.bias is None else change(whole.bias)
        terms = terms._replace(score=score, visible=visible)
        call = Call(terms, change(whole.query), change(whole.keys), bias, tuple(learnt(score).values()))
        return LazyWeights(call, change(self.statistic), grad=self.grad)

    def check(self) -> None:
        """Raise a `RegardError` where the weights would no longer be those that were used."""
        if self.drew:
            raise RegardError(
                f"weights: {type(self.call.terms.score).__name__} drew random numbers (dropout in training?); "
                'they cannot be computed again, take them with path="reference"'
            )
        if [version(tensor) for tensor in self.tensors()] != self._versions:
            raise RegardError(
                "weights: query, keys, visible, bias or parameters were changed in place since; "
                "ask before they change, or attend with lazy=False"
            )


class _Block(torch.autograd.Function):
    """Some rows and columns of lazy weights, with a gradient that reaches the keys outside them too."""

    @staticmethod
    def forward(ctx: Any, terms: Terms, statistic: Tensor, rows: Index, cols: Index, *inputs: Any) -> Tensor:
        ctx.terms, ctx.rows, ctx.cols = terms, rows, cols
        ctx.save_for_backward(statistic, *inputs)
        query, keys, bias, *parameters = inputs
        call = Call(terms, query, keys, bias, tuple(parameters)).bound()
        found = statistic.new_empty(*terms.shape[:-2], count(rows), count(cols))
        with call.autocast():
            for local, own in row_parts(call, rows):
                weights = terms.normaliser.weights(call.span(own, cols), pick(statistic, -2, own), cols)
                pick(found, -2, local)[:] = weights
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        statistic, query, keys, bias, *parameters = ctx.saved_tensors
        call = Call(ctx.terms, query, keys, bias, tuple(parameters))
        sums = Gradients(call, ctx.needs_input_grad[4:])
        with call.autocast():
            for local, own in row_parts(call, ctx.rows) if any(sums.learning) else ():
                pull_rows(sums, own, ctx.cols, pick(statistic, -2, own), pick(gradient, -2, local))
        return None, None, None, None, *sums.all()


def pull_rows(sums: Gradients, rows: Index, cols: Index, statistic: Tensor, gradient: Tensor) -> None:
    """Add the gradients of some rows, of whose weights only those at `cols` were used."""
    call, normaliser = sums.call, sums.call.terms.normaliser
    everything = slice(0, call.terms.shape[-1])
    scores = call.span(rows, everything)
    weights = normaliser.weights(scores, statistic, everything)
    of_weights = torch.zeros_like(weights.expand(*gradient.shape[:-1], weights.shape[-1]))
    of_weights.index_add_(of_weights.ndim - 1, positions(cols, weights.device), gradient)
    mean = (normaliser.share(weights) * of_weights).sum(-1, keepdim=True)
    of_scores = normaliser.slope(scores, weights, statistic) * (of_weights - mean)
    for tile in call.columns(rows):
        found, pull = sums.tile(rows, tile)
        if pull is not None:
            pull(pick(of_scores, -1, tile).sum_to_size(found.shape))


def row_parts(call: Call, rows: Index) -> Iterator[tuple[slice, Index]]:
    """Parts of some rows that fit a tile: where each stands among them, and which rows it is."""
    size, _ = call.tile_size()
    for local in blocks(range(count(rows)), size):
        if isinstance(rows, slice):
            yield local, slice(rows.start + local.start, rows.start + local.stop)
        else:
            yield local, rows[local]


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version
