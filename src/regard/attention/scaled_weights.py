"""Weights times a number for each pair of query and key, which stay lazy: norms of values, or gradients.

Both numbers have a form that moves out of the sum of a product. For weights P, numbers c_j of the keys and vectors
a_i and b_j whose dot product is the number of a pair,

    Σ_j P_ij c_j u_j = (P (c ∘ u))_i        Σ_j P_ij (a_i · b_j) u_j = a_i · (P (b ∘ u))_i

so a product costs as much as one of the weights alone, for each column of u in the second case.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast
from regard.attention.indexing import select_leading
from regard.attention.reductions import Rows, reduce_rows
from regard.attention.score_checks import broadcasts_to
from regard.attention.visible import Index, select_index
from regard.attention.weights import Weights
from regard.errors import RegardError


class ScaledWeights(Weights):
    """Base weights, each times a number of its query and key, which follows from some tensors."""

    def __init__(self, base: Weights, *tensors: Float[Tensor, "..."]) -> None:
        self.base, self.tensors = base, tensors
        self.shape, self.ranked, self.device, self.dtype = base.shape, False, base.device, base.dtype

    @abstractmethod
    def compute_scale(self, rows: Index, cols: Index) -> Float[Tensor, "*#batch #rows cols"]:
        """Return the numbers of some rows and columns."""

    def row_blocks(self) -> Iterator[Rows]:
        for block in self.base.row_blocks():
            scale = self.compute_scale(block.rows, block.span).detach()
            yield Rows(block.rows, block.span, (block.weights * scale).expand(*self.shape[:-2], -1, -1))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return self.base.block(rows, cols) * self.compute_scale(rows, cols)

    def compute_reductions(self, names: Sequence[str]) -> dict[str, Any]:
        results: dict[str, Any] = {}
        by_rows = [name for name in names if name != "received"]
        if by_rows:
            like = torch.empty((), device=self.device, dtype=self.dtype)
            results = reduce_rows(self.row_blocks(), by_rows, self.shape, like)
        if "received" in names:
            ones = torch.ones(self.shape[-2], device=self.device, dtype=self.dtype)
            results["received"] = self.mT @ ones
        return results

    def select_batch(self, leading: list[Any]) -> Weights:
        base = self.base.select_batch(leading)
        if base is self.base:
            return self
        return type(self)(base, *(select_leading(tensor, self.shape[:-2], leading) for tensor in self.tensors))

    def materialize(self) -> Weights:
        return type(self)(self.base.materialize(), *self.tensors)

    def clone(self) -> Weights:
        return type(self)(self.base.clone(), *(tensor.clone() for tensor in self.tensors))

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return type(self)(self.base.map(change), *map(change, self.tensors))


class ValueWeightedWeights(ScaledWeights):
    """Weights times the norm of the value of each key, (*batch, keys, 1)."""

    def get_undefined_reason(self, name: str) -> str | None:
        if name == "entropy":
            return "weights times norms of values, which do not sum to one"
        return self.base.get_undefined_reason(name)

    def compute_scale(self, rows: Index, cols: Index) -> Float[Tensor, "*#batch 1 cols"]:
        (norms,) = self.tensors
        return select_index(norms, -2, cols).mT

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        (norms,) = self.tensors
        return self.base.multiply(norms * factor)

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        (norms,) = self.tensors
        return norms * self.base.multiply_transposed(factor)


class GradientWeights(ScaledWeights):
    """Weights times their gradient: the gradient of each query's output times the value of each key."""

    def get_undefined_reason(self, name: str) -> str | None:
        return None if name == "received" else "weights times their gradient, which may be negative"

    def compute_scale(self, rows: Index, cols: Index) -> Float[Tensor, "*#batch rows cols"]:
        gradient, values = self.tensors
        return select_index(gradient, -2, rows) @ select_index(values, -2, cols).mT

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        gradient, values = self.tensors
        return stack_columns((gradient * self.base.multiply(values * column)).sum(-1) for column in factor.split(1, -1))

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        gradient, values = self.tensors
        return stack_columns(
            (values * self.base.multiply_transposed(gradient * column)).sum(-1) for column in factor.split(1, -1)
        )


def stack_columns(columns: Iterator[Float[Tensor, "*batch rows"]]) -> Float[Tensor, "*batch rows width"]:
    """Return columns as a matrix."""
    return torch.stack(list(columns), -1)


def weight_by_values(
    weights: Weights, values: Float[Tensor, "..."], output_matrix: Float[Tensor, "..."] | None
) -> ValueWeightedWeights:
    """Return weights times the norms of the values, projected by an output matrix if there is one."""
    values = check_positions("value_weighted", "values", values, weights, -1)
    if output_matrix is not None:
        check_output_matrix(output_matrix, values, weights)
        values = values @ reduce_width(output_matrix.to(values.dtype))
    return ValueWeightedWeights(weights, torch.linalg.vector_norm(values, dim=-1, keepdim=True))


def weight_by_gradient(
    weights: Weights, gradient: Float[Tensor, "..."], values: Float[Tensor, "..."]
) -> GradientWeights:
    """Return weights times the gradient that they get from a gradient of the attention's output."""
    gradient = check_positions("times_gradient", "gradient", gradient, weights, -2)
    values = check_positions("times_gradient", "values", values, weights, -1)
    if gradient.shape[-1] != values.shape[-1]:
        raise RegardError(
            f"times_gradient: gradient and values must have the same width, got {gradient.shape[-1]} "
            f"and {values.shape[-1]}"
        )
    return GradientWeights(weights, gradient, values)


def check_positions(
    caller: str, name: str, tensor: Float[Tensor, "..."], weights: Weights, axis: int
) -> Float[Tensor, "..."]:
    """Return a vector for each query or key in the type of the weights, with all their axes."""
    *batch, _, _ = weights.shape
    count = weights.shape[axis]
    leading = tuple(tensor.shape[:-2])
    if tensor.ndim < 2 or tensor.shape[-2] != count or not broadcasts_to(leading, tuple(batch)):
        raise RegardError(
            f"{caller}: expected {name} of shape (..., {count}, width), where the leading axes broadcast to "
            f"{tuple(batch)}; got {tuple(tensor.shape)}"
        )
    missing = len(weights.shape) - tensor.ndim
    return upcast(tensor).to(weights.dtype).reshape((1,) * missing + tensor.shape)


def check_output_matrix(
    matrix: Float[Tensor, "..."], values: Float[Tensor, "*#batch keys width"], weights: Weights
) -> None:
    """Raise a `RegardError` unless a matrix can be multiplied by the values of each head."""
    *batch, _, _ = weights.shape
    width = values.shape[-1]
    if matrix.ndim < 2 or matrix.shape[-2] != width or not broadcasts_to(tuple(matrix.shape[:-2]), tuple(batch)):
        raise RegardError(
            f"value_weighted: expected output_matrix of shape (..., {width}, output width), where the leading axes "
            f"broadcast to {tuple(batch)}; got {tuple(matrix.shape)}"
        )


def reduce_width(matrix: Float[Tensor, "*batch width output"]) -> Float[Tensor, "*batch width smaller"]:
    """Return a matrix with at most as many columns as rows, by which vectors keep the norm that they would have."""
    if matrix.shape[-1] <= matrix.shape[-2]:
        return matrix
    return torch.linalg.qr(matrix.mT).R.mT
