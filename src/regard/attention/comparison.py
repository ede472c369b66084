"""Queries and keys that meet under a score function: the scores of any tile, on demand.

The tiled path and the lazy `Weights` both stand on this: neither ever holds more
than some rows of the queries x keys matrix.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import Score, learnt, widened
from regard.attention.kernel_scores import Kernel
from regard.attention.normalise import KernelSum, Normaliser, PlainKernelSum
from regard.attention.score_checks import check_scores
from regard.attention.visible import Index, Rule, count, pick, take

TILE_NUMBERS = {"cpu": 2**19, "cuda": 2**27}  # what one tile may hold: a core's cache, or enough to fill a GPU
TILE_COLUMNS = 512

# glibc hands freed blocks back to the system, to be cleared and mapped anew for every tile, until it has once seen
# a larger block come and go; after this one (never touched, so it costs nothing) tiles are up to four times faster.
torch.empty(31 * 2**20, dtype=torch.uint8)


@dataclass(frozen=True)
class Terms:
    """On which terms queries and keys are compared: all that is not differentiated."""

    score: Score
    visible: Rule | None
    normaliser: Normaliser
    shape: torch.Size  # (*batch, queries, keys)
    hides: bool = True  # whether a key may be hidden from a query, by a rule or by a bias of -inf

    def scores(
        self,
        query: Float[Tensor, "*#batch rows width"],
        keys: Float[Tensor, "*#batch cols other_width"],
        bias: Float[Tensor, "..."] | None,
        rows: Index,
        cols: Index,
        *,
        plain: bool = False,
    ) -> Float[Tensor, "..."]:
        """The scores of one tile, from its own part of queries, keys and bias.

        `plain` takes queries and keys as the user gave them and the formula as it is
        written; otherwise they are prepared.
        """
        by_kernel = isinstance(self.normaliser, (KernelSum, PlainKernelSum))
        if by_kernel:
            assert isinstance(self.score, Kernel)
            scores = self.score.kernel(query, keys)
        else:
            scores = self.score(query, keys) if plain else self.score.compare(query, keys)
        check_scores(self.score, scores, (*self.shape[:-2], query.shape[-2], keys.shape[-2]))
        scores = scores.to(torch.promote_types(query.dtype, torch.float32))
        if bias is not None:
            scores = scores * bias.exp() if by_kernel else scores + bias
        if self.visible is None:
            return scores
        return torch.where(self.visible.tile(rows, cols, self.shape, scores.device), scores, self.normaliser.nothing)


@dataclass(frozen=True)
class Comparison:
    """Prepared queries and keys, and the terms on which they are compared."""

    terms: Terms
    query: Float[Tensor, "*query_batch queries width"]
    keys: Float[Tensor, "*keys_batch keys other_width"]
    bias: Float[Tensor, "*bias_batch #queries #keys"] | None

    def tile(self, rows: Index, cols: Index) -> Float[Tensor, "..."]:
        """The scores at some rows and columns; they broadcast to (*batch, rows, cols)."""
        return self.terms.scores(*self.parts(rows, cols), rows, cols)

    def parts(self, rows: Index, cols: Index) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries, keys and bias of one tile."""
        bias = None if self.bias is None else take(take(self.bias, -2, rows), -1, cols)
        return pick(self.query, -2, rows), pick(self.keys, -2, cols), bias

    def span(self, rows: Index, cols: Index) -> Float[Tensor, "..."]:
        """The same for more columns than fit a tile, where a score holds many numbers for each pair."""
        size = self.tile_size()[1]
        if isinstance(cols, Tensor) or count(cols) <= size or self.numbers_per_pair() == 1:
            return self.tile(rows, cols)
        return torch.cat([self.tile(rows, part) for part in blocks(range(cols.start, cols.stop), size)], -1)

    def numbers_per_pair(self) -> int:
        """How many numbers the score holds for each pair at once."""
        return self.terms.score.numbers_per_pair(self.query, self.keys)

    def row_blocks(self) -> Iterator[slice]:
        """All rows, a block at a time."""
        return blocks(range(self.terms.shape[-2]), self.tile_size()[0])

    def reach(self, rows: Index) -> slice:
        """The run of columns that these rows can see at all."""
        reach = range(self.terms.shape[-1])
        if self.terms.visible is not None and isinstance(rows, slice):
            reach = self.terms.visible.reach(range(rows.start, rows.stop), self.terms.shape)
        return slice(reach.start, reach.stop)

    def columns(self, rows: Index) -> Iterator[slice]:
        """The same a tile at a time."""
        reach = self.reach(rows)
        return blocks(range(reach.start, reach.stop), self.tile_size()[1])

    def tile_size(self) -> tuple[int, int]:
        """How many rows and columns make a tile of bounded memory."""
        *batch, n, m = self.terms.shape
        room = TILE_NUMBERS.get(self.query.device.type, TILE_NUMBERS["cuda"])
        each = math.prod(batch)
        pairs = max(256, room // max(1, each * self.numbers_per_pair()))
        rows = max(1, min(n, pairs // TILE_COLUMNS, room // max(1, each * m)))
        return rows, max(1, min(m, pairs // rows))


def blocks(positions: range, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size`."""
    for start in range(positions.start, positions.stop, size):
        yield slice(start, min(start + size, positions.stop))


def rebound(score: Score, parameters: tuple[Tensor, ...]) -> Score:
    """The same score with these tensors for its parameters; a copy, so that threads can share a model."""
    own = tuple(learnt(score).values())
    if all(mine is given for mine, given in zip(own, parameters, strict=True)):
        return score
    instead = {id(mine): given for mine, given in zip(own, parameters, strict=True)}
    return copy.deepcopy(score, instead | {id(buffer): buffer for buffer in score.buffers()})


class Gradients:
    """Sums up, tile by tile, the gradients of queries, keys, bias and the score's parameters."""

    def __init__(self, comparison: Comparison, parameters: tuple[Tensor, ...], wanted: tuple[bool, ...]) -> None:
        self.parameters = tuple(p.detach().requires_grad_(w) for p, w in zip(parameters, wanted[3:], strict=True))
        terms = replace(comparison.terms, score=rebound(comparison.terms.score, self.parameters))
        self.comparison = replace(comparison, terms=terms)
        moves, differentiable = terms.normaliser.differentiable, terms.score.differentiable
        self.learning = [w and moves and (differentiable or i > 1) for i, w in enumerate(wanted)]
        inputs = (comparison.query, comparison.keys, comparison.bias, *parameters)
        self.sums = [
            torch.zeros_like(widened(t), memory_format=torch.contiguous_format) if t is not None and w else None
            for t, w in zip(inputs, wanted, strict=True)
        ]

    def tile(self, rows: Index, cols: Index) -> tuple[Tensor, Callable[[Tensor], None] | None]:
        """The scores of a tile, and a function that takes their gradient and adds it up; None where nothing learns."""
        parts = self.comparison.parts(rows, cols)
        with torch.enable_grad():
            leaves = [
                None if part is None else part.detach().requires_grad_(wanted)
                for part, wanted in zip(parts, self.learning, strict=False)
            ]
            query, keys, bias = leaves
            assert query is not None and keys is not None
            scores = self.comparison.terms.scores(query, keys, bias, rows, cols)
        sources = [(i, t) for i, t in enumerate((*leaves, *self.parameters)) if t is not None and t.requires_grad]

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
        inputs = (self.comparison.query, self.comparison.keys, self.comparison.bias, *self.parameters)
        return tuple(None if s is None or t is None else s.to(t.dtype) for s, t in zip(self.sums, inputs, strict=True))


def add_rows(total: Tensor, rows: Index, found: Tensor) -> None:
    """Add to some rows, in place; a row may be named twice."""
    if isinstance(rows, slice):
        total.narrow(-2, rows.start, rows.stop - rows.start).add_(found)
    else:
        total.index_add_(total.ndim - 2, rows, found.to(total.dtype))
