"""Matrices that are multiplied without being held: `weights @ u`, and `weights.mT @ w` for the transpose.

    scores_of_words = weights @ is_noun  # how much attention each query gives to nouns
    received = weights.mT @ torch.ones(queries)  # how much attention each key receives

A matrix here is (*batch, rows, columns). A product takes what `torch.matmul` would take beside the dense
matrix, except that leading axes broadcast to *batch only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.score_checks import broadcasts_to
from regard.errors import RegardError


class Matrix(ABC):
    """A (*batch, rows, columns) matrix with products, a transpose and a dense form.

    Attributes:
        shape: (*batch, rows, columns).
        device: The device of the matrix.
        dtype: The type of the matrix, at least float32.
    """

    shape: torch.Size
    device: torch.device
    dtype: torch.dtype

    @abstractmethod
    def dense(self) -> Float[Tensor, "*batch rows columns"]:
        """Return the whole matrix."""

    @abstractmethod
    def multiply(self, factor: Float[Tensor, "*#batch columns width"]) -> Float[Tensor, "*batch rows width"]:
        """Return the matrix times a factor with as many axes as the matrix; differentiable."""

    @abstractmethod
    def multiply_transposed(self, factor: Float[Tensor, "*#batch rows width"]) -> Float[Tensor, "*batch columns width"]:
        """Return the transposed matrix times a factor with as many axes as the matrix; differentiable."""

    @property
    def mT(self) -> Matrix:  # noqa: N802  (torch's name)
        """The matrix with rows and columns exchanged: a view."""
        return Transposed(self)

    @property
    def T(self) -> Matrix:  # noqa: N802
        """The same as `mT`: *batch stays in place."""
        return self.mT

    def __matmul__(self, factor: Tensor) -> Float[Tensor, "..."]:
        """Return the product with a vector (columns,) or a matrix (*#batch, columns, width), in the type of these.

        Integers and bools are taken as numbers in the type of this matrix.
        """
        checked = check_factor(self, factor)
        product = self.multiply(checked).to(factor.dtype if factor.is_floating_point() else self.dtype)
        return product.squeeze(-1) if factor.ndim == 1 else product

    def __rmatmul__(self, factor: Tensor) -> Float[Tensor, "..."]:
        """Return the product of a vector (rows,) or a matrix (*#batch, width, rows) with this matrix."""
        return self.mT @ factor if factor.ndim < 2 else (self.mT @ factor.mT).mT


class Transposed(Matrix):
    """A matrix with its rows and columns exchanged."""

    def __init__(self, base: Matrix) -> None:
        self.base = base
        self.shape = torch.Size((*base.shape[:-2], base.shape[-1], base.shape[-2]))
        self.device, self.dtype = base.device, base.dtype

    def dense(self) -> Float[Tensor, "*batch columns rows"]:
        return self.base.dense().mT

    def multiply(self, factor: Float[Tensor, "*#batch rows width"]) -> Float[Tensor, "*batch columns width"]:
        return self.base.multiply_transposed(factor)

    def multiply_transposed(self, factor: Float[Tensor, "*#batch columns width"]) -> Float[Tensor, "*batch rows width"]:
        return self.base.multiply(factor)

    @property
    def mT(self) -> Matrix:  # noqa: N802
        return self.base

    def __repr__(self) -> str:
        return f"{self.base!r}.mT"


def check_factor(matrix: Matrix, factor: object) -> Float[Tensor, "*#batch columns width"]:
    """Return a factor in floating point with as many axes as the matrix; raise a `RegardError` if it does not fit."""
    *batch, _, columns = matrix.shape
    if not isinstance(factor, Tensor):
        raise RegardError(f"@: expected a tensor, got {type(factor).__name__}")
    factor = factor if factor.is_floating_point() else factor.to(matrix.dtype)
    columns_first = factor[:, None] if factor.ndim == 1 else factor
    if (
        columns_first.ndim < 2
        or columns_first.shape[-2] != columns
        or not broadcasts_to(tuple(columns_first.shape[:-2]), tuple(batch))
    ):
        leading = f", where the leading axes broadcast to {tuple(batch)}" if batch else ""
        raise RegardError(
            f"@: a matrix of shape {tuple(matrix.shape)} can be multiplied by ({columns},) or "
            f"(..., {columns}, width){leading}; got {tuple(factor.shape)}"
        )
    missing = len(matrix.shape) - columns_first.ndim
    return columns_first.reshape((1,) * missing + columns_first.shape)
