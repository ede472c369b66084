"""What may be seen: rules over (query, key) positions, True = may look.

A rule never holds a queries x keys matrix (unless one was given): it answers for any
tile when asked, so fused paths stay linear in memory. Queries are aligned with the
*last* keys: with a cache of m keys and n new queries, query i stands at position
i + (m - n).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import RegardError

Index = slice | Tensor
"""Some positions of one axis: a slice with start and stop, or a vector of whole numbers."""

Tile = Bool[Tensor, "*#batch rows cols"]
"""True where a query of some rows may look at a key of some columns."""

Numbers = Any
"""Whole numbers: a tensor, a sequence, or one of them."""


class Rule(ABC):
    """Which key may be seen from which query; combine with `&`, `|` and `~`."""

    @abstractmethod
    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        """The rule at some rows and columns of a matrix of this shape, (*batch, queries, keys)."""

    def reach(self, rows: range, shape: torch.Size) -> range:
        """A run of keys that holds every key visible from these rows."""
        return range(shape[-1])

    def certain(self, rows: range, shape: torch.Size) -> range:
        """A run of keys that are all visible from each of these rows, as far as that is known without a look."""
        return range(0)

    def parts(self) -> dict[str, Any]:
        """The fields of a rule that is a dataclass, as all of regard's are."""
        return {field.name: getattr(self, field.name) for field in fields(self)} if is_dataclass(self) else {}

    def over(self, change: Callable[[Tensor | Rule], Tensor | Rule]) -> Rule:
        """The same rule with the tensors and rules among its fields changed."""
        changed = {name: change(part) for name, part in self.parts().items() if isinstance(part, (Tensor, Rule))}
        return replace(self, **changed) if changed else self  # type: ignore[type-var]

    def map(self, change: Callable[[Tensor], Tensor]) -> Rule:
        """The same rule with every tensor in it changed."""
        return self.over(lambda part: part.map(change) if isinstance(part, Rule) else change(part))

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor the rule looks at."""
        for part in self.parts().values():
            if isinstance(part, Rule):
                yield from part.tensors()
            elif isinstance(part, Tensor):
                yield part

    def check(self, shape: torch.Size) -> None:  # noqa: B027
        """Raise a `RegardError` unless the rule fits a matrix of this shape."""

    def __and__(self, other: Rule | Tensor) -> Rule:
        return Both(self, as_rule(other))

    def __or__(self, other: Rule | Tensor) -> Rule:
        return Either(self, as_rule(other))

    def __bool__(self) -> bool:
        raise RegardError("visible: a rule is neither true nor false; combine rules with &, | and ~, not and, or, not")

    __rand__ = __and__
    __ror__ = __or__
    __torch_function__ = None  # so that `tensor & rule` comes here

    def __invert__(self) -> Rule:
        return Not(self)


def as_rule(visible: object) -> Rule:
    """A bool tensor that broadcasts to (*batch, queries, keys), as a rule."""
    if isinstance(visible, Rule):
        return visible
    if not isinstance(visible, Tensor) or visible.dtype != torch.bool:
        found = str(visible.dtype).removeprefix("torch.") if isinstance(visible, Tensor) else type(visible).__name__
        raise RegardError(f"visible: found {found}; give a bool tensor (True = may look) or a rule such as causal()")
    return Given(visible)


def causal(*, strict: bool = False) -> Rule:
    """No key later than the query; `strict` leaves out the query's own position too."""
    return Causal(strict)


def window(left: int | None, right: int | None) -> Rule:
    """At most `left` keys before the query's position and `right` after it; None sets no limit."""
    for name, size in (("left", left), ("right", right)):
        if size is not None and (not isinstance(size, int) or size < 0):
            raise RegardError(f"window: {name} is {size!r}; give a whole number, 0 or more, or None for no limit")
    return Window(left, right)


def lengths(counts: Numbers) -> Rule:
    """Only the first `counts` keys of each sequence; padding follows them.

    The axes of `counts` are the *first* axes of *batch: one number a sequence serves
    all heads.
    """
    return Lengths(whole_numbers("lengths", counts))


def documents(keys: Numbers, queries: Numbers | None = None) -> Rule:
    """Only keys of the query's own document, where many are packed into one sequence.

    Without `queries` these are the last of the keys (self-attention, with or without
    a cache). Like those of `lengths`, the leading axes are the first axes of *batch.
    """
    numbers = whole_numbers("documents", keys)
    others = numbers if queries is None else whole_numbers("documents", queries)
    if not (numbers.ndim and others.ndim):
        raise RegardError("documents: found one number; one for each position is needed")
    return Documents(numbers, others)


def whole_numbers(what: str, found: object) -> Int[Tensor, "..."]:
    """Numbers as a tensor, or a `RegardError` where they are not whole."""
    try:
        numbers = found if isinstance(found, Tensor) else torch.tensor(found)
    except (TypeError, ValueError, RuntimeError):  # what it raises for what are no numbers
        raise RegardError(f"{what}: found {type(found).__name__}; whole numbers are needed") from None
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        raise RegardError(f"{what}: found {str(numbers.dtype).removeprefix('torch.')}; whole numbers are needed")
    return numbers


@dataclass(frozen=True, eq=False)
class Given(Rule):
    """A bool tensor that broadcasts to (*batch, queries, keys)."""

    matrix: Bool[Tensor, "..."]

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        matrix = take(take(torch.atleast_2d(self.matrix), -2, rows), -1, cols)
        return matrix.expand(*matrix.shape[:-2], count(rows), count(cols))

    def check(self, shape: torch.Size) -> None:
        check_broadcast("visible", self.matrix.shape, shape)


@dataclass(frozen=True, eq=False)
class Causal(Rule):
    """Key j <= i + (keys - queries)."""

    strict: bool = False

    def offset(self, shape: torch.Size) -> int:
        """Query i sees the keys up to and with i + offset."""
        return shape[-1] - shape[-2] - self.strict

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return positions(cols, device) <= positions(rows, device)[:, None] + self.offset(shape)

    def reach(self, rows: range, shape: torch.Size) -> range:
        return range(max(0, min(shape[-1], rows.stop + self.offset(shape))))

    def certain(self, rows: range, shape: torch.Size) -> range:
        return range(max(0, min(shape[-1], rows.start + 1 + self.offset(shape))))


@dataclass(frozen=True, eq=False)
class Window(Rule):
    """-left <= j - (i + keys - queries) <= right."""

    left: int | None
    right: int | None

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        ahead = positions(cols, device) - positions(rows, device)[:, None] - (shape[-1] - shape[-2])
        seen = torch.ones_like(ahead, dtype=torch.bool)
        if self.left is not None:
            seen &= ahead >= -self.left
        if self.right is not None:
            seen &= ahead <= self.right
        return seen

    def reach(self, rows: range, shape: torch.Size) -> range:
        offset = shape[-1] - shape[-2]
        start = 0 if self.left is None else max(0, rows.start + offset - self.left)
        stop = shape[-1] if self.right is None else min(shape[-1], rows.stop + offset + self.right)
        return range(start, max(start, stop))

    def certain(self, rows: range, shape: torch.Size) -> range:
        offset = shape[-1] - shape[-2]
        start = 0 if self.left is None else max(0, rows.stop - 1 + offset - self.left)
        stop = shape[-1] if self.right is None else min(shape[-1], rows.start + 1 + offset + self.right)
        return range(start, max(start, stop))


@dataclass(frozen=True, eq=False)
class Lengths(Rule):
    """The first keys of each sequence, as many as `counts` says."""

    counts: Int[Tensor, "*batch"]

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        seen = positions(cols, device) < fit_batch(self.counts.to(device), 0, shape)[..., None, None]
        return seen.expand(*seen.shape[:-2], count(rows), count(cols))

    def check(self, shape: torch.Size) -> None:
        check_prefix("lengths", self.counts.shape, shape)


@dataclass(frozen=True, eq=False)
class Documents(Rule):
    """Keys and queries with equal document numbers."""

    keys: Int[Tensor, "*batch keys"]
    queries: Int[Tensor, "*batch queries"]

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        last = self.queries[..., self.queries.shape[-1] - shape[-2] :]
        ours = pick(fit_batch(last.to(device), 1, shape), -1, rows)
        theirs = pick(fit_batch(self.keys.to(device), 1, shape), -1, cols)
        return ours[..., :, None] == theirs[..., None, :]

    def check(self, shape: torch.Size) -> None:
        check_prefix("documents", self.keys.shape[:-1], shape)
        check_prefix("documents", self.queries.shape[:-1], shape)
        if self.keys.shape[-1] != shape[-1] or self.queries.shape[-1] < shape[-2]:
            raise RegardError(
                f"documents: numbers for {self.keys.shape[-1]} keys and {self.queries.shape[-1]} queries; "
                f"there are {shape[-1]} keys and {shape[-2]} queries"
            )


@dataclass(frozen=True, eq=False)
class Both(Rule):
    """What two rules allow."""

    left: Rule
    right: Rule

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return self.left.tile(rows, cols, shape, device) & self.right.tile(rows, cols, shape, device)

    def reach(self, rows: range, shape: torch.Size) -> range:
        return common(self.left.reach(rows, shape), self.right.reach(rows, shape))

    def certain(self, rows: range, shape: torch.Size) -> range:
        return common(self.left.certain(rows, shape), self.right.certain(rows, shape))

    def check(self, shape: torch.Size) -> None:
        self.left.check(shape)
        self.right.check(shape)


@dataclass(frozen=True, eq=False)
class Either(Both):
    """What one of two rules allows."""

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return self.left.tile(rows, cols, shape, device) | self.right.tile(rows, cols, shape, device)

    def reach(self, rows: range, shape: torch.Size) -> range:
        left, right = self.left.reach(rows, shape), self.right.reach(rows, shape)
        return range(min(left.start, right.start), max(left.stop, right.stop))

    def certain(self, rows: range, shape: torch.Size) -> range:
        return max(self.left.certain(rows, shape), self.right.certain(rows, shape), key=len)


@dataclass(frozen=True, eq=False)
class Not(Rule):
    """What a rule forbids."""

    rule: Rule

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return ~self.rule.tile(rows, cols, shape, device)

    def check(self, shape: torch.Size) -> None:
        self.rule.check(shape)


@dataclass(frozen=True, eq=False)
class Within(Rule):
    """A rule for some of the batch it was made for."""

    rule: Rule
    whole: torch.Size  # the shape it was made for
    leading: tuple[int | slice, ...]  # which of *batch

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        seen = self.rule.tile(rows, cols, self.whole, device)
        return seen.expand(*self.whole[:-2], *seen.shape[-2:])[self.leading]

    def reach(self, rows: range, shape: torch.Size) -> range:
        return self.rule.reach(rows, self.whole)

    def certain(self, rows: range, shape: torch.Size) -> range:
        return self.rule.certain(rows, self.whole)


def over_given(rule: Rule, change: Callable[[Tensor], Tensor]) -> Rule:
    """The same rule with every matrix in it that was given as a tensor changed."""
    if isinstance(rule, Given):
        return Given(change(rule.matrix))
    return rule.over(lambda part: over_given(part, change) if isinstance(part, Rule) else part)


def conjuncts(rule: Rule | None) -> list[Rule]:
    """The rules that must all hold, with every `&` taken apart."""
    if rule is None:
        return []
    if type(rule) is Both:
        return conjuncts(rule.left) + conjuncts(rule.right)
    return [rule]


def alike_for_all_queries(rule: Rule) -> bool:
    """Whether a rule looks only at the key: one row serves every query."""
    return isinstance(rule, Lengths) or (isinstance(rule, Given) and torch.atleast_2d(rule.matrix).shape[-2] == 1)


def common(left: range, right: range) -> range:
    """The positions of two runs that both have."""
    start = max(left.start, right.start)
    return range(start, max(start, min(left.stop, right.stop)))


def count(index: Index) -> int:
    """How many positions an index picks."""
    return index.stop - index.start if isinstance(index, slice) else len(index)


def positions(index: Index, device: torch.device) -> Int[Tensor, "..."]:
    """The positions themselves, as numbers."""
    if isinstance(index, slice):
        return torch.arange(index.start, index.stop, device=device)
    return index.to(device)


def pick(tensor: Tensor, axis: int, index: Index) -> Tensor:
    """Some positions of an axis."""
    if isinstance(index, slice):
        if index.start == 0 and index.stop == tensor.shape[axis]:
            return tensor
        return tensor.narrow(axis, index.start, index.stop - index.start)
    return tensor.index_select(axis, index)


def take(tensor: Tensor, axis: int, index: Index) -> Tensor:
    """Some positions of an axis that may be one for all, and is then left alone."""
    return tensor if tensor.shape[axis] == 1 else pick(tensor, axis, index)


def fit_batch(tensor: Tensor, own: int, shape: torch.Size) -> Tensor:
    """Give a tensor whose axes are the first of *batch (and `own` more) every axis of *batch."""
    leading = tensor.shape[: tensor.ndim - own]
    missing = (1,) * (len(shape) - 2 - len(leading))
    return tensor.reshape((*leading, *missing, *tensor.shape[tensor.ndim - own :]))


def check_broadcast(what: str, found: torch.Size, shape: torch.Size) -> None:
    """Raise a `RegardError` unless a shape broadcasts to another."""
    if len(found) > len(shape) or any(a not in (1, b) for a, b in zip(found[::-1], shape[::-1], strict=False)):
        hint = "; for keys of each sequence put axes of 1 between" if found == (shape[0], shape[-1]) else ""
        raise RegardError(f"{what}: has shape {tuple(found)}, which does not broadcast to {tuple(shape)}{hint}")


def check_prefix(what: str, leading: torch.Size, shape: torch.Size) -> None:
    """Raise a `RegardError` unless a rule's batch axes are the first of *batch."""
    batch = shape[:-2]
    if len(leading) > len(batch) or any(a not in (1, b) for a, b in zip(leading, batch, strict=False)):
        raise RegardError(
            f"{what}: made for a batch of {tuple(leading)}; the first axes of {tuple(batch)} are expected"
        )
