"""Weights that combine other weights: with two axes merged, or with rows joined. They stay lazy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.reductions import Rows
from regard.attention.visible import Index, count_indices, index_to_tensor
from regard.attention.weights import DerivedWeights, Weights


class MergedWeights(DerivedWeights):
    """Base weights with two neighboring leading axes merged, such as groups and the heads in a group."""

    def __init__(self, base: Weights, axis: int) -> None:
        before, (outer, inner), after = base.shape[:axis], base.shape[axis : axis + 2], base.shape[axis + 2 :]
        super().__init__(base, axis, (*before, outer * inner, *after))

    def with_base(self, base: Weights) -> Weights:
        return MergedWeights(base, self.axis)

    def expand_factor(self, factor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if factor.shape[self.axis] == 1:
            return factor.unsqueeze(self.axis)
        return factor.unflatten(self.axis, self.base.shape[self.axis : self.axis + 2])

    def combine(self, product: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return product.flatten(self.axis, self.axis + 1)

    def merge_axes(self, result: Any) -> Any:
        """Merge the two axes in a result about the base weights, or in each of a tuple of results."""
        return (
            tuple(map(self.merge_axes, result))
            if isinstance(result, tuple)
            else result.flatten(self.axis, self.axis + 1)
        )

    def compute_reductions(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: self.merge_axes(result) for name, result in self.base.compute_reductions(names).items()}

    def row_blocks(self) -> Iterator[Rows]:
        for block, full in self.iter_base_rows():
            yield Rows(block.rows, block.span, self.merge_axes(full))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return self.merge_axes(self.base.block(rows, cols))

    def select_batch(self, leading: list[Any]) -> Weights:
        index = leading[self.axis]
        if not isinstance(index, int) or not -self.shape[self.axis] <= index < self.shape[self.axis]:
            return self
        group_and_head = divmod(index % self.shape[self.axis], self.base.shape[self.axis + 1])
        narrowed = self.base.select_batch([*leading[: self.axis], *group_and_head, *leading[self.axis + 1 :]])
        return self if narrowed is self.base else narrowed

    def clone(self) -> Weights:
        return self.with_base(self.base.clone())


class JoinedWeights(Weights):
    """The rows of several weights, concatenated.

    The keys of each part are a range of all keys that starts at its entry in `firsts`; the other
    keys have weight zero.
    """

    def __init__(self, parts: Sequence[Weights], firsts: Sequence[int]) -> None:
        self.parts, self.firsts = list(parts), list(firsts)
        self.rows = [0, *accumulate(part.shape[-2] for part in parts)]
        keys = max(first + part.shape[-1] for part, first in zip(parts, firsts, strict=True))
        self.shape = torch.Size((*parts[0].shape[:-2], self.rows[-1], keys))
        self.ranked = all(part.ranked for part in parts)
        self.device, self.dtype = parts[0].device, parts[0].dtype

    def row_blocks(self) -> Iterator[Rows]:
        for part, row, first in zip(self.parts, self.rows, self.firsts, strict=False):
            for block in part.row_blocks():
                moved = copy.copy(block)
                moved.rows, moved.span = shift_slice(block.rows, row), shift_slice(block.span, first)
                yield moved

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        block = torch.zeros(
            *self.shape[:-2], count_indices(rows), count_indices(cols), dtype=self.dtype, device=self.device
        )
        for part, row, first in zip(self.parts, self.rows, self.firsts, strict=False):
            rows_here, part_rows = find_overlap(rows, row, part.shape[-2], self.device)
            cols_here, part_cols = find_overlap(cols, first, part.shape[-1], self.device)
            block[..., rows_here[:, None], cols_here] = part.block(part_rows, part_cols)
        return block

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        parts = zip(self.parts, self.firsts, strict=True)
        return torch.cat([part.multiply(factor.narrow(-2, first, part.shape[-1])) for part, first in parts], -2)

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        product = factor.new_zeros(*self.shape[:-2], self.shape[-1], factor.shape[-1], dtype=self.dtype)
        for part, row, first in zip(self.parts, self.rows, self.firsts, strict=False):
            of_part = part.multiply_transposed(factor.narrow(-2, row, part.shape[-2]))
            product.narrow(-2, first, part.shape[-1]).add_(of_part)
        return product

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return JoinedWeights([part.map(change) for part in self.parts], self.firsts)


def shift_slice(run: slice, by: int) -> slice:
    """Shift a slice by an offset."""
    return slice(run.start + by, run.stop + by)


def find_overlap(index: Index, start: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Find the elements of an index that are in a range; return their positions in the index and in the range."""
    offsets = index_to_tensor(index, device) - start
    indices = ((offsets >= 0) & (offsets < size)).nonzero()[:, 0]
    return indices, offsets[indices]
