"""Visibility rules: which keys each query may attend to.

A rule does not hold a queries x keys matrix, unless you pass one: it is evaluated one tile at
a time, so fused kernels need only linear memory. Queries are aligned with the *last* keys: with
a cache of m keys and n new queries, query i has position i + (m - n).
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
"""Positions along one axis: a slice with start and stop, or a vector of integers."""

Tile = Bool[Tensor, "*#batch rows cols"]
"""True where the query of a row may attend to the key of a column."""

Integers = Any
"""Integers: a tensor, a sequence, or a single number."""


class Rule(ABC):
    """A rule for which keys each query may attend to; combine rules with `&`, `|` and `~`.

    To write your own rule, subclass this class and define `tile`. Define `reach`, too, if the rule
    hides whole ranges of keys: kernels skip what is out of reach.

    Example:
        >>> visible = causal() & lengths([5, 3])
        >>> out = attend(query, keys, values, visible=visible)
    """

    @abstractmethod
    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        """Return the rule at some rows and columns of a matrix of this shape, (*batch, queries, keys)."""

    def reach(self, rows: range, shape: torch.Size) -> range:
        """Return a range that contains every key visible from these rows."""
        return range(shape[-1])

    def certainly_visible(self, rows: range, shape: torch.Size) -> range:
        """Return a range of keys known to be visible from all of these rows; it may be too small."""
        return range(0)

    def get_fields(self) -> dict[str, Any]:
        """Return the dataclass fields of the rule, if it is a dataclass."""
        return {field.name: getattr(self, field.name) for field in fields(self)} if is_dataclass(self) else {}

    def map_fields(self, change: Callable[[Tensor | Rule], Tensor | Rule]) -> Rule:
        """Return the rule with a function applied to the tensors and rules in its fields."""
        changed = {name: change(part) for name, part in self.get_fields().items() if isinstance(part, (Tensor, Rule))}
        return replace(self, **changed) if changed else self  # type: ignore[type-var]

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Rule:
        """Return the rule with a function applied to every tensor in it."""
        return self.map_fields(lambda part: part.map_tensors(change) if isinstance(part, Rule) else change(part))

    def iter_tensors(self) -> Iterator[Tensor]:
        """Iterate over all tensors of the rule."""
        for part in self.get_fields().values():
            if isinstance(part, Rule):
                yield from part.iter_tensors()
            elif isinstance(part, Tensor):
                yield part

    def check(self, shape: torch.Size) -> None:  # noqa: B027
        """Raise a `RegardError` unless the rule fits a matrix of this shape."""

    def __and__(self, other: Rule | Tensor) -> Rule:
        return And(self, as_rule(other))

    def __or__(self, other: Rule | Tensor) -> Rule:
        return Or(self, as_rule(other))

    def __bool__(self) -> bool:
        raise RegardError("visible: a rule has no truth value; combine rules with &, | and ~, not and, or, not")

    __rand__ = __and__
    __ror__ = __or__
    __torch_function__ = None  # so that `tensor & rule` comes here

    def __invert__(self) -> Rule:
        return Not(self)


def as_rule(visible: object) -> Rule:
    """Return a rule as is, or wrap a bool tensor that broadcasts to (*batch, queries, keys)."""
    if isinstance(visible, Rule):
        return visible
    if not isinstance(visible, Tensor) or visible.dtype != torch.bool:
        type_name = str(visible.dtype).removeprefix("torch.") if isinstance(visible, Tensor) else type(visible).__name__
        raise RegardError(f"visible must be a bool tensor (True = visible) or a rule such as causal(), got {type_name}")
    return TensorRule(visible)


def causal(*, strict: bool = False) -> Rule:
    """Hide keys after the query's position.

    Args:
        strict: Whether to hide the query's own position, too.

    Returns:
        A rule for the `visible` argument of `attend`.

    Example:
        >>> out = attend(query, keys, values, visible=causal())
    """
    return Causal(strict)


def window(left: int | None, right: int | None) -> Rule:
    """Hide keys more than `left` positions before the query or more than `right` after it.

    Args:
        left: Number of visible keys before the query's position; None for no limit.
        right: Number of visible keys after the query's position; None for no limit.

    Returns:
        A rule for the `visible` argument of `attend`.

    Raises:
        RegardError: If a limit is neither None nor an integer of at least 0.

    Example:
        >>> out = attend(query, keys, values, visible=window(128, 0))  # causal, 129 keys per query
    """
    for name, size in (("left", left), ("right", right)):
        if size is not None and (not isinstance(size, int) or size < 0):
            raise RegardError(f"window: {name} must be None or an integer of at least 0, got {size!r}")
    return Window(left, right)


def lengths(counts: Integers) -> Rule:
    """Hide the padding: only the first `counts` keys of each sequence are visible.

    Args:
        counts: Number of keys of each sequence. Its axes are the *first* axes of *batch, so one
            number per sequence applies to all heads.

    Returns:
        A rule for the `visible` argument of `attend`.

    Raises:
        RegardError: If the counts are not integers.

    Example:
        >>> out = attend(query, keys, values, visible=lengths([5, 3]))  # a batch of two
    """
    return Lengths(as_integers("lengths", counts))


def documents(keys: Integers, queries: Integers | None = None) -> Rule:
    """Hide keys of other documents in a sequence that packs several documents.

    Args:
        keys: The document number of each key, (*batch, keys). As for `lengths`, the leading axes
            are the first axes of *batch.
        queries: The document number of each query. Defaults to those of the last keys, which
            fits self-attention with or without a cache.

    Returns:
        A rule for the `visible` argument of `attend`.

    Raises:
        RegardError: If the numbers are not integers, or there is only one.

    Example:
        >>> packed = documents([0, 0, 0, 1, 1])
        >>> out = attend(query, keys, values, visible=causal() & packed)
    """
    key_ids = as_integers("documents", keys)
    query_ids = key_ids if queries is None else as_integers("documents", queries)
    if not (key_ids.ndim and query_ids.ndim):
        raise RegardError("documents: expected one number per position, got a single number")
    return Documents(key_ids, query_ids)


def key_indices(indices: Integers) -> Rule:
    """Hide all keys except those chosen for each query, as sparse attention does (DeepSeek-AI 2025, V3.2).

    Args:
        indices: The keys of each query, (*batch, queries, k). As for `lengths`, the leading axes are the
            first axes of *batch. A number that is no key, such as -1, is padding.

    Returns:
        A rule for the `visible` argument of `attend`.

    Raises:
        RegardError: If the indices are not integers, or there is no axis for the queries.

    Example:
        >>> best = index_scores.topk(2048).indices  # (batch, queries, 2048)
        >>> out = attend(query, keys, values, visible=causal() & key_indices(best))
    """
    tensor = as_integers("key_indices", indices)
    if tensor.ndim < 2:
        raise RegardError(f"key_indices: expected shape (*batch, queries, k), got {tuple(tensor.shape)}")
    return KeyIndices(tensor)


def as_integers(name: str, values: object) -> Int[Tensor, "..."]:
    """Return integers as a tensor; raise a `RegardError` if they are not integers."""
    try:
        tensor = values if isinstance(values, Tensor) else torch.tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise RegardError(f"{name}: expected integers, got {type(values).__name__}") from None
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise RegardError(f"{name}: expected integers, got {str(tensor.dtype).removeprefix('torch.')}")
    return tensor


@dataclass(frozen=True, eq=False)
class TensorRule(Rule):
    """A bool tensor that broadcasts to (*batch, queries, keys)."""

    matrix: Bool[Tensor, "..."]

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        matrix = select_broadcast(select_broadcast(torch.atleast_2d(self.matrix), -2, rows), -1, cols)
        return matrix.expand(*matrix.shape[:-2], count_indices(rows), count_indices(cols))

    def check(self, shape: torch.Size) -> None:
        check_broadcast("visible", self.matrix.shape, shape)


@dataclass(frozen=True, eq=False)
class Causal(Rule):
    """The rule that key j is visible from query i if j <= i + (keys - queries)."""

    strict: bool = False

    def offset(self, shape: torch.Size) -> int:
        """Return the offset such that query i sees the keys up to and including i + offset."""
        return shape[-1] - shape[-2] - self.strict

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return index_to_tensor(cols, device) <= index_to_tensor(rows, device)[:, None] + self.offset(shape)

    def reach(self, rows: range, shape: torch.Size) -> range:
        return range(max(0, min(shape[-1], rows.stop + self.offset(shape))))

    def certainly_visible(self, rows: range, shape: torch.Size) -> range:
        return range(max(0, min(shape[-1], rows.start + 1 + self.offset(shape))))


@dataclass(frozen=True, eq=False)
class Window(Rule):
    """The rule that key j is visible from query i if -left <= j - (i + keys - queries) <= right."""

    left: int | None
    right: int | None

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        distance = index_to_tensor(cols, device) - index_to_tensor(rows, device)[:, None] - (shape[-1] - shape[-2])
        visible = torch.ones_like(distance, dtype=torch.bool)
        if self.left is not None:
            visible &= distance >= -self.left
        if self.right is not None:
            visible &= distance <= self.right
        return visible

    def reach(self, rows: range, shape: torch.Size) -> range:
        offset = shape[-1] - shape[-2]
        start = 0 if self.left is None else max(0, rows.start + offset - self.left)
        stop = shape[-1] if self.right is None else min(shape[-1], rows.stop + offset + self.right)
        return range(start, max(start, stop))

    def certainly_visible(self, rows: range, shape: torch.Size) -> range:
        offset = shape[-1] - shape[-2]
        start = 0 if self.left is None else max(0, rows.stop - 1 + offset - self.left)
        stop = shape[-1] if self.right is None else min(shape[-1], rows.start + 1 + offset + self.right)
        return range(start, max(start, stop))


@dataclass(frozen=True, eq=False)
class Lengths(Rule):
    """The rule that only the first `counts` keys of each sequence are visible."""

    counts: Int[Tensor, "*batch"]

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        visible = index_to_tensor(cols, device) < insert_batch_axes(self.counts.to(device), 0, shape)[..., None, None]
        return visible.expand(*visible.shape[:-2], count_indices(rows), count_indices(cols))

    def check(self, shape: torch.Size) -> None:
        check_batch_prefix("lengths", self.counts.shape, shape)


@dataclass(frozen=True, eq=False)
class Documents(Rule):
    """The rule that a key is visible if its document number equals that of the query."""

    keys: Int[Tensor, "*batch keys"]
    queries: Int[Tensor, "*batch queries"]

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        last = self.queries[..., self.queries.shape[-1] - shape[-2] :]
        query_ids = select_index(insert_batch_axes(last.to(device), 1, shape), -1, rows)
        key_ids = select_index(insert_batch_axes(self.keys.to(device), 1, shape), -1, cols)
        return query_ids[..., :, None] == key_ids[..., None, :]

    def check(self, shape: torch.Size) -> None:
        check_batch_prefix("documents", self.keys.shape[:-1], shape)
        check_batch_prefix("documents", self.queries.shape[:-1], shape)
        if self.keys.shape[-1] != shape[-1] or self.queries.shape[-1] < shape[-2]:
            raise RegardError(
                f"documents: expected numbers for {shape[-1]} keys and {shape[-2]} queries, "
                f"got {self.keys.shape[-1]} and {self.queries.shape[-1]}"
            )


@dataclass(frozen=True, eq=False)
class KeyIndices(Rule):
    """The rule that only the keys at the indices of a query are visible from it."""

    indices: Int[Tensor, "*batch queries k"]

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        if isinstance(cols, Tensor):
            return self.tile(rows, slice(0, shape[-1]), shape, device).index_select(-1, cols)
        chosen = select_index(insert_batch_axes(self.indices.to(device), 2, shape), -2, rows).long() - cols.start
        width = count_indices(cols)
        chosen = chosen.masked_fill((chosen < 0) | (chosen >= width), width)  # a column that is dropped
        visible = torch.zeros(*chosen.shape[:-1], width + 1, dtype=torch.bool, device=device)
        return visible.scatter_(-1, chosen, True)[..., :width]

    def check(self, shape: torch.Size) -> None:
        check_batch_prefix("key_indices", self.indices.shape[:-2], shape)
        if self.indices.shape[-2] != shape[-2]:
            raise RegardError(f"key_indices: expected indices for {shape[-2]} queries, got {self.indices.shape[-2]}")


@dataclass(frozen=True, eq=False)
class And(Rule):
    """The rule that a key is visible if both of two rules allow it."""

    left: Rule
    right: Rule

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return self.left.tile(rows, cols, shape, device) & self.right.tile(rows, cols, shape, device)

    def reach(self, rows: range, shape: torch.Size) -> range:
        return intersect_ranges(self.left.reach(rows, shape), self.right.reach(rows, shape))

    def certainly_visible(self, rows: range, shape: torch.Size) -> range:
        return intersect_ranges(self.left.certainly_visible(rows, shape), self.right.certainly_visible(rows, shape))

    def check(self, shape: torch.Size) -> None:
        self.left.check(shape)
        self.right.check(shape)


@dataclass(frozen=True, eq=False)
class Or(And):
    """The rule that a key is visible if either of two rules allows it."""

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return self.left.tile(rows, cols, shape, device) | self.right.tile(rows, cols, shape, device)

    def reach(self, rows: range, shape: torch.Size) -> range:
        left, right = self.left.reach(rows, shape), self.right.reach(rows, shape)
        return range(min(left.start, right.start), max(left.stop, right.stop))

    def certainly_visible(self, rows: range, shape: torch.Size) -> range:
        return max(self.left.certainly_visible(rows, shape), self.right.certainly_visible(rows, shape), key=len)


@dataclass(frozen=True, eq=False)
class Not(Rule):
    """The rule that a key is visible if another rule hides it."""

    rule: Rule

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return ~self.rule.tile(rows, cols, shape, device)

    def check(self, shape: torch.Size) -> None:
        self.rule.check(shape)


@dataclass(frozen=True, eq=False)
class BatchSliceRule(Rule):
    """A rule restricted to part of the batch it was created for."""

    rule: Rule
    full_shape: torch.Size  # the shape the rule was created for
    batch_index: tuple[int | slice, ...]  # index into *batch

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        visible = self.rule.tile(rows, cols, self.full_shape, device)
        return visible.expand(*self.full_shape[:-2], *visible.shape[-2:])[self.batch_index]

    def reach(self, rows: range, shape: torch.Size) -> range:
        return self.rule.reach(rows, self.full_shape)

    def certainly_visible(self, rows: range, shape: torch.Size) -> range:
        return self.rule.certainly_visible(rows, self.full_shape)


@dataclass(frozen=True, eq=False)
class FirstKeys(Rule):
    """A rule for more keys, of which only the first are left; the others were hidden from all queries."""

    rule: Rule
    full_keys: int  # the number of keys the rule was created for

    def get_full_shape(self, shape: torch.Size) -> torch.Size:
        """Return the shape the rule was created for."""
        return torch.Size((*shape[:-1], self.full_keys))

    def tile(self, rows: Index, cols: Index, shape: torch.Size, device: torch.device) -> Tile:
        return self.rule.tile(rows, cols, self.get_full_shape(shape), device)

    def reach(self, rows: range, shape: torch.Size) -> range:
        return intersect_ranges(self.rule.reach(rows, self.get_full_shape(shape)), range(shape[-1]))

    def certainly_visible(self, rows: range, shape: torch.Size) -> range:
        return intersect_ranges(self.rule.certainly_visible(rows, self.get_full_shape(shape)), range(shape[-1]))

    def check(self, shape: torch.Size) -> None:
        self.rule.check(self.get_full_shape(shape))


def map_tensor_rules(rule: Rule, change: Callable[[Tensor], Tensor]) -> Rule:
    """Return a rule with a function applied to every matrix that was passed as a tensor."""
    if isinstance(rule, TensorRule):
        return TensorRule(change(rule.matrix))
    return rule.map_fields(lambda part: map_tensor_rules(part, change) if isinstance(part, Rule) else part)


def split_conjunction(rule: Rule | None) -> list[Rule]:
    """Split a rule at every `&` into the rules that must all hold."""
    if rule is None:
        return []
    if type(rule) is And:
        return split_conjunction(rule.left) + split_conjunction(rule.right)
    return [rule]


def is_query_independent(rule: Rule) -> bool:
    """Return whether a rule depends only on the key, so that one row applies to every query."""
    return isinstance(rule, Lengths) or (isinstance(rule, TensorRule) and torch.atleast_2d(rule.matrix).shape[-2] == 1)


def intersect_ranges(left: range, right: range) -> range:
    """Return the positions that are in both ranges."""
    start = max(left.start, right.start)
    return range(start, max(start, min(left.stop, right.stop)))


def count_indices(index: Index) -> int:
    """Return the number of positions in an index."""
    return index.stop - index.start if isinstance(index, slice) else len(index)


def index_to_tensor(index: Index, device: torch.device) -> Int[Tensor, "..."]:
    """Return the positions of an index as a tensor."""
    if isinstance(index, slice):
        return torch.arange(index.start, index.stop, device=device)
    return index.to(device)


def select_index(tensor: Tensor, axis: int, index: Index) -> Tensor:
    """Return the elements at some positions of an axis."""
    if isinstance(index, slice):
        if index.start == 0 and index.stop == tensor.shape[axis]:
            return tensor
        return tensor.narrow(axis, index.start, index.stop - index.start)
    return tensor.index_select(axis, index)


def select_broadcast(tensor: Tensor, axis: int, index: Index) -> Tensor:
    """Return the elements at some positions of an axis; an axis of size 1 is kept as is."""
    return tensor if tensor.shape[axis] == 1 else select_index(tensor, axis, index)


def insert_batch_axes(tensor: Tensor, trailing_axes: int, shape: torch.Size) -> Tensor:
    """Insert axes of size 1 so that a tensor with the first axes of *batch has all of them before its own."""
    leading = tensor.shape[: tensor.ndim - trailing_axes]
    missing = (1,) * (len(shape) - 2 - len(leading))
    return tensor.reshape((*leading, *missing, *tensor.shape[tensor.ndim - trailing_axes :]))


def fits_axis(size: int, expected: int) -> bool:
    """Return whether an axis broadcasts to a size; `in` would not compare the symbols of torch.compile."""
    return size == 1 or size == expected


def check_broadcast(name: str, actual: torch.Size, shape: torch.Size) -> None:
    """Raise a `RegardError` unless a shape broadcasts to another."""
    if len(actual) > len(shape) or not all(map(fits_axis, actual[::-1], shape[::-1])):
        hint = "; for one mask per sequence, insert axes of size 1" if actual == (shape[0], shape[-1]) else ""
        raise RegardError(f"{name}: shape {tuple(actual)} does not broadcast to {tuple(shape)}{hint}")


def check_batch_prefix(name: str, leading: torch.Size, shape: torch.Size) -> None:
    """Raise a `RegardError` unless a rule's batch axes are the first of *batch."""
    batch = shape[:-2]
    if len(leading) > len(batch) or not all(map(fits_axis, leading, batch)):
        raise RegardError(f"{name}: expected the first axes of the batch {tuple(batch)}, got {tuple(leading)}")
