"""The exact attention weights, computed when asked for and only as far as asked for."""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import EllipsisType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.base_score import learnt
from regard.attention.comparison import Comparison, Gradients, blocks, rebound
from regard.attention.normalise import Softmax
from regard.attention.reductions import Rows, as_reduction, dot_rows, softmax_rows
from regard.attention.score_checks import kind
from regard.attention.scores import FixedDot
from regard.attention.surroundings import Autocast, refuse_second_derivative
from regard.attention.visible import Index, Within, count, pick, positions
from regard.errors import RegardError


class Weights(ABC):
    """How much each query looks at each key: a (*batch, queries, keys) matrix that need not exist.

    `weights[..., 3:7, :]` computes exact rows, columns or elements, those that indexing
    the dense tensor would give; it and `dense` are differentiable. The reductions work
    block by block and are not. A row sums to one, or to zero where its query sees nothing.
    """

    shape: torch.Size
    ranked: bool
    device: torch.device
    dtype: torch.dtype

    def top(self, k: int) -> tuple[Float[Tensor, "*batch queries k"], Int[Tensor, "*batch queries k"]]:
        """The k keys each query looks at most: (weights, indices), the greatest first.

        Where fewer than k keys have any weight the rest is 0 at index -1; where there are
        fewer than k keys, so many are returned.
        """
        if not isinstance(k, int) or k < 1:
            raise RegardError(f"top: found {k!r}; the number of keys is a whole number above 0")
        ((values, indices),) = self.reduce(f"top:{k}")
        return values, indices

    def received(self) -> Float[Tensor, "*batch keys"]:
        """How much attention each key gets from all queries together."""
        (total,) = self.reduce("received")
        return total

    def entropy(self) -> Float[Tensor, "*batch queries"]:
        """How spread each query's attention is, in nats; zero where it sees nothing."""
        (spread,) = self.reduce("entropy")
        return spread

    def argmax(self) -> Int[Tensor, "*batch queries"]:
        """The key each query looks at most, the first of equals; -1 where none has any weight."""
        (best,) = self.reduce("argmax")
        return best

    def reduce(self, *names: str) -> tuple[Any, ...]:
        """Several answers for one walk over the weights: `reduce("top:5", "received", "entropy", "argmax")`."""
        like = torch.empty((), device=self.device, dtype=self.dtype)
        reductions = {name: as_reduction(name, self.shape, like) for name in names}
        for name, reduction in reductions.items():
            if reduction.needs_ranks and not self.ranked:
                raise RegardError(f'{name}: weights of normaliser "none" do not sum to one and have no {name}')
        with torch.no_grad():
            in_turn = sorted(reductions.values(), key=lambda reduction: reduction.comes_last)
            for block in self.row_blocks():
                for reduction in in_turn:
                    reduction.add(block)
            found = {name: reduction.result() for name, reduction in reductions.items()}
        return tuple(found[name] for name in names)

    def dense(self) -> Float[Tensor, "*batch queries keys"]:
        """The whole matrix."""
        return self.block(slice(0, self.shape[-2]), slice(0, self.shape[-1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, index: Any) -> Tensor:
        *leading, rows, cols = full_index(index, len(self.shape))
        narrowed = self.at_batch(leading)
        which_rows, local_rows = picked(rows, narrowed.shape[-2], self.device)
        which_cols, local_cols = picked(cols, narrowed.shape[-1], self.device)
        block = narrowed.block(which_rows, which_cols)
        rest = [slice(None)] * (block.ndim - 2) if narrowed is not self else leading
        return block[(*rest, local_rows, local_cols)]

    def mean(self, axis: int = -3) -> Weights:
        """The weights averaged over an axis of *batch, the heads unless told otherwise; as lazy as these."""
        known = isinstance(axis, int) and -len(self.shape) <= axis < len(self.shape)
        place = axis % len(self.shape) if known else len(self.shape)
        if place >= len(self.shape) - 2:
            raise RegardError(f"mean: there is no axis {axis!r} among the leading axes of {tuple(self.shape)}")
        if self.shape[place] == 0:
            raise RegardError(f"mean: axis {axis} of {tuple(self.shape)} is empty; there is nothing to average")
        return MeanWeights(self, place)

    def settled(self) -> Weights:
        """The same weights, all computed now."""
        return DenseWeights(self.dense(), ranked=self.ranked)

    def apart(self) -> Weights:
        """The same weights, which no longer look at memory that may be written again."""
        return self.settled()

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file; lazy weights are saved as query and keys, not as the matrix."""
        from regard.attention.archive import save  # here, since only this needs safetensors

        save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Weights:
        """Read what `save` wrote."""
        from regard.attention.archive import load

        return load(Path(path))

    @abstractmethod
    def row_blocks(self) -> Iterator[Rows]:
        """All rows, a block at a time; without gradient."""

    @abstractmethod
    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        """Some rows and columns; differentiable."""

    def at_batch(self, leading: list[Any]) -> Weights:
        """The weights of a part of the batch, where that is less work than to compute all; else self."""
        return self

    @abstractmethod
    def detach(self) -> Weights:
        """The same weights without gradients, kept apart from later changes to the parameters."""

    @abstractmethod
    def to(self, device: str | torch.device) -> Weights:
        """The same weights on another device."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)}, device={self.device})"


class DenseWeights(Weights):
    """Weights that are there."""

    def __init__(self, matrix: Float[Tensor, "*batch queries keys"], *, ranked: bool = True) -> None:
        self.matrix = matrix
        self.shape, self.ranked = matrix.shape, ranked
        self.device, self.dtype = matrix.device, matrix.dtype

    def row_blocks(self) -> Iterator[Rows]:
        *_, n, m = self.shape
        if n:
            yield Rows(slice(0, n), slice(0, m), self.matrix)

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return pick(pick(self.matrix, -2, rows), -1, cols)

    def detach(self) -> Weights:
        return DenseWeights(self.matrix.detach(), ranked=self.ranked)

    def to(self, device: str | torch.device) -> Weights:
        return DenseWeights(self.matrix.to(device), ranked=self.ranked)


class LazyWeights(Weights):
    """Weights computed from query and keys, by what the fused pass left of each row."""

    def __init__(
        self, comparison: Comparison, statistic: Float[Tensor, "*batch queries 1"], *, random: bool = False
    ) -> None:
        self.comparison = comparison
        self.statistic = statistic
        self.random = random  # the score drew random numbers, which will not be the same again
        self.grad = torch.is_grad_enabled()
        self.parameters = tuple(learnt(comparison.terms.score).values())
        self.autocast = Autocast.now(statistic.device)
        self.shape, self.ranked = comparison.terms.shape, comparison.terms.normaliser.ranked
        self.device, self.dtype = statistic.device, statistic.dtype
        self._versions = [version(tensor) for tensor in self.tensors()]

    def tensors(self) -> Iterator[Tensor]:
        """All that the weights are computed from."""
        yield from (self.comparison.query, self.comparison.keys, self.statistic, *self.parameters)
        if self.comparison.bias is not None:
            yield self.comparison.bias
        if self.comparison.terms.visible is not None:
            yield from self.comparison.terms.visible.tensors()

    def row_blocks(self) -> Iterator[Rows]:
        self.check()
        terms = self.comparison.terms
        if isinstance(terms.normaliser, Softmax) and isinstance(terms.score, FixedDot):
            yield from dot_rows(self.comparison, self.statistic)
            return
        comparison = self.bound()
        for rows in comparison.row_blocks():
            with self.autocast.restored():
                block = self._rows(comparison, rows)
            yield block

    def _rows(self, comparison: Comparison, rows: slice) -> Rows:
        span, normaliser = comparison.reach(rows), comparison.terms.normaliser
        if isinstance(normaliser, Softmax):
            return softmax_rows(comparison, self.statistic, rows, span)
        scores, statistic = comparison.span(rows, span), pick(self.statistic, -2, rows)
        return Rows(rows, span, normaliser.weights(scores, statistic, span))

    def bound(self) -> Comparison:
        """The comparison with the parameters of the time when these weights were used."""
        terms = self.comparison.terms
        return replace(self.comparison, terms=replace(terms, score=rebound(terms.score, self.parameters)))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        self.check()
        whole = self.comparison
        with torch.set_grad_enabled(self.grad and torch.is_grad_enabled()):
            found: Tensor = _Block.apply(self, rows, cols, whole.query, whole.keys, whole.bias, *self.parameters)
        return found

    def at_batch(self, leading: list[Any]) -> Weights:
        whole, batch = self.comparison, self.shape[:-2]
        apart = not isinstance(whole.terms.score, FixedDot)  # other scores may have parameters for each head
        if apart or all(part == slice(None) for part in leading) or any(isinstance(part, Tensor) for part in leading):
            return self

        def part(tensor: Tensor) -> Tensor:
            return tensor.expand(*batch, *tensor.shape[-2:])[tuple(leading)]

        statistic = part(self.statistic)
        visible = None if whole.terms.visible is None else Within(whole.terms.visible, self.shape, tuple(leading))
        shape = torch.Size((*statistic.shape[:-2], *self.shape[-2:]))
        terms = replace(whole.terms, visible=visible, shape=shape)
        bias = None if whole.bias is None else part(whole.bias)
        self.check()
        narrowed = LazyWeights(Comparison(terms, part(whole.query), part(whole.keys), bias), statistic)
        narrowed.grad = self.grad
        return narrowed

    def apart(self) -> Weights:
        if self.shape[-2] == 1:
            return self.settled()  # its one row is less than query and keys
        return self._map(lambda tensor: tensor.clone())

    def detach(self) -> Weights:
        return self._map(lambda tensor: tensor.detach())

    def to(self, device: str | torch.device) -> Weights:
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        self.check()
        whole = self.comparison
        own = learnt(whole.terms.score).values()
        changed = {id(mine): change(used.detach()).clone() for mine, used in zip(own, self.parameters, strict=True)}
        score = copy.deepcopy(whole.terms.score, changed)
        visible = None if whole.terms.visible is None else whole.terms.visible.map(change)
        terms = replace(whole.terms, score=score, visible=visible)
        bias = None if whole.bias is None else change(whole.bias)
        comparison = Comparison(terms, change(whole.query), change(whole.keys), bias)
        weights = LazyWeights(comparison, change(self.statistic))
        weights.autocast, weights.grad = self.autocast, self.grad
        return weights

    def check(self) -> None:
        """Raise a `RegardError` where the weights would no longer be those that were used."""
        if self.random:
            raise RegardError(
                f"weights: {type(self.comparison.terms.score).__name__} drew random numbers (dropout in training?); "
                'they cannot be computed again, take them with path="reference"'
            )
        if [version(tensor) for tensor in self.tensors()] != self._versions:
            raise RegardError(
                "weights: query, keys, visible, bias or parameters were changed in place since; "
                "ask before they change, or attend with lazy=False"
            )


class MeanWeights(Weights):
    """Other weights averaged over one of their leading axes."""

    def __init__(self, whole: Weights, axis: int) -> None:
        self.whole, self.axis = whole, axis
        self.shape, self.ranked = torch.Size((*whole.shape[:axis], *whole.shape[axis + 1 :])), whole.ranked
        self.device, self.dtype = whole.device, whole.dtype

    def row_blocks(self) -> Iterator[Rows]:
        for block in self.whole.row_blocks():
            full = block.weights.expand(*self.whole.shape[:-2], *block.weights.shape[-2:])
            like = torch.empty_like(full.select(self.axis, 0))  # lies in memory as the weights do
            yield Rows(block.rows, block.span, torch.mean(full, self.axis, out=like))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return self.whole.block(rows, cols).mean(self.axis)

    def detach(self) -> Weights:
        return MeanWeights(self.whole.detach(), self.axis)

    def to(self, device: str | torch.device) -> Weights:
        return MeanWeights(self.whole.to(device), self.axis)


class _Block(torch.autograd.Function):
    """Some rows and columns of lazy weights, with a gradient that reaches the keys outside them too."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: LazyWeights,
        rows: Index,
        cols: Index,
        query: Tensor,
        keys: Tensor,
        bias: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.terms, ctx.autocast, ctx.rows, ctx.cols = weights.comparison.terms, weights.autocast, rows, cols
        ctx.save_for_backward(query, keys, bias, weights.statistic, *parameters)
        comparison, normaliser = weights.bound(), weights.comparison.terms.normaliser
        found = weights.statistic.new_empty(*weights.shape[:-2], count(rows), count(cols))
        with weights.autocast.restored():
            for local, own in row_parts(comparison, rows):
                scores, statistic = comparison.span(own, cols), pick(weights.statistic, -2, own)
                pick(found, -2, local)[:] = normaliser.weights(scores, statistic, cols)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        query, keys, bias, statistic, *parameters = ctx.saved_tensors
        comparison = Comparison(ctx.terms, query, keys, bias)
        sums = Gradients(comparison, tuple(parameters), ctx.needs_input_grad[3:])

        with ctx.autocast.restored():
            for local, own in row_parts(comparison, ctx.rows) if any(sums.learning) else ():
                pull_rows(sums, own, ctx.cols, pick(statistic, -2, own), pick(gradient, -2, local))
        return None, None, None, *sums.all()


def pull_rows(sums: Gradients, rows: Index, cols: Index, statistic: Tensor, gradient: Tensor) -> None:
    """Add the gradients of some rows, of whose weights only those at `cols` were used."""
    comparison = sums.comparison
    normaliser = comparison.terms.normaliser
    everything = slice(0, comparison.terms.shape[-1])
    scores = comparison.span(rows, everything)
    weights = normaliser.weights(scores, statistic, everything)
    of_weights = torch.zeros_like(weights.expand(*gradient.shape[:-1], weights.shape[-1]))
    of_weights.index_add_(of_weights.ndim - 1, positions(cols, weights.device), gradient)
    mean = (normaliser.share(weights) * of_weights).sum(-1, keepdim=True)
    of_scores = normaliser.slope(scores, weights, statistic) * (of_weights - mean)
    for tile in comparison.columns(rows):
        found, pull = sums.tile(rows, tile)
        if pull is not None:
            pull(pick(of_scores, -1, tile).sum_to_size(found.shape))


def row_parts(comparison: Comparison, rows: Index) -> Iterator[tuple[slice, Index]]:
    """Parts of some rows that fit a tile: where each stands among them, and which rows it is."""
    size, _ = comparison.tile_size()
    for local in blocks(range(count(rows)), size):
        if isinstance(rows, slice):
            yield local, slice(rows.start + local.start, rows.start + local.stop)
        else:
            yield local, rows[local]


def full_index(index: Any, rank: int) -> list[Any]:
    """One entry for each axis."""
    parts = [checked_position(part) for part in (index if isinstance(index, tuple) else (index,))]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise RegardError(f"weights[...]: found {len(dots)} ellipses; one is taken, which fills up the axes not named")
    if len(parts) - len(dots) > rank:
        raise RegardError(f"weights[...]: {len(parts)} positions for {rank} axes")
    place = dots[0] if dots else len(parts)
    filling = [slice(None)] * (rank - len(parts) + len(dots))
    return [*parts[:place], *filling, *parts[place + len(dots) :]]


def checked_position(part: Any) -> Any:
    """An index entry, any whole number as an int, a list as a tensor."""
    if isinstance(part, (slice, EllipsisType)):
        return part
    given = part
    try:
        if isinstance(part, list):
            part = torch.tensor(part, dtype=None if part else torch.long)
        if isinstance(part, bool):
            raise TypeError
        if not isinstance(part, Tensor) or part.ndim == 0:
            return operator.index(part)
        if part.is_floating_point() or part.is_complex():
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        found = f"a tensor of {kind(given)}" if isinstance(given, Tensor) else type(given).__name__
        told = f"weights[...]: found {found}; whole numbers, slices, and lists or tensors of whole numbers are taken"
        raise RegardError(told) from None
    if part.dtype == torch.bool and part.ndim > 1:
        raise RegardError(f"weights[...]: a bool tensor of {part.ndim} axes; one for each axis is taken")
    return part


def picked(part: Any, size: int, device: torch.device) -> tuple[Index, Any]:
    """The positions that an index entry asks for, and the entry that finds them among just these."""
    if isinstance(part, int):
        if not -size <= part < size:
            raise RegardError(f"weights[...]: there is no position {part} among {size}")
        return slice(part % size, part % size + 1), 0
    if isinstance(part, slice):
        chosen = range(*part.indices(size))
        if chosen.step == 1:
            return slice(chosen.start, max(chosen.start, chosen.stop)), slice(None)
        return torch.tensor(chosen, dtype=torch.long, device=device), slice(None)
    if part.dtype == torch.bool and len(part) != size:
        raise RegardError(f"weights[...]: a bool tensor of {len(part)} for an axis of {size}")
    wanted = (part.nonzero()[:, 0] if part.dtype == torch.bool else part.long()).to(device)
    if wanted.numel() and not (-size <= int(wanted.min()) and int(wanted.max()) < size):
        raise RegardError(
            f"weights[...]: a position from {int(wanted.min())} to {int(wanted.max())} is not among {size}"
        )
    flat = wanted.flatten() % size if size else wanted.flatten()
    return flat, torch.arange(flat.numel(), device=device).reshape(wanted.shape)


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version
