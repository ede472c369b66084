"""Follow one axis of a tensor through the functions that views, reorders and contracts it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SIZES = (2, 3, 5, 7, 11, 13, 17, 19)  # of a probe whose axes can be told apart
REORDERING = {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "__get__", "adjoint"}


def move_axis(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    before: Tensor,
    after: Tensor,
    axis: int,
) -> int | None:
    """Return where an axis is after a function that views, reorders or selects; None if that is not known."""
    name = function.__name__
    if name in REORDERING:
        return move_by_probe(function, args, kwargs, before.ndim, axis)
    if after.shape == before.shape:
        return axis
    if after.numel() == before.numel():
        return move_by_shape(before.shape, after.shape, axis)
    shift = after.ndim - before.ndim
    for candidate in (axis + shift, axis):
        if 0 <= candidate < after.ndim and (shift == 0 or after.shape[candidate] == before.shape[axis]):
            return candidate
    return None


def move_by_probe(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], axes: int, axis: int
) -> int | None:
    """Return where an axis is after a function that reorders axes, from what it does to a small tensor."""
    if axes > len(SIZES):
        return None
    rest = tuple(part for part in args if not isinstance(part, Tensor))
    if function.__name__ != "__get__" and not isinstance(args[0], Tensor):
        return None
    shape = function(torch.empty(SIZES[:axes], device="meta"), *rest[: len(args) - 1], **kwargs).shape
    return shape.index(SIZES[axis]) if SIZES[axis] in shape else None


def move_by_shape(before: torch.Size, after: torch.Size, axis: int) -> int | None:
    """Return the axis of a reshaped tensor with the same size and the same number of elements before it."""
    leading = math.prod(before[:axis])
    for candidate, size in enumerate(after):
        if size == before[axis] and math.prod(after[:candidate]) == leading:
            return candidate
    return None


def find_contracted(name: str, args: tuple[Any, ...], place: int, number: int, operand: Tensor) -> set[int]:
    """Return the axes of an operand that a product sums over.

    Args:
        name: The name of the function.
        args: Its arguments.
        place: Which argument the operand is, or is in.
        number: Its position in a list of operands.
        operand: The operand.
    """
    last, before_last = operand.ndim - 1, max(operand.ndim - 2, 0)
    if name == "einsum":
        return find_einsum_axes(args, place, number, operand)
    if name == "__rmatmul__":
        return {before_last if place == 0 else last}
    if name == "tensordot":
        return find_tensordot_axes(args, place, operand)
    if name in ("baddbmm", "addbmm", "addmm"):
        return {last} if place == 1 else {before_last} if place == 2 else set()
    if name in PRODUCTS:
        return {last} if place == 0 else {before_last}
    return set()


PRODUCTS = {"matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "baddbmm", "addbmm", "addmm"}
PRODUCTS |= {"einsum", "tensordot"}
"""Functions that multiply two tensors and sum over an axis."""


def find_tensordot_axes(args: tuple[Any, ...], place: int, operand: Tensor) -> set[int]:
    """Return the axes of an operand that a tensordot sums over; its argument `dims` follows the operands."""
    dims = args[2] if len(args) > 2 else 2
    if isinstance(dims, int):
        return set(range(operand.ndim - dims, operand.ndim) if place == 0 else range(dims))
    axes = dims[place] if isinstance(dims, (tuple, list)) else dims[place].tolist()
    return {axis % operand.ndim for axis in ([axes] if isinstance(axes, int) else axes)}


def find_einsum_axes(args: tuple[Any, ...], place: int, number: int, operand: Tensor) -> set[int]:
    """Return the axes of an operand whose letters are missing from the result of an einsum."""
    if not isinstance(args[0], str):
        return set()
    inputs, arrow, output = args[0].replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow:
        output = "".join(letter for letter in inputs if inputs.count(letter) == 1)
    which = number if isinstance(args[1], (tuple, list)) else place - 1
    head, dots, tail = terms[which].partition("...")
    axes = dict(enumerate(head)) | {operand.ndim - len(tail) + index: letter for index, letter in enumerate(tail)}
    if not dots and len(head) != operand.ndim:
        return set()
    return {axis for axis, letter in axes.items() if letter not in output}
