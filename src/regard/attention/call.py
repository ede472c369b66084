"""One attention call: its queries, keys and score function, and the scores of any tile.

`attend` builds a `Call` from its arguments. Every kernel and the lazy `Weights` work on a *prepared*
call, where the work per query and per key is done. No code has to hold more than a block of rows of
the queries x keys matrix.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import DotForm, Score, get_score_parameters
from regard.attention.kernel_scores import Kernel
from regard.attention.normalizers import KernelSum, Normalizer, PlainKernelSum
from regard.attention.score_checks import as_dot_form, check_scores
from regard.attention.scores import Bilinear, Dot, ReducedRank, Uniform, get_fixed_dot
from regard.attention.visible import Index, Rule, count_indices, select_broadcast, select_index

Owner = TypeVar("Owner")
Value = TypeVar("Value")

TILE_NUMBERS = {"cpu": 2**19, "cuda": 2**27}  # elements per tile: a core's cache, or enough to fill a GPU
TILE_COLUMNS = 512

EXACT_DOTS = (Bilinear, Dot, ReducedRank, Uniform)
"""Scores whose `as_dot` drops no constant per query, so that their scores can be compared with a sink."""

# glibc returns freed blocks to the system, which clears and maps them again for every tile, until a larger block has
# been freed once. After this one (never touched, so it costs nothing) tiles are up to four times faster.
torch.empty(31 * 2**20, dtype=torch.uint8)


class ComputedOnce(Generic[Owner, Value]):
    """A property that is computed once; `functools.cached_property` takes a lock, which Dynamo cannot trace."""

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: Owner, owner: type[Owner]) -> Value:
        value = self.compute(instance)
        setattr(instance, self.name, value)
        return value


class Terms(NamedTuple):
    """The parts of a call that are not differentiated: score, visibility, normalizer and shape."""

    score: Score
    visible: Rule | None
    normalizer: Normalizer
    shape: torch.Size  # (*batch, queries, keys)
    hides: bool = True  # whether keys may be hidden, by a rule or by a bias of -inf
    dropout: float = 0.0
    autocast: torch.dtype | None = None  # the autocast dtype; None if autocast is off

    def compute_scores(
        self,
        query: Float[Tensor, "*#batch rows width"],
        keys: Float[Tensor, "*#batch cols other_width"],
        bias: Float[Tensor, "..."] | None,
        rows: Index,
        cols: Index,
        *,
        plain: bool = False,
    ) -> Float[Tensor, "..."]:
        """Compute the scores of one tile from its part of the queries, keys and bias.

        With `plain`, queries and keys are those the user passed, and the score's formula is
        applied as written; otherwise they are prepared.
        """
        by_kernel = isinstance(self.normalizer, (KernelSum, PlainKernelSum))
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
        return torch.where(
            self.visible.tile(rows, cols, self.shape, scores.device), scores, self.normalizer.hidden_score
        )


@dataclass(eq=False)  # never modified; frozen=True would make it slow to create
class Call:
    """Queries, keys, bias, sink and terms of an attention call, without its values."""

    terms: Terms
    query: Float[Tensor, "*query_batch queries width"]
    keys: Float[Tensor, "*keys_batch keys other_width"]
    bias: Float[Tensor, "*bias_batch #queries #keys"] | None = None
    parameters: tuple[Tensor, ...] = ()  # the score's parameters that a prepared call still needs
    sink: Float[Tensor, "*sink_batch 1 1"] | None = None  # one more logit in the denominator of each row of a head
    is_prepared: bool = False  # whether the work per query and per key is done

    @ComputedOnce
    def dot(self) -> DotForm | None:
        """The score as a dot product; None if it has no such form, or normalizer or sink need the dropped constant."""
        score = self.terms.score
        if self.is_prepared and score.dot_scale is None:
            return None
        if score.form not in ("dot", "constant") or not self.terms.normalizer.ranked:
            return None
        if self.sink is not None and not isinstance(score, EXACT_DOTS):
            return None
        return as_dot_form(score, score.as_dot(self.query, self.keys), self.query, self.keys)

    @ComputedOnce
    def prepared(self) -> Call:
        """This call after the work per query and per key; the score of a dot product becomes a `FixedDot`."""
        return self.prepare(fold=self.query.is_cuda)

    def keep_key_bias(self) -> Call:
        """Return `prepared`, from now on with the key bias of a score as a bias, also on a GPU."""
        if "prepared" not in self.__dict__:
            self.prepared = self.prepare(fold=False)
        return self.prepared

    def prepare(self, *, fold: bool) -> Call:
        """Do the work per query and per key; with `fold`, move the key bias of a score into the keys."""
        if self.is_prepared:
            return self
        terms, form, bias = self.terms, self.dot, self.bias
        if form is None:
            query, keys = terms.score.prepare(self.query, self.keys)
            parameters = tuple(get_score_parameters(terms.score).values())
            return Call(terms, query, keys, bias, parameters, self.sink, is_prepared=True)
        if form.key_bias is not None and fold:
            form = fold_key_bias(form)
        bias = join_biases(bias, form.key_bias)
        hides = terms.visible is not None or self.bias is not None
        score = get_fixed_dot(form.scale)
        terms = Terms(score, terms.visible, terms.normalizer, terms.shape, hides, terms.dropout, terms.autocast)
        return Call(terms, form.query, form.keys, bias, sink=self.sink, is_prepared=True)

    def detach(self) -> Call:
        """Return the call without gradient."""
        query, keys = self.query.detach(), self.keys.detach()
        bias, sink = (None if part is None else part.detach() for part in (self.bias, self.sink))
        parameters = tuple(parameter.detach() for parameter in self.parameters)
        return replace(self, query=query, keys=keys, bias=bias, parameters=parameters, sink=sink)

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """The differentiable inputs of the scores: query, keys, bias and parameters."""
        return self.query, self.keys, self.bias, *self.parameters

    def bind_parameters(self) -> Call:
        """Return the call with its own parameters in the score, which may have been updated since."""
        if not self.parameters:
            return self
        return replace(self, terms=self.terms._replace(score=with_parameters(self.terms.score, self.parameters)))

    def autocast(self) -> torch.autocast:
        """Return the autocast context of the call, without a cache: casts made here have no gradient."""
        dtype = self.terms.autocast
        return torch.autocast(self.query.device.type, dtype, dtype is not None, cache_enabled=False)

    def tile(self, rows: Index, cols: Index) -> Float[Tensor, "..."]:
        """Compute the scores at some rows and columns; they broadcast to (*batch, rows, cols)."""
        return self.terms.compute_scores(*self.select_tile(rows, cols), rows, cols)

    def select_tile(self, rows: Index, cols: Index) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the queries, keys and bias of one tile."""
        bias = None if self.bias is None else select_broadcast(select_broadcast(self.bias, -2, rows), -1, cols)
        return select_index(self.query, -2, rows), select_index(self.keys, -2, cols), bias

    def span(self, rows: Index, cols: Index) -> Float[Tensor, "..."]:
        """Compute the scores at some rows and columns, split into tiles if the score needs much memory per pair."""
        size = self.tile_size()[1]
        if isinstance(cols, Tensor) or count_indices(cols) <= size or self.numbers_per_pair() == 1:
            return self.tile(rows, cols)
        return torch.cat([self.tile(rows, part) for part in iter_blocks(range(cols.start, cols.stop), size)], -1)

    def numbers_per_pair(self) -> int:
        """Return how many elements the score holds per pair at once."""
        return self.terms.score.numbers_per_pair(self.query, self.keys)

    def row_blocks(self) -> Iterator[slice]:
        """Iterate over all rows in blocks."""
        return iter_blocks(range(self.terms.shape[-2]), self.tile_size()[0])

    def reach(self, rows: Index) -> slice:
        """Return the range of columns that these rows can see."""
        reach = range(self.terms.shape[-1])
        if self.terms.visible is not None and isinstance(rows, slice):
            reach = self.terms.visible.reach(range(rows.start, rows.stop), self.terms.shape)
        return slice(reach.start, reach.stop)

    def columns(self, rows: Index) -> Iterator[slice]:
        """Iterate over the columns that these rows can see, one tile at a time."""
        reach = self.reach(rows)
        return iter_blocks(range(reach.start, reach.stop), self.tile_size()[1])

    def tile_size(self) -> tuple[int, int]:
        """Return the rows and columns of a tile that fits the memory budget."""
        *batch, n, m = self.terms.shape
        budget = TILE_NUMBERS.get(self.query.device.type, TILE_NUMBERS["cuda"])
        batch_size = math.prod(batch)
        pairs = max(256, budget // max(1, batch_size * self.numbers_per_pair()))
        rows = max(1, min(n, pairs // TILE_COLUMNS, budget // max(1, batch_size * m)))
        return rows, max(1, min(m, pairs // rows))


def iter_blocks(positions: range, size: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `size` positions."""
    for start in range(positions.start, positions.stop, size):
        yield slice(start, min(start + size, positions.stop))


def with_parameters(score: Score, parameters: tuple[Tensor, ...]) -> Score:
    """Return a copy of a score with other parameters; a copy, so that threads can share a model."""
    current = tuple(get_score_parameters(score).values())
    if all(old is new for old, new in zip(current, parameters, strict=True)):
        return score
    replacements = {id(old): new for old, new in zip(current, parameters, strict=True)}
    return copy.deepcopy(score, replacements | {id(buffer): buffer for buffer in score.buffers()})


def join_biases(
    bias: Float[Tensor, "*bias_batch #queries #keys"] | None, key_bias: Float[Tensor, "*key_bias_batch keys"] | None
) -> Float[Tensor, "..."] | None:
    """Return the sum of a bias and a key bias, each of which may be missing."""
    if key_bias is None:
        return bias
    over_keys = key_bias.unsqueeze(-2)
    return over_keys if bias is None else bias + over_keys


def fold_key_bias(form: DotForm) -> DotForm:
    """Move the key bias into extra columns of the keys, with float32 precision.

    torch's fast GPU operators take no bias; three half-precision numbers represent one float32.
    """
    assert form.key_bias is not None
    parts, remainder = [], form.key_bias
    remainder = remainder / form.scale
    for _ in range(1 if form.keys.dtype == remainder.dtype else 3):
        parts.append(remainder.to(form.keys.dtype))
        remainder = remainder - parts[-1].to(remainder.dtype)
    ones = form.query.new_ones((*form.query.shape[:-1], len(parts)))
    columns = torch.stack(parts, -1).expand(*form.keys.shape[:-1], len(parts))
    return DotForm(torch.cat([form.query, ones], -1), torch.cat([form.keys, columns], -1), form.scale)
