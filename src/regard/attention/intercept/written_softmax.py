"""Follow a softmax that is written out: exp(x) / exp(x).sum(), exp(x - logsumexp(x)) or exp(log_softmax(x))."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from regard.attention.intercept.functions import DIVISIONS, MULTIPLIED, SUMS
from regard.attention.intercept.weak_tensors import WeakTensors

EXPONENTIALS = {"exp", "exp_"}
MASKED = MULTIPLIED | {"masked_fill", "masked_fill_", "where"}  # an exponential stays one for the keys that are left
DIFFERENCES = {"sub", "__sub__"}

SumOver = tuple[weakref.ref[Tensor], int]
"""The tensor that was summed, and its axis."""


class WrittenSoftmax:
    """The steps of softmaxes that are written out."""

    def __init__(self) -> None:
        self.logarithms: WeakTensors[int] = WeakTensors()  # logarithms of weights -> axis
        self.log_sums: WeakTensors[SumOver] = WeakTensors()  # logsumexp of scores -> the scores, axis
        self.exponentials: WeakTensors[bool] = WeakTensors()  # exp of scores -> True
        self.sums: WeakTensors[SumOver] = WeakTensors()  # sums of exponentials -> the exponentials, axis

    def __bool__(self) -> bool:
        return bool(self.logarithms) or bool(self.log_sums) or bool(self.exponentials)

    def clear(self) -> None:
        """Forget all tensors."""
        self.logarithms.clear()
        self.log_sums.clear()
        self.exponentials.clear()
        self.sums.clear()

    def add_logarithm(self, output: Tensor, axis: int) -> None:
        """Note a log_softmax."""
        self.logarithms[output] = axis

    def add_log_sum(self, output: Tensor, scores: Tensor, axis: int) -> None:
        """Note a logsumexp."""
        self.log_sums[output] = weakref.ref(scores), axis

    def follow(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> int | None:
        """Follow one function; return the axis of the softmax if its result is one."""
        if not isinstance(output, Tensor) or not args or not isinstance(args[0], Tensor):
            return None
        first, second = args[0], args[1] if len(args) > 1 else None
        if name in EXPONENTIALS:
            axis = self.logarithms.get(first)
            if axis is None and output.ndim > 1:
                self.exponentials[output] = True
            return axis
        if name in DIFFERENCES:
            axis = find_axis(self.log_sums.get(second), first)
            if axis is not None:
                self.logarithms[output] = axis
        elif name in DIVISIONS:
            return find_axis(self.sums.get(second), first)
        elif self.exponentials and name in SUMS | MASKED:
            self.follow_exponential(name, args, kwargs, output)
        return None

    def follow_exponential(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        """Note a sum of exponentials over one axis, or exponentials of which some were set to zero."""
        parts = [part for part in args if self.exponentials.get(part)]
        if name in MASKED and parts and parts[0].shape == output.shape:
            self.exponentials[output] = True
        elif name in SUMS and parts:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
            if isinstance(axis, int) and output.ndim == parts[0].ndim:
                self.sums[output] = weakref.ref(parts[0]), axis % output.ndim


def find_axis(known: SumOver | None, tensor: Tensor) -> int | None:
    """Return the axis that something was summed over, if it was computed from this tensor."""
    return known[1] if known is not None and known[0]() is tensor else None
