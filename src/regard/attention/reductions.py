"""Reductions of weights, computed from blocks of rows without holding the whole matrix.

Several reductions share one pass over the weights (`Weights.reduce`), so three cost little more
than one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from regard.attention.normalizers import LOG2_E
from regard.attention.visible import select_index
from regard.errors import RegardError, unknown_name

UNRANKED = ("received",)  # reductions that are defined for weights that do not sum to one
GROUP = 16  # keys per group in the first step of the top-k search
DEEP = -2000.0  # 2**DEEP is zero in every type


class Rows:
    """A block of whole rows of weights; keys outside of `span` have weight zero."""

    def __init__(self, rows: slice, span: slice, weights: Tensor) -> None:
        self.rows = rows
        self.span = span
        self.weights = weights  # (*batch, rows, span)

    @property
    def order(self) -> Tensor:
        """The weights, or values of the same byte size that sort in the same order."""
        return self.weights

    def entropy(self) -> Tensor:
        """Return -sum(w log w) of each row."""
        return torch.special.entr(self.weights).sum(-1)


class LogRows(Rows):
    """A block of rows given by logarithms; the weights are computed on demand.

    Logarithms are to base 2, because torch's exp2 takes a third of the time of exp on a CPU.
    """

    def __init__(self, rows: slice, span: slice, logarithms: Tensor) -> None:
        self.rows = rows
        self.span = span
        self.logarithms = logarithms

    @cached_property
    def weights(self) -> Tensor:  # type: ignore[override]
        """The weights of these rows."""
        return torch.exp2(self.logarithms)

    def entropy(self) -> Tensor:
        return (self.weights * self.logarithms.clamp_min(DEEP)).sum(-1) / -LOG2_E


class Reduction(ABC):
    """A reduction of all weights, computed from blocks of rows."""

    @abstractmethod
    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        """Start a reduction of weights of this shape, with tensors of the type and device of `like`."""

    @abstractmethod
    def add(self, block: Rows) -> None:
        """Add a block of rows."""

    @abstractmethod
    def result(self) -> Tensor | tuple[Tensor, Tensor]:
        """Return the result, after all rows were added."""


class Top(Reduction):
    """The k largest weights of each query and their keys; index -1 where fewer are above zero."""

    def __init__(self, shape: torch.Size, like: Tensor, k: int) -> None:
        self.k = min(k, shape[-1])
        self.values = like.new_zeros(*shape[:-1], self.k)
        self.indices = like.new_full((*shape[:-1], self.k), -1, dtype=torch.long)

    def add(self, block: Rows) -> None:
        k = min(self.k, block.weights.shape[-1])
        if k == 0:
            return
        top_values, top_indices = grouped_topk(block.order, k)
        select_index(self.values, -2, block.rows)[..., :k] = top_values.view(block.weights.dtype)
        select_index(self.indices, -2, block.rows)[..., :k] = (
            top_indices + block.span.start if block.span.start else top_indices
        )

    def result(self) -> tuple[Tensor, Tensor]:
        return self.values, self.indices.masked_fill_(self.values <= 0, -1)


class Argmax(Reduction):
    """The key with the largest weight for each query, the first of ties; -1 if all weights are zero."""

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self.indices = like.new_full(shape[:-1], -1, dtype=torch.long)

    def add(self, block: Rows) -> None:
        if block.weights.shape[-1]:
            max_weights, indices = block.weights.max(-1)
            select_index(self.indices, -1, block.rows)[:] = torch.where(max_weights > 0, indices + block.span.start, -1)

    def result(self) -> Tensor:
        return self.indices


class Received(Reduction):
    """The attention each key receives, summed over all queries."""

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self.total = like.new_zeros(*shape[:-2], shape[-1])

    def add(self, block: Rows) -> None:
        select_index(self.total, -1, block.span).add_(block.weights.sum(-2))

    def result(self) -> Tensor:
        return self.total


class Entropy(Reduction):
    """The entropy of each query's weights in nats; zero for a query that sees no key."""

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self.values = like.new_zeros(shape[:-1])

    def add(self, block: Rows) -> None:
        select_index(self.values, -1, block.rows)[:] = block.entropy()

    def result(self) -> Tensor:
        return self.values.clamp_min_(0)  # the logarithm of a weight near 1 may be rounded above 0


REDUCTIONS: dict[str, type[Reduction]] = {"argmax": Argmax, "entropy": Entropy, "received": Received}


def as_reduction(name: str, other_names: Sequence[str] = ()) -> Callable[[torch.Size, Tensor], Reduction]:
    """Return the constructor of a reduction by name: `top:K`, `received`, `entropy` or `argmax`.

    The constructor takes the shape of the weights and a tensor of their type and device. `other_names`
    are further names to suggest for an unknown one.
    """
    kind, _, count = name.partition(":")
    if kind == "top":
        if not count.isdecimal() or int(count) == 0:
            raise RegardError(f'expected a positive number of keys as in "top:8", got "{name}"')
        return partial(Top, k=int(count))
    if name not in REDUCTIONS:
        raise unknown_name(
            "reduction", name, [*REDUCTIONS, *other_names, f"top:{count if count.strip('0').isdecimal() else 8}"]
        )
    return REDUCTIONS[name]


def reduce_rows(blocks: Iterable[Rows], names: Sequence[str], shape: torch.Size, like: Tensor) -> dict[str, Any]:
    """Return the results of some reductions by name, from one pass over all rows."""
    reductions = {name: as_reduction(name)(shape, like) for name in names}
    for block in blocks:
        for reduction in reductions.values():
            reduction.add(block)
    return {name: reduction.result() for name, reduction in reductions.items()}


def grouped_topk(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row and their indices, largest first.

    They are in the k groups with the largest maxima. Those groups are searched recursively, so
    only a few values are sorted.
    """
    groups = values.shape[-1] // GROUP
    if groups <= 2 * k:
        return values.topk(k)
    together = groups * GROUP
    grouped = values[..., :together].unflatten(-1, (GROUP, groups))
    best = torch.amax(grouped, -2, out=torch.empty_like(values[..., :groups]))  # same memory layout as the values
    members = torch.arange(0, together, groups, device=values.device)
    indices = (grouped_topk(best, k)[1][..., None] + members).flatten(-2)
    if together < values.shape[-1]:
        rest = torch.arange(together, values.shape[-1], device=values.device)
        indices = torch.cat([indices, rest.expand(*indices.shape[:-1], -1)], -1)
    top_values, chosen = values.gather(-1, indices).topk(k)
    return top_values, indices.gather(-1, chosen)
