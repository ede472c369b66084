"""One call of attention: queries and keys that meet under a score function, and the scores of any tile of it.

`attend` makes a `Call` of what it is given; every kernel, and the lazy `Weights`, work on one that
is *prepared*: what is done once for each query and key is done. Nobody needs to hold more than some
rows of the queries x keys matrix.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import DotForm, Score, learnt
from regard.attention.kernel_scores import Kernel
from regard.attention.normalise import KernelSum, Normaliser, PlainKernelSum
from regard.attention.score_checks import as_dot_form, check_scores
from regard.attention.scores import fixed_dot
from regard.attention.visible import Index, Rule, count, pick, take

TILE_NUMBERS = {"cpu": 2**19, "cuda": 2**27}  # what one tile may hold: a core's cache, or enough to fill a GPU
TILE_COLUMNS = 512

# glibc hands freed blocks back to the system, to be cleared and mapped anew for every tile, until it has once seen
# a larger block come and go; after this one (never touched, so it costs nothing) tiles are up to four times faster.
torch.empty(31 * 2**20, dtype=torch.uint8)


class Terms(NamedTuple):
    """On which terms queries and keys meet: all that is not differentiated."""

    score: Score
    visible: Rule | None
    normaliser: Normaliser
    shape: torch.Size  # (*batch, queries, keys)
    hides: bool = True  # whether a key may be hidden from a query, by a rule or by a bias of -inf
    dropout: float = 0.0
    autocast: torch.dtype | None = None  # the type that autocast wanted; None where it was off

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


@dataclass(eq=False)  # never changed, but to freeze it takes longer than all else that is done with it
class Call:
    """Queries and keys, and the terms on which they meet; the values are not part of it."""

    terms: Terms
    query: Float[Tensor, "*query_batch queries width"]
    keys: Float[Tensor, "*keys_batch keys other_width"]
    bias: Float[Tensor, "*bias_batch #queries #keys"] | None = None
    parameters: tuple[Tensor, ...] = ()  # of the score, those that a prepared call still needs

    @cached_property
    def dot(self) -> DotForm | None:
        """The score as a dot product, if there is such a form and the normaliser does not mind what it leaves out."""
        score = self.terms.score
        if score.form not in ("dot", "constant") or not self.terms.normaliser.ranked:
            return None
        return as_dot_form(score, score.as_dot(self.query, self.keys), self.query, self.keys)

    @cached_property
    def prepared(self) -> Call:
        """With that done which is done once for each query and key; a dot product's score is a `FixedDot`."""
        terms, form, bias = self.terms, self.dot, self.bias
        if form is None:
            query, keys = terms.score.prepare(self.query, self.keys)
            return Call(terms, query, keys, bias, tuple(learnt(terms.score).values()))
        if form.key_bias is not None and self.query.is_cuda:
            form = key_bias_in_width(form)
        if form.key_bias is not None:
            over_keys = form.key_bias.unsqueeze(-2)
            bias = over_keys if bias is None else bias + over_keys
        hides = terms.visible is not None or self.bias is not None
        score = fixed_dot(form.scale)
        terms = Terms(score, terms.visible, terms.normaliser, terms.shape, hides, terms.dropout, terms.autocast)
        return Call(terms, form.query, form.keys, bias)

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """All that is differentiated: query, keys, bias, and the parameters."""
        return self.query, self.keys, self.bias, *self.parameters

    def bound(self) -> Call:
        """The same with these parameters in the score, which may have others by now."""
        if not self.parameters:
            return self
        return replace(self, terms=self.terms._replace(score=rebound(self.terms.score, self.parameters)))

    def autocast(self) -> torch.autocast:
        """Autocast as it was for the call; without its cache, since casts made here know no gradient."""
        wanted = self.terms.autocast
        return torch.autocast(self.query.device.type, wanted, wanted is not None, cache_enabled=False)

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


def key_bias_in_width(form: DotForm) -> DotForm:
    """The key bias as further coordinates of the keys, as exact as float32.

    The fast operators of a GPU take no bias; three numbers of half precision hold one
    of float32.
    """
    assert form.key_bias is not None
    parts, rest = [], form.key_bias
    rest = rest / form.scale
    for _ in range(1 if form.keys.dtype == rest.dtype else 3):
        parts.append(rest.to(form.keys.dtype))
        rest = rest - parts[-1].to(rest.dtype)
    ones = form.query.new_ones((*form.query.shape[:-1], len(parts)))
    columns = torch.stack(parts, -1).expand(*form.keys.shape[:-1], len(parts))
    return DotForm(torch.cat([form.query, ones], -1), torch.cat([form.keys, columns], -1), form.scale)
