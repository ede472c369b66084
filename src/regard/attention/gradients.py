"""Accumulate the gradients of a call tile by tile, recomputing each tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.base_score import upcast
from regard.attention.call import Call
from regard.attention.visible import Index, select_broadcast
from regard.errors import RegardError


class GradientSums:
    """The gradients of queries, keys, bias and score parameters, accumulated tile by tile."""

    def __init__(self, call: Call, needs_grad: tuple[bool, ...]) -> None:
        parameters = tuple(p.detach().requires_grad_(w) for p, w in zip(call.parameters, needs_grad[3:], strict=True))
        self.call = replace(call, parameters=parameters).bind_parameters()
        moves, differentiable = call.terms.normalizer.differentiable, call.terms.score.differentiable
        self.requires_grad = [w and moves and (differentiable or i > 1) for i, w in enumerate(needs_grad)]
        self.sums = [
            torch.zeros_like(upcast(t), memory_format=torch.contiguous_format) if t is not None and w else None
            for t, w in zip(call.inputs, needs_grad, strict=True)
        ]

    def tile(self, rows: Index, cols: Index) -> tuple[Tensor, Callable[[Tensor], None] | None]:
        """Return the scores of a tile, and a function that adds their gradient, or None if none is needed."""
        parts = self.call.select_tile(rows, cols)
        with torch.enable_grad():
            leaves = [
                None if part is None else part.detach().requires_grad_(needs_grad)
                for part, needs_grad in zip(parts, self.requires_grad, strict=False)
            ]
            query, keys, bias = leaves
            assert query is not None and keys is not None
            scores = self.call.terms.compute_scores(query, keys, bias, rows, cols)
        leaves += self.call.parameters
        sources = [(i, t) for i, t in enumerate(leaves) if t is not None and t.requires_grad]

        def accumulate(gradient: Tensor) -> None:
            gradients = torch.autograd.grad(scores, [t for _, t in sources], gradient, allow_unused=True)
            for (i, _), tile_gradient in zip(sources, gradients, strict=True):
                if tile_gradient is not None:
                    self._sum(i, tile_gradient, rows, cols)

        return scores.detach(), accumulate if scores.requires_grad else None

    def _sum(self, input_index: int, gradient: Tensor, rows: Index, cols: Index) -> None:
        total = self.sums[input_index]
        assert total is not None
        if input_index == 0:
            add_rows(total, rows, gradient)
        elif input_index == 1:
            add_rows(total, cols, gradient)
        elif input_index == 2:
            add_rows(select_broadcast(total, -1, cols), rows if total.shape[-2] > 1 else slice(0, 1), gradient)
        else:
            total += gradient

    def collect(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of query, keys, bias and parameters, None for those not needed."""
        pairs = zip(self.sums, self.call.inputs, strict=True)
        return tuple(None if s is None or t is None else s.to(t.dtype) for s, t in pairs)


def refuse_second_derivative() -> None:
    """Raise a `RegardError` in a backward pass that is to be differentiated again."""
    if torch.is_grad_enabled():
        raise RegardError('attend: this path has no second derivative; pass path="reference" to use create_graph=True')


def add_rows(total: Tensor, rows: Index, values: Tensor) -> None:
    """Add values to some rows in place; rows may repeat."""
    if isinstance(rows, slice):
        total.narrow(-2, rows.start, rows.stop - rows.start).add_(values)
    else:
        total.index_add_(total.ndim - 2, rows, values.to(total.dtype))
