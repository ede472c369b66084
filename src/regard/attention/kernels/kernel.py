"""The interface of a kernel: one way to compute attention or part of it, an entry of `KERNELS`.

A kernel declares which calls it supports and provides any of five functions. Other kernels fill in
for missing ones: without `backward`, gradients are computed in tiles; without `reduce`, reductions
are computed from blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import Form
from regard.attention.call import Call
from regard.attention.reductions import Rows

NOT_OF_FORM: dict[Form, str] = {
    "dot": "is not a dot product here",
    "additive": "is not w·tanh(q + k)",
    "distance": "is not a kernel of a distance",
    "constant": "does not give all keys the same score",
    "other": "has its own kernel",
}
"""Why a kernel for scores of a form does not support a score of another form."""


ForwardJob = Literal["forward", "output"]
FORWARD_JOBS: tuple[ForwardJob, ...] = get_args(ForwardJob)
"""The jobs in which a kernel computes the output."""


class Result(NamedTuple):
    """The result of a kernel's forward."""

    output: Float[Tensor, "*batch queries width"]
    statistic: Float[Tensor, "*batch queries 1"] | None  # for softmax, the log-sum-exp of each row
    mean: Float[Tensor, "*batch queries width"] | None = None  # subtracted in backward, if not the output
    weights: Float[Tensor, "*batch queries keys"] | None = None  # the matrix, if it was computed anyway
    used_rng: bool = False  # whether the score drew random numbers, so weights cannot be recomputed
    extra: Any = None  # further data for the kernel's own backward


Forward = Callable[[Call, Tensor], Result]
"""Compute the result of a prepared call and its values, without gradient."""

AttendAlone = Callable[[Call, Tensor], Tensor | None]
"""Compute the output of an unprepared call under torch's autograd, and nothing for weights; None if unsupported."""

Backward = Callable[[Call, Tensor, Result, Tensor, tuple[bool, ...]], tuple[Tensor | None, ...]]
"""Compute gradients from call, values, result, gradient of the output, and which gradients are needed.

Returns the gradients of the values and of the `inputs` of the call: query, keys, bias and parameters.
"""

Reduce = Callable[[Call, Tensor, Sequence[str]], dict[str, Any]]
"""Compute reductions by name from a prepared call and the statistic of its rows."""

WalkRows = Callable[[Call, Tensor], Iterator[Rows]]
"""Iterate over all weights of a prepared call in blocks of rows, given the statistic of its rows."""


@dataclass(frozen=True)
class AttentionKernel:
    """One way to compute attention or part of it; functions a kernel does not provide are None.

    `unsupported_reason(call, job)` returns why the kernel does not support a call, or None if it does.
    The job is "forward", "output" for a forward whose weights nobody asked for, "rows", or the name of a reduction
    such as "top:5".
    """

    name: str  # the value of `path` in `attend`
    forms: tuple[Form, ...] = tuple(NOT_OF_FORM)  # forms of supported scores, the main one first
    devices: tuple[str, ...] = ()  # supported device types; empty for all
    unsupported_reason: Callable[[Call, str], str | None] | None = None
    worthwhile: Callable[[Call], bool] | None = None  # whether to choose it by default for a call
    forward: Forward | None = None
    backward: Backward | None = None
    reduce: Reduce | None = None
    rows: WalkRows | None = None
    attend_alone: AttendAlone | None = None
    takes_key_bias: bool = False  # `forward` takes the key bias of a score as a bias, also on a GPU
    differentiable: bool = False  # `forward` runs on the unprepared call under torch's autograd

    def get_unsupported_reason(self, call: Call, job: str) -> str | None:
        """Return why the kernel does not support a call; None if it does."""
        terms = call.terms
        if terms.score.form not in self.forms:
            return f"{type(terms.score).__name__} {NOT_OF_FORM[self.forms[0]]}"
        if self.devices and call.query.device.type not in self.devices:
            return f"it runs on {' and '.join(self.devices)}, not on {call.query.device.type}"
        if self.unsupported_reason is not None and (reason := self.unsupported_reason(call, job)) is not None:
            return reason
        if job in FORWARD_JOBS and self.backward is None and not self.differentiable:
            if terms.dropout:
                return "it has no backward, and the tiled backward would drop other weights"
            if not terms.normalizer.shares_by_weight:
                return f"it has no backward, which {type(terms.normalizer).__name__} requires"
        return None
