"""Exact attention weights, computed on demand and only as far as needed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.base_score import upcast_matmul
from regard.attention.call import TILE_NUMBERS, iter_blocks
from regard.attention.indexing import expand_index, resolve_index
from regard.attention.matrix import Matrix
from regard.attention.reductions import UNRANKED, Rows, as_reduction, reduce_rows
from regard.attention.visible import Index, select_index
from regard.errors import RegardError


class Weights(Matrix):
    """The attention weights of a call: a (*batch, queries, keys) matrix that is computed on demand.

    `weights[..., 3:7, :]` computes just these rows, exactly as indexing the dense tensor would, and
    `weights @ u` is the product with a vector or a matrix, in memory linear in queries and keys; so is
    `weights.mT @ w`. Indexing, products and `dense` are differentiable. The reductions (`top`,
    `received`, `entropy`, `argmax`) work block by block in little memory and are not differentiable.
    Each row sums to one, or to zero if its query sees no key; with a sink rows sum to less, with
    normalizer `none` they have any sum.

    Attributes:
        shape: (*batch, queries, keys).
        ranked: Whether each row is a distribution; False with normalizer `none`.
        device: The device of the weights.
        dtype: The type of the weights, at least float32.

    Example:
        >>> out, weights = attend(query, keys, values, return_weights=True)
        >>> weights.shape
        torch.Size([2, 8, 100, 100])
        >>> top_weights, indices = weights.top(5)
        >>> row = weights[0, 3, 17]  # batch 0, head 3, query 17: (100,)
        >>> matrix = weights.mean().dense()  # averaged over the heads: (2, 100, 100)
        >>> on_nouns = weights @ is_noun  # the attention of each query to some keys: (2, 8, 100)
    """

    ranked: bool

    def top(self, k: int) -> tuple[Float[Tensor, "*batch queries k"], Int[Tensor, "*batch queries k"]]:
        """Return the k largest weights of each query and their keys, largest first.

        Args:
            k: Number of keys; capped at the number of keys there are.

        Returns:
            The weights and the key indices. If fewer than k keys have a weight above zero, the
            remaining entries are weight 0 at index -1.

        Raises:
            RegardError: If k is not a positive integer, or the normalizer is `none`.
        """
        if not isinstance(k, int) or k < 1:
            raise RegardError(f"top: k must be a positive integer, got {k!r}")
        ((values, indices),) = self.reduce(f"top:{k}")
        return values, indices

    def received(self) -> Float[Tensor, "*batch keys"]:
        """Return the attention each key receives, summed over all queries."""
        (total,) = self.reduce("received")
        return total

    def entropy(self) -> Float[Tensor, "*batch queries"]:
        """Return the entropy of each query's weights in nats; zero for a query that sees no key.

        It is -sum(w log w) over the keys; the part that goes to a sink is no key and does not count.
        """
        (spread,) = self.reduce("entropy")
        return spread

    def argmax(self) -> Int[Tensor, "*batch queries"]:
        """Return the key with the largest weight for each query, the first of ties; -1 if all weights are zero."""
        (best,) = self.reduce("argmax")
        return best

    def reduce(self, *names: str) -> tuple[Any, ...]:
        """Compute several reductions in one pass over the weights.

        Args:
            *names: Names of reductions: `top:K`, `received`, `entropy` or `argmax`.

        Returns:
            The results in the order of the names; that of `top:K` is a pair of weights and indices.

        Raises:
            RegardError: If a name is unknown, or the reduction is undefined for normalizer `none`.

        Example:
            >>> (top_weights, indices), received = weights.reduce("top:5", "received")
        """
        for name in names:
            as_reduction(name)  # report an unknown name first
            reason = self.get_undefined_reason(name)
            if reason is not None:
                raise RegardError(f"{name} is undefined for {reason}")
        with torch.no_grad():
            results = self.compute_reductions(tuple(dict.fromkeys(names)))
        return tuple(results[name] for name in names)

    def get_undefined_reason(self, name: str) -> str | None:
        """Return what these weights are that makes a reduction undefined; None if it is defined."""
        if self.ranked or name in UNRANKED:
            return None
        return 'weights of normalizer "none", which do not sum to one'

    def compute_reductions(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the results of some reductions by name, from one pass over all rows."""
        like = torch.empty((), device=self.device, dtype=self.dtype)
        return reduce_rows(self.row_blocks(), names, self.shape, like)

    def dense(self) -> Float[Tensor, "*batch queries keys"]:
        """Return the whole (*batch, queries, keys) matrix; differentiable."""
        return self.block(slice(0, self.shape[-2]), slice(0, self.shape[-1]))

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        factor = factor.to(self.dtype)
        parts = [recompute(upcast_matmul, self, rows, factor) for rows in self.iter_rows()]
        return torch.cat([factor.new_zeros(*self.shape[:-2], 0, factor.shape[-1]), *parts], -2)

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        factor = factor.to(self.dtype)
        product = factor.new_zeros(*self.shape[:-2], self.shape[-1], factor.shape[-1])
        for rows in self.iter_rows():
            product += recompute(multiply_rows_transposed, self, rows, select_index(factor, -2, rows))
        return product

    def iter_rows(self) -> Iterator[slice]:
        """Iterate over all rows in blocks that are small enough to compute at once."""
        row_size = max(1, self.shape[:-2].numel() * self.shape[-1])
        return iter_blocks(range(self.shape[-2]), max(1, TILE_NUMBERS["cpu"] // row_size))

    def value_weighted(
        self, values: Float[Tensor, "..."], output_matrix: Float[Tensor, "..."] | None = None
    ) -> Weights:
        """Return the weights times the norms of the values: how much each key adds to the output.

        A key with a large weight adds little if its value is small (Kobayashi et al. 2020). The result
        is lazy and differentiable as these weights are; only its entropy is undefined.

        Args:
            values: The values of the attention, (*#batch, keys, width).
            output_matrix: The matrix that the output of each head is multiplied by, (*#batch, width,
                output width). Of an `nn.Linear` over all heads that is
                `linear.weight.T.unflatten(0, (heads, -1))`.

        Raises:
            RegardError: If a shape does not fit the weights.

        Example:
            >>> top_norms, indices = weights.value_weighted(values).top(5)
        """
        from regard.attention.scaled_weights import weight_by_values

        return weight_by_values(self, values, output_matrix)

    def times_gradient(self, gradient: Float[Tensor, "..."], values: Float[Tensor, "..."]) -> Weights:
        """Return the weights times the gradient of a loss for them: how much each key changes the loss.

        The gradient of the weight of a query and a key is the gradient of the query's output times the
        value of the key, so no matrix is needed. Numbers may be negative, so `received` (the sum by key) is
        the only reduction; `@ torch.ones(keys)` is the sum by query. Both are exact and take memory
        linear in queries and keys.

        Args:
            gradient: The gradient of the loss for the output of the attention, (*#batch, queries, width).
            values: The values of the attention, (*#batch, keys, width).

        Raises:
            RegardError: If a shape does not fit the weights.

        Example:
            >>> (gradient,) = torch.autograd.grad(loss, out)
            >>> by_key = weights.times_gradient(gradient, values).received()
        """
        from regard.attention.scaled_weights import weight_by_gradient

        return weight_by_gradient(self, gradient, values)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: Any) -> Tensor:
        *leading, rows, cols = expand_index(index, len(self.shape))
        narrowed = self.select_batch(leading)
        which_rows, local_rows = resolve_index(rows, narrowed.shape[-2], self.device)
        which_cols, local_cols = resolve_index(cols, narrowed.shape[-1], self.device)
        block = narrowed.block(which_rows, which_cols)
        rest = [slice(None)] * (block.ndim - 2) if narrowed is not self else leading
        return block[(*rest, local_rows, local_cols)]

    def mean(self, axis: int = -3) -> Weights:
        """Return the weights averaged over a leading axis; lazy if these are.

        Args:
            axis: An axis of *batch. Defaults to -3, the heads.

        Raises:
            RegardError: If the axis is not a leading axis or is empty.
        """
        is_valid = isinstance(axis, int) and -len(self.shape) <= axis < len(self.shape)
        positive_axis = axis % len(self.shape) if is_valid else len(self.shape)
        if positive_axis >= len(self.shape) - 2:
            raise RegardError(f"mean: axis must be a leading axis of shape {tuple(self.shape)}, got {axis!r}")
        if self.shape[positive_axis] == 0:
            raise RegardError(f"mean: axis {axis} of shape {tuple(self.shape)} is empty")
        return MeanWeights(self, positive_axis)

    def materialize(self) -> Weights:
        """Compute the whole matrix now and return it as `DenseWeights`."""
        return DenseWeights(self.dense(), ranked=self.ranked)

    def clone(self) -> Weights:
        """Return a copy that does not share memory with query and keys."""
        return self.materialize()

    def save(self, path: str | Path) -> None:
        """Save to a safetensors file.

        Lazy weights are saved as query and keys, which is smaller than the matrix.

        Args:
            path: The file to write.

        Raises:
            RegardError: If the file cannot be written, or the weights come from a score of your own,
                which cannot be saved: save `weights.materialize()` instead.

        Example:
            >>> weights.save("weights.safetensors")
            >>> weights = Weights.load("weights.safetensors")
        """
        from regard.attention.archive import save_weights  # only save and load need safetensors

        save_weights(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Weights:
        """Load weights saved by `save`; raise a `RegardError` if the file is not one."""
        from regard.attention.archive import load_weights

        return load_weights(Path(path))

    @abstractmethod
    def row_blocks(self) -> Iterator[Rows]:
        """Iterate over all rows in blocks, without gradient."""

    @abstractmethod
    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        """Return some rows and columns; differentiable."""

    def select_batch(self, leading: list[Any]) -> Weights:
        """Return the weights of part of the batch if that saves work, else self."""
        return self

    @abstractmethod
    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        """Return the weights with a function applied to all their tensors; parameters are copied."""

    def detach(self) -> Weights:
        """Return the weights without gradient and unaffected by later parameter updates."""
        return self.map(lambda tensor: tensor.detach())

    def to(self, device: str | torch.device) -> Weights:
        """Return the weights on another device."""
        return self.map(lambda tensor: tensor.to(device))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)}, device={self.device})"


class DenseWeights(Weights):
    """Weights held as a matrix in memory.

    Args:
        matrix: The weights, (*batch, queries, keys).
        ranked: Whether each row is a distribution, so that `top`, `entropy` and `argmax` are defined.

    Example:
        >>> weights = DenseWeights(torch.softmax(scores, -1))
        >>> weights.entropy()
    """

    def __init__(self, matrix: Float[Tensor, "*batch queries keys"], *, ranked: bool = True) -> None:
        self.matrix = matrix
        self.shape, self.ranked = matrix.shape, ranked
        self.device, self.dtype = matrix.device, matrix.dtype

    def row_blocks(self) -> Iterator[Rows]:
        *_, n, m = self.shape
        if n:
            yield Rows(slice(0, n), slice(0, m), self.matrix)

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return select_index(select_index(self.matrix, -2, rows), -1, cols)

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        return upcast_matmul(self.dense(), factor.to(self.dtype))

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        return upcast_matmul(self.dense().mT, factor.to(self.dtype))

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return DenseWeights(change(self.matrix), ranked=self.ranked)


class DerivedWeights(Weights):
    """Base weights transformed along one leading axis; lazy if the base weights are."""

    def __init__(self, base: Weights, axis: int, shape: tuple[int, ...]) -> None:
        self.base, self.axis = base, axis
        self.shape, self.ranked = torch.Size(shape), base.ranked
        self.device, self.dtype = base.device, base.dtype

    @abstractmethod
    def with_base(self, base: Weights) -> Weights:
        """Return the same transformation of other base weights."""

    @abstractmethod
    def expand_factor(self, factor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return a factor of these weights as one of the base weights."""

    @abstractmethod
    def combine(self, product: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return a product of these weights from that of the base weights."""

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        return self.combine(self.base.multiply(self.expand_factor(factor)))

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        return self.combine(self.base.multiply_transposed(self.expand_factor(factor)))

    def get_undefined_reason(self, name: str) -> str | None:
        return self.base.get_undefined_reason(name)

    def iter_base_rows(self) -> Iterator[tuple[Rows, Float[Tensor, "..."]]]:
        """Iterate over the blocks of the base weights, each with its weights expanded to all of *batch."""
        for block in self.base.row_blocks():
            yield block, block.weights.expand(*self.base.shape[:-2], *block.weights.shape[-2:])

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return self.with_base(self.base.map(change))


class MeanWeights(DerivedWeights):
    """Base weights averaged over one of their leading axes."""

    def __init__(self, base: Weights, axis: int) -> None:
        super().__init__(base, axis, (*base.shape[:axis], *base.shape[axis + 1 :]))

    def with_base(self, base: Weights) -> Weights:
        return MeanWeights(base, self.axis)

    def expand_factor(self, factor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return factor.unsqueeze(self.axis)

    def combine(self, product: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return product.mean(self.axis)

    def row_blocks(self) -> Iterator[Rows]:
        for block, full in self.iter_base_rows():
            like = torch.empty_like(full.select(self.axis, 0))  # same memory layout as the weights
            yield Rows(block.rows, block.span, torch.mean(full, self.axis, out=like))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return self.base.block(rows, cols).mean(self.axis)


def recompute(
    product: Callable[[Tensor, Tensor], Tensor], weights: Weights, rows: slice, factor: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Return the product of some rows and a factor; the rows are not held for backward but computed again."""

    def multiply(factor: Tensor) -> Tensor:
        return product(weights.block(rows, slice(0, weights.shape[-1])), factor)

    if not torch.is_grad_enabled():
        return multiply(factor)
    return checkpoint(multiply, factor, use_reentrant=False, preserve_rng_state=False)


def multiply_rows_transposed(rows: Float[Tensor, "..."], factor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return transposed rows of weights times a factor for each row."""
    return upcast_matmul(rows.mT, factor)
