"""The exact attention weights, computed when asked for and only as far as asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.indexing import full_index, picked
from regard.attention.reductions import UNRANKED, Rows, as_reduction, reduce_rows
from regard.attention.visible import Index, pick
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
        for name in names:
            as_reduction(name)  # a wrong name is said first
            if not self.ranked and name not in UNRANKED:
                raise RegardError(f'{name}: weights of normaliser "none" do not sum to one and have no {name}')
        with torch.no_grad():
            found = self.answers(tuple(dict.fromkeys(names)))
        return tuple(found[name] for name in names)

    def answers(self, names: Sequence[str]) -> dict[str, Any]:
        """The results of some reductions by their names, from one walk over all rows."""
        like = torch.empty((), device=self.device, dtype=self.dtype)
        return reduce_rows(self.row_blocks(), names, self.shape, like)

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
    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        """The same weights with every tensor changed that they are made of, parameters as copies."""

    def detach(self) -> Weights:
        """The same weights without gradients, kept apart from later changes to the parameters."""
        return self.map(lambda tensor: tensor.detach())

    def to(self, device: str | torch.device) -> Weights:
        """The same weights on another device."""
        return self.map(lambda tensor: tensor.to(device))

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

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return DenseWeights(change(self.matrix), ranked=self.ranked)


class DerivedWeights(Weights):
    """Other weights, changed along one of their leading axes; as lazy as they are."""

    def __init__(self, whole: Weights, axis: int, shape: tuple[int, ...]) -> None:
        self.whole, self.axis = whole, axis
        self.shape, self.ranked = torch.Size(shape), whole.ranked
        self.device, self.dtype = whole.device, whole.dtype

    @abstractmethod
    def over(self, whole: Weights) -> Weights:
        """The same change of other weights."""

    def whole_rows(self) -> Iterator[tuple[Rows, Float[Tensor, "..."]]]:
        """The blocks of the other weights, and all of the weights in each."""
        for block in self.whole.row_blocks():
            yield block, block.weights.expand(*self.whole.shape[:-2], *block.weights.shape[-2:])

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return self.over(self.whole.map(change))


class MeanWeights(DerivedWeights):
    """Other weights averaged over one of their leading axes."""

    def __init__(self, whole: Weights, axis: int) -> None:
        super().__init__(whole, axis, (*whole.shape[:axis], *whole.shape[axis + 1 :]))

    def over(self, whole: Weights) -> Weights:
        return MeanWeights(whole, self.axis)

    def row_blocks(self) -> Iterator[Rows]:
        for block, full in self.whole_rows():
            like = torch.empty_like(full.select(self.axis, 0))  # lies in memory as the weights do
            yield Rows(block.rows, block.span, torch.mean(full, self.axis, out=like))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return self.whole.block(rows, cols).mean(self.axis)
