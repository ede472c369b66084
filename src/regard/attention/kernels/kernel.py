"""What a kernel is: one way to compute attention, or a part of it, as a row of the table `KERNELS`.

A kernel says which calls it supports and offers any of four functions. What it does not offer, another
row does: a kernel without `backward` is differentiated by tiles, and weights that no `reduce` knows
are walked over in blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import Form
from regard.attention.call import Call
from regard.attention.reductions import Rows

NOT_OF_FORM: dict[Form, str] = {
    "dot": "is no dot product here",
    "additive": "is no w·tanh(q + k)",
    "distance": "is no kernel of a distance",
    "constant": "does not weigh all keys alike",
    "other": "has a kernel of its own",
}
"""What is said of a score that is not of the form a kernel is for."""


class Result(NamedTuple):
    """What a forward gives: two tensors, and more where there is more to tell."""

    output: Float[Tensor, "*batch queries width"]
    statistic: Float[Tensor, "*batch queries 1"] | None  # what all weights of a row follow from: its log-sum-exp
    mean: Float[Tensor, "*batch queries width"] | None = None  # what backward takes back, where it is not the output
    weights: Float[Tensor, "*batch queries keys"] | None = None  # the matrix, where it was made anyway
    drew: bool = False  # whether the score drew random numbers, so that its weights cannot be computed again
    extra: Any = None  # what the kernel's own backward wants besides


Forward = Callable[[Call, Tensor], Result]
"""From a call and its values to a result; without gradient, on a call that is prepared."""

Backward = Callable[[Call, Tensor, Result, Tensor, tuple[bool, ...]], tuple[Tensor | None, ...]]
"""From call, values, result, gradient of the output and which gradients are wanted, to these gradients.

They are of the values, then of the `inputs` of the call: query, keys, bias and the parameters.
"""

Reduce = Callable[[Call, Tensor, Sequence[str]], dict[str, Any]]
"""From a prepared call, the statistic of its rows and the names of reductions to their results."""

WalkRows = Callable[[Call, Tensor], Iterator[Rows]]
"""From a prepared call and the statistic of its rows to all weights, some rows at a time."""


@dataclass(frozen=True)
class AttentionKernel:
    """One way to compute attention, or a part of it; None where a kernel has nothing to offer.

    `supports(call, job)` says why a call cannot be done, or None where it can. The job is "forward",
    "rows", or the name of a reduction, such as "top:5".
    """

    name: str  # by which `attend(path=...)` asks for it
    forms: tuple[Form, ...] = tuple(NOT_OF_FORM)  # of the scores it is for, the main one first
    devices: tuple[str, ...] = ()  # it runs on; all where there are none
    supports: Callable[[Call, str], str | None] | None = None
    worthwhile: Callable[[Call], bool] | None = None  # whether to take it for a call that does not ask for it by name
    forward: Forward | None = None
    backward: Backward | None = None
    reduce: Reduce | None = None
    rows: WalkRows | None = None
    differentiable: bool = False  # `forward` takes the call as given, and torch differentiates what it does

    def why_not(self, call: Call, job: str) -> str | None:
        """Why a call cannot be done; None where it can."""
        terms = call.terms
        if terms.score.form not in self.forms:
            return f"{type(terms.score).__name__} {NOT_OF_FORM[self.forms[0]]}"
        if self.devices and call.query.device.type not in self.devices:
            return f"it runs on {' and '.join(self.devices)}, not on {call.query.device.type}"
        if self.supports is not None and (reason := self.supports(call, job)) is not None:
            return reason
        if job == "forward" and self.backward is None and not self.differentiable:
            if terms.dropout:
                return "it has no backward of its own, and tiles would drop other weights"
            if not terms.normaliser.shares_by_weight:
                return f"it has no backward of its own, and {type(terms.normaliser).__name__} needs one"
        return None
