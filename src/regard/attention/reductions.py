"""What can be asked of weights without holding them: each question is fed blocks of whole rows.

Several share one walk over the weights (`Weights.reduce`), so that three answers
cost little more than one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from regard.attention.normalise import LOG2_E
from regard.attention.visible import pick
from regard.errors import RegardError, unknown_name

UNRANKED = ("received",)  # what can be asked of weights that do not sum to one too
GROUP = 16  # keys whose best is looked at first when the top ones are sought
DEEP = -2000.0  # 2 to the power of it is zero in every type


class Rows:
    """Some whole rows of weights, without the keys outside `span`, which have none."""

    def __init__(self, rows: slice, span: slice, weights: Tensor) -> None:
        self.rows = rows
        self.span = span
        self.weights = weights  # (*batch, rows, span)

    @property
    def order(self) -> Tensor:
        """The weights, or numbers of as many bytes that stand in the same order."""
        return self.weights

    def entropy(self) -> Tensor:
        """-sum(w log w) of each row."""
        return torch.special.entr(self.weights).sum(-1)


class LogRows(Rows):
    """Rows of which the logarithms are there, and the weights once asked for.

    All to base 2, since torch's exp2 takes a third of the time of its exp on a CPU.
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
    """A question about all weights, answered from blocks of rows."""

    @abstractmethod
    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        """Begin, for weights of this shape, with tensors like this one."""

    @abstractmethod
    def add(self, block: Rows) -> None:
        """Take in some more rows."""

    @abstractmethod
    def result(self) -> Tensor | tuple[Tensor, Tensor]:
        """The answer, once every row was taken in."""


class Top(Reduction):
    """The k keys with most weight for each query, and where they stand; -1 where fewer have any."""

    def __init__(self, shape: torch.Size, like: Tensor, k: int) -> None:
        self.k = min(k, shape[-1])
        self.values = like.new_zeros(*shape[:-1], self.k)
        self.indices = like.new_full((*shape[:-1], self.k), -1, dtype=torch.long)

    def add(self, block: Rows) -> None:
        k = min(self.k, block.weights.shape[-1])
        if k == 0:
            return
        found, where = greatest(block.order, k)
        pick(self.values, -2, block.rows)[..., :k] = found.view(block.weights.dtype)
        pick(self.indices, -2, block.rows)[..., :k] = where + block.span.start if block.span.start else where

    def result(self) -> tuple[Tensor, Tensor]:
        return self.values, self.indices.masked_fill_(self.values <= 0, -1)


class Argmax(Reduction):
    """The key with most weight for each query, the first of equals; -1 where none has any."""

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self.found = like.new_full(shape[:-1], -1, dtype=torch.long)

    def add(self, block: Rows) -> None:
        if block.weights.shape[-1]:
            most, where = block.weights.max(-1)
            pick(self.found, -1, block.rows)[:] = torch.where(most > 0, where + block.span.start, -1)

    def result(self) -> Tensor:
        return self.found


class Received(Reduction):
    """How much attention each key gets from all queries together."""

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self.total = like.new_zeros(*shape[:-2], shape[-1])

    def add(self, block: Rows) -> None:
        pick(self.total, -1, block.span).add_(block.weights.sum(-2))

    def result(self) -> Tensor:
        return self.total


class Entropy(Reduction):
    """How spread each query's attention is, in nats; zero where it sees nothing."""

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self.found = like.new_zeros(shape[:-1])

    def add(self, block: Rows) -> None:
        pick(self.found, -1, block.rows)[:] = block.entropy()

    def result(self) -> Tensor:
        return self.found.clamp_min_(0)  # a weight of 1, rounded, may have a logarithm above 0


REDUCTIONS: dict[str, type[Reduction]] = {"argmax": Argmax, "entropy": Entropy, "received": Received}


def as_reduction(name: str, others: Sequence[str] = ()) -> Callable[[torch.Size, Tensor], Reduction]:
    """What makes the reduction of a name: `top:K`, `received`, `entropy` or `argmax`.

    It takes the shape of the weights, and a tensor like them. `others` are names that would do as well.
    """
    kind, _, number = name.partition(":")
    if kind == "top":
        if not number.isdecimal() or int(number) == 0:
            raise RegardError(f'"{name}" asks for no number of keys; write "top:8" for the eight with most weight')
        return partial(Top, k=int(number))
    if name not in REDUCTIONS:
        raise unknown_name(
            "reduction", name, [*REDUCTIONS, *others, f"top:{number if number.strip('0').isdecimal() else 8}"]
        )
    return REDUCTIONS[name]


def reduce_rows(blocks: Iterable[Rows], names: Sequence[str], shape: torch.Size, like: Tensor) -> dict[str, Any]:
    """The results of some reductions for one walk over all rows, by their names."""
    reductions = {name: as_reduction(name)(shape, like) for name in names}
    for block in blocks:
        for reduction in reductions.values():
            reduction.add(block)
    return {name: reduction.result() for name, reduction in reductions.items()}


def greatest(numbers: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest numbers of each row, the greatest first, and where they stand.

    They lie in the k groups whose own greatest numbers are the greatest, which are found
    in the same way, so that only few numbers are ever sorted.
    """
    groups = numbers.shape[-1] // GROUP
    if groups <= 2 * k:
        return numbers.topk(k)
    together = groups * GROUP
    grouped = numbers[..., :together].unflatten(-1, (GROUP, groups))
    best = torch.amax(grouped, -2, out=torch.empty_like(numbers[..., :groups]))  # lies in memory as the numbers do
    members = torch.arange(0, together, groups, device=numbers.device)
    places = (greatest(best, k)[1][..., None] + members).flatten(-2)
    if together < numbers.shape[-1]:
        rest = torch.arange(together, numbers.shape[-1], device=numbers.device)
        places = torch.cat([places, rest.expand(*places.shape[:-1], -1)], -1)
    found, chosen = numbers.gather(-1, places).topk(k)
    return found, places.gather(-1, chosen)
