"""What functions of torch do with weights: the names of those that view, change, drop or multiply them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SOFTMAXES = {functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax}
SOFTMAXES |= {functional.gumbel_softmax, functional.softmin}
LOG_SOFTMAXES = {functional.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax}
LOG_SUMS = {torch.logsumexp, Tensor.logsumexp, torch.special.logsumexp}

VIEWS = {
    "view",
    "reshape",
    "transpose",
    "permute",
    "contiguous",
    "to",
    "type",
    "type_as",
    "float",
    "half",
    "bfloat16",
    "double",
    "unsqueeze",
    "squeeze",
    "expand",
    "flatten",
    "unflatten",
    "clone",
    "detach",
    "swapaxes",
    "swapdims",
    "movedim",
    "moveaxis",
    "view_as",
    "reshape_as",
    "expand_as",
    "t",
    "adjoint",
    "__get__",
    "repeat",
    "repeat_interleave",
    "as_strided",
    "pad",
    "roll",
    "flip",
    "index_select",
    "gather",
    "cat",
    "concat",
    "stack",
    "unfold",
    "alias",
    "requires_grad_",
    "cpu",
    "cuda",
    "unbind",
    "select",
    "masked_select",
    "scatter",
}
CHANGES = {
    "__getitem__",
    "narrow",
    "split",
    "chunk",
    "tensor_split",
    "split_with_sizes",
    "mul",
    "__mul__",
    "__rmul__",
    "mul_",
    "__imul__",
    "masked_fill",
    "masked_fill_",
    "where",
    "nan_to_num",
    "nan_to_num_",
    "clamp",
    "div",
    "__truediv__",
    "div_",
    "__itruediv__",
    "index_fill",
    "add",
    "__add__",
    "__radd__",
    "sub",
    "__sub__",
}
DROPOUTS = {"dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "alpha_dropout_"}
FOLLOWED = VIEWS | CHANGES | DROPOUTS
SUMS = {"sum"}
MIXING = {"linear": -1, "conv2d": 1}  # products with a parameter, which may mix heads -> the axis they sum over
DIVISIONS = {"div", "__truediv__", "div_", "__itruediv__"}
MULTIPLIED = {"mul", "__mul__", "__rmul__"}
WRITING = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__", "__iand__", "__ior__"}


def is_in_vmap() -> bool:
    """Return whether torch.vmap runs, whose tensors cannot be read outside of it."""
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() == torch._C._functorch.TransformType.Vmap for level in levels)


def iter_tensors(args: tuple[Any, ...]) -> Iterator[tuple[int, int, Tensor]]:
    """Iterate over the tensors among arguments, and in lists of them, with their places."""
    for place, part in enumerate(args):
        if isinstance(part, Tensor):
            yield place, 0, part
        elif isinstance(part, (tuple, list)):
            for number, inner in enumerate(part):
                if isinstance(inner, Tensor):
                    yield place, number, inner


def has_values(args: tuple[Any, ...], operand: Tensor) -> bool:
    """Return whether another argument may hold values: a matrix, or a batch of them, that is no parameter.

    A matrix that meets another matrix must not be a view of a parameter either, such as its transpose.
    """
    others = [other for _, _, other in iter_tensors(args) if other is not operand]
    if operand.ndim == 2:
        return any(other.ndim == 2 and not is_parameter(other) and not is_parameter(other._base) for other in others)
    return any(other.ndim >= 3 and not is_parameter(other) for other in others)


def is_parameter(tensor: Any) -> bool:
    """Return whether a tensor is a parameter."""
    return isinstance(tensor, nn.Parameter)


def shares_values(args: tuple[Any, ...], operand: Tensor, axis: int) -> bool:
    """Return whether a product broadcasts values over another axis of the weights than that of the keys."""
    others = [other for _, _, other in iter_tensors(args) if other is not operand and other.ndim == operand.ndim]
    return any(
        one == 1 < size
        for other in others
        for index, (one, size) in enumerate(zip(other.shape, operand.shape, strict=True))
        if index != axis
    )


def is_change(operand: Tensor, result: Tensor, axis: int) -> bool:
    """Return whether a result has the same queries: other weights for them, or some of their keys."""
    same = [a == b for a, b in zip(operand.shape, result.shape, strict=False)]
    return operand.ndim == result.ndim and all(same[:axis] + same[axis + 1 :])


def find_normalized(args: tuple[Any, ...], operand: Tensor) -> frozenset[int]:
    """Return the axes over which a division has one divisor each."""
    divisors = [part for part in args if isinstance(part, Tensor) and part is not operand]
    if not divisors or divisors[0].ndim != operand.ndim:
        return frozenset()
    sizes = zip(divisors[0].shape, operand.shape, strict=True)
    return frozenset(axis for axis, (one, size) in enumerate(sizes) if one == 1 < size)


def writes_in_place(name: str, kwargs: dict[str, Any]) -> bool:
    """Return whether a function writes into its first argument."""
    return (name.endswith("_") and not name.endswith("__")) or name in WRITING or bool(kwargs.get("inplace"))
