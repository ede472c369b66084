"""Weights of attention whose scores and visible keys are functions of positions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import TILE_NUMBERS, iter_blocks
from regard.attention.intercept.recorded_weights import STALE, copy_if_written
from regard.attention.lazy_weights import get_version
from regard.attention.reductions import Rows
from regard.attention.scaled_weights import ScaledWeights
from regard.attention.visible import Index, index_to_tensor, select_index
from regard.attention.weights import Weights
from regard.errors import RegardError

Modify = Callable[..., Tensor]


class FlexWeights(Weights):
    """Weights of `flex_attention`, whose functions of score and positions are applied to some rows at a time.

    Args:
        query: The queries, (batch, heads, queries, width).
        keys: The keys, (batch, groups, keys, width).
        scale: The factor of the dot products.
        score_mod: The function of score, batch, head, query and key that changes a score.
        mask_mod: The function of batch, head, query and key that says which keys are visible.
    """

    def __init__(
        self,
        query: Float[Tensor, "batch heads queries width"],
        keys: Float[Tensor, "batch groups keys width"],
        scale: float,
        score_mod: Modify | None,
        mask_mod: Modify | None,
    ) -> None:
        self.query, self.keys, self.scale = query, keys, scale
        self.score_mod, self.mask_mod = score_mod, mask_mod
        self.shape, self.ranked = torch.Size((*query.shape[:-1], keys.shape[-2])), True
        self.device, self.dtype = query.device, torch.promote_types(query.dtype, torch.float32)
        self._versions = [get_version(tensor) for tensor in self.iter_tensors()]

    def iter_tensors(self) -> Iterator[Tensor]:
        """Iterate over the tensors that the weights are computed from, and those that the functions refer to."""
        yield from (self.query, self.keys)
        yield from iter_closure_tensors((self.score_mod, self.mask_mod), set())

    @property
    def groups(self) -> int:
        """The number of groups of heads that share keys."""
        return self.keys.shape[1]

    def compute_rows(self, rows: Index) -> Float[Tensor, "batch heads rows keys"]:
        """Compute whole rows, as flex_attention defines them; zeros for a query that sees no key."""
        if [get_version(tensor) for tensor in self.iter_tensors()] != self._versions:
            raise RegardError(STALE)
        query = select_index(self.query, -2, rows).to(self.dtype)
        keys = self.keys.to(self.dtype).repeat_interleave(query.shape[1] // self.groups, 1)
        scores = query @ keys.mT * self.scale
        batch, heads, _, keys_count = scores.shape
        positions = [torch.arange(size, device=self.device) for size in (batch, heads)]
        positions += [index_to_tensor(rows, self.device), torch.arange(keys_count, device=self.device)]
        if self.score_mod is not None:
            scores = map_positions(self.score_mod, 1)(scores, *positions).to(self.dtype)
        if self.mask_mod is not None:
            scores = scores.masked_fill(~map_positions(self.mask_mod, 0)(*positions), -torch.inf)
        blind = (scores == -torch.inf).all(-1, keepdim=True)
        return torch.softmax(scores.masked_fill(blind, 0), -1).masked_fill(blind, 0)

    def row_blocks(self) -> Iterator[Rows]:
        size = max(1, TILE_NUMBERS["cpu"] // max(1, self.shape[:-2].numel() * self.shape[-1]))
        for rows in iter_blocks(range(self.shape[-2]), size):
            yield Rows(rows, slice(0, self.shape[-1]), self.compute_rows(rows).detach())

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return select_index(self.compute_rows(rows), -1, cols)

    def hold(self) -> Weights:
        """Return weights that later changes of the model's tensors cannot make wrong without an error."""
        if self.shape[-2] == 1:
            return self.materialize()
        query, keys = copy_if_written(self.query), copy_if_written(self.keys)
        return FlexWeights(query, keys, self.scale, self.score_mod, self.mask_mod)

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return FlexWeights(change(self.query), change(self.keys), self.scale, self.score_mod, self.mask_mod)


class RescaledWeights(ScaledWeights):
    """Weights times a factor for each query, (batch, heads, queries, 1), as attention sinks make them."""

    def get_undefined_reason(self, name: str) -> str | None:
        return self.base.get_undefined_reason(name)

    def compute_scale(self, rows: Index, cols: Index) -> Float[Tensor, "batch heads rows 1"]:
        return select_index(self.tensors[0], -2, rows)

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        return self.tensors[0] * self.base.multiply(factor)

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        return self.base.multiply_transposed(self.tensors[0] * factor)

    def hold(self) -> Weights:
        """Return weights that later changes of the model's tensors cannot make wrong without an error."""
        base = self.base.hold() if isinstance(self.base, FlexWeights) else self.base
        return RescaledWeights(base, self.tensors[0].clone())


def iter_closure_tensors(part: Any, visited: set[int]) -> Iterator[Tensor]:
    """Iterate over the tensors that functions refer to, also through other functions, as `and_masks` makes them."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, (tuple, list)):
        for inner in part:
            yield from iter_closure_tensors(inner, visited)
    elif inspect.isfunction(part) and id(part) not in visited:
        visited.add(id(part))
        variables = inspect.getclosurevars(part)
        for inner in (*variables.nonlocals.values(), *variables.globals.values()):
            yield from iter_closure_tensors(inner, visited)


def map_positions(modify: Modify, leading: int) -> Callable[..., Tensor]:
    """Return a function of positions along each axis from one of single positions."""
    for axis in range(4):
        given = [None] * 4
        given[3 - axis] = 0  # type: ignore[call-overload]
        modify = torch.vmap(modify, in_dims=(*[0] * leading, *given), out_dims=0)
    return modify
