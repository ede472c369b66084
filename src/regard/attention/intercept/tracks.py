"""What is known of a softmax that a model computed, and of the tensors that it made from the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regard.attention.intercept.captured import Captured
from regard.attention.intercept.frames import Frame
from regard.attention.intercept.recorded_weights import HeldWeights
from regard.attention.lazy_weights import get_version

NAME = "softmax"


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """A function that a model called, with its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    @property
    def given(self) -> tuple[Any, ...]:
        """All arguments."""
        return (*self.args, *self.kwargs.values())

    def get(self, name: str, place: int, default: Any) -> Any:
        """Return an argument that may be given by name or by position."""
        return self.kwargs.get(name, self.args[place] if len(self.args) > place else default)

    def repeat(self, operand: Tensor, other: Tensor) -> Tensor:
        """Return what the function makes of another tensor in place of an operand."""
        result: Tensor = self.function(*(other if part is operand else part for part in self.args), **self.kwargs)
        return result


@dataclass(eq=False)
class Softmax:
    """One softmax that a model computed."""

    frame: Frame
    matrix: Tensor
    axis: int
    features: dict[str, object] = field(default_factory=dict)
    uses: dict[int, Matrix] = field(default_factory=dict)  # the matrices that were contracted with values

    def keep_used(self) -> None:
        """Copy the weights that were multiplied with values so far; the model is about to write into them."""
        if self.uses:
            self.matrix = self.matrix.clone()
            copies = [Matrix(use.tensor.clone(), use.axis) for use in self.uses.values() if not use.is_written()]
            written = [use for use in self.uses.values() if use.is_written()]
            self.uses = {id(use.tensor): use for use in (*copies, *written)}


@dataclass(frozen=True, eq=False)
class Matrix:
    """Weights as far as they were changed before dropout, and the axis of the keys."""

    tensor: Tensor
    axis: int
    version: int = 0  # of the tensor when it was used

    def is_written(self) -> bool:
        """Return whether the tensor was written into since it was used."""
        return get_version(self.tensor) != self.version


@dataclass(frozen=True, eq=False)
class Track:
    """A tensor made from the result of a softmax."""

    softmax: Softmax
    matrix: Matrix
    axis: int | None  # of the keys in this tensor, if it is known
    dropped: bool = False
    weighted: bool = False  # whether values were multiplied with it, elementwise
    gate: bool = False  # whether they may be the outputs of experts, one set for each row of weights
    normalized: frozenset[int] = frozenset()  # other axes over which it was divided by one number each


def capture_softmax(softmax: Softmax, *, grad: bool) -> Captured | None:
    """Return the weights of a softmax that was attention: the part that met values, or all if there are several parts.

    None if they were overwritten after that, in a way that could not be seen before.
    """
    uses = list(softmax.uses.values())
    if any(use.is_written() for use in uses):
        return None
    matrix = uses[0] if len(uses) == 1 else Matrix(softmax.matrix, softmax.axis)
    whole = softmax.matrix.shape[softmax.axis]
    features = dict(softmax.features)
    if len(uses) == 1 and matrix.tensor.shape[matrix.axis] == whole - 1:
        features["sinks"] = True
    weights = matrix.tensor.movedim(matrix.axis, -1)
    return Captured(HeldWeights(weights if grad else weights.detach()), NAME, features)
