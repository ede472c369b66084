"""The gradients of a call, summed up tile by tile as the tiles are computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.base_score import widened
from regard.attention.call import Call
from regard.attention.visible import Index, take
from regard.errors import RegardError


class Gradients:
    """Sums up, tile by tile, the gradients of queries, keys, bias and the score's parameters."""

    def __init__(self, call: Call, wanted: tuple[bool, ...]) -> None:
        parameters = tuple(p.detach().requires_grad_(w) for p, w in zip(call.parameters, wanted[3:], strict=True))
        self.call = replace(call, parameters=parameters).bound()
        moves, differentiable = call.terms.normaliser.differentiable, call.terms.score.differentiable
        self.learning = [w and moves and (differentiable or i > 1) for i, w in enumerate(wanted)]
        self.sums = [
            torch.zeros_like(widened(t), memory_format=torch.contiguous_format) if t is not None and w else None
            for t, w in zip(call.inputs, wanted, strict=True)
        ]

    def tile(self, rows: Index, cols: Index) -> tuple[Tensor, Callable[[Tensor], None] | None]:
        """The scores of a tile, and a function that takes their gradient and adds it up; None where nothing learns."""
        parts = self.call.parts(rows, cols)
        with torch.enable_grad():
            leaves = [
                None if part is None else part.detach().requires_grad_(wanted)
                for part, wanted in zip(parts, self.learning, strict=False)
            ]
            query, keys, bias = leaves
            assert query is not None and keys is not None
            scores = self.call.terms.scores(query, keys, bias, rows, cols)
        leaves += self.call.parameters
        sources = [(i, t) for i, t in enumerate(leaves) if t is not None and t.requires_grad]

        def pull(gradient: Tensor) -> None:
            pulled = torch.autograd.grad(scores, [t for _, t in sources], gradient, allow_unused=True)
            for (i, _), found in zip(sources, pulled, strict=True):
                if found is not None:
                    self._sum(i, found, rows, cols)

        return scores.detach(), pull if scores.requires_grad else None

    def _sum(self, which: int, found: Tensor, rows: Index, cols: Index) -> None:
        total = self.sums[which]
        assert total is not None
        if which == 0:
            add_rows(total, rows, found)
        elif which == 1:
            add_rows(total, cols, found)
        elif which == 2:
            add_rows(take(total, -1, cols), rows if total.shape[-2] > 1 else slice(0, 1), found)
        else:
            total += found

    def all(self) -> tuple[Tensor | None, ...]:
        """The gradients of query, keys, bias and parameters, as far as they were wanted."""
        pairs = zip(self.sums, self.call.inputs, strict=True)
        return tuple(None if s is None or t is None else s.to(t.dtype) for s, t in pairs)


def refuse_second_derivative() -> None:
    """Raise a `RegardError` inside a backward that should be differentiated again."""
    if torch.is_grad_enabled():
        raise RegardError('attend: this path has no second derivative; take path="reference" where create_graph=True')


def add_rows(total: Tensor, rows: Index, found: Tensor) -> None:
    """Add to some rows, in place; a row may be named twice."""
    if isinstance(rows, slice):
        total.narrow(-2, rows.start, rows.stop - rows.start).add_(found)
    else:
        total.index_add_(total.ndim - 2, rows, found.to(total.dtype))
