"""The table of kernels, the lookups in it, and the one autograd function over all of them.

A call takes the first kernel that supports it; a reduction of weights is looked up on its own, since
weights recorded from another's attention never went through a forward of ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call
from regard.attention.gradients import refuse_second_derivative
from regard.attention.kernels.dot_rows import DOT_ROWS
from regard.attention.kernels.kernel import AttentionKernel, Reduce, Result
from regard.attention.kernels.mean import MEAN
from regard.attention.kernels.reference import REFERENCE
from regard.attention.kernels.sdpa import SDPA
from regard.attention.kernels.tiled import TILED
from regard.attention.reductions import Rows
from regard.errors import RegardError, unknown_name

KERNELS = (MEAN, SDPA, DOT_ROWS, REFERENCE, TILED)
"""In the order in which they are asked; the last supports every call."""


def choose_kernel(call: Call) -> AttentionKernel:
    """The fastest kernel that gives the exact output of a call."""
    if math.prod(call.terms.shape) == 0:
        return REFERENCE  # nothing to compute, nothing to save
    form = call.terms.score.form
    for kernel in KERNELS:
        if kernel.forward is None or form not in kernel.forms or kernel.why_not(call, "forward") is not None:
            continue
        if kernel.worthwhile is None or kernel.worthwhile(call):
            return kernel
    raise AssertionError("the last kernel supports every call")


def kernel_of(path: object, call: Call) -> AttentionKernel:
    """The kernel of a name, or a `RegardError` that says why it cannot be had."""
    known = {kernel.name: kernel for kernel in KERNELS if kernel.forward is not None}
    if not isinstance(path, str) or path not in known:
        raise unknown_name("path", path, known)
    reason = known[path].why_not(call, "forward")
    if reason is not None:
        raise RegardError(f'path: "{path}" cannot be had: {reason}; leave out path, or take "tiled" or "reference"')
    return known[path]


def run(kernel: AttentionKernel, call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """The result of a kernel, with a gradient where one may be asked for."""
    assert kernel.forward is not None
    if kernel.differentiable:
        return kernel.forward(call, values)
    ready = call.prepared
    if not torch.is_grad_enabled():
        return kernel.forward(ready, values)
    output, statistic, drew = _Attention.apply(kernel, ready, values, *ready.inputs)
    return Result(output, statistic, drew=drew)


class _Attention(torch.autograd.Function):
    """A kernel's forward, with its own backward or else that of the tiles."""

    @staticmethod
    def forward(
        ctx: Any, kernel: AttentionKernel, call: Call, values: Tensor, *inputs: Tensor | None
    ) -> tuple[Tensor, Tensor, bool]:
        assert kernel.forward is not None
        result = kernel.forward(call, values)
        assert result.statistic is not None
        ctx.kernel, ctx.terms, ctx.extra = kernel, call.terms, result.extra
        ctx.save_for_backward(values, result.output, result.statistic, result.mean, *inputs)
        ctx.mark_non_differentiable(result.statistic)
        return result.output, result.statistic, result.drew

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        values, output, statistic, mean, query, keys, bias, *parameters = ctx.saved_tensors
        result = Result(output, statistic, mean, extra=ctx.extra)
        pull = ctx.kernel.backward
        if pull is None:
            pull, result = TILED.backward, result._replace(extra=None)
        call = Call(ctx.terms, query, keys, bias, tuple(parameters))
        return None, None, *pull(call, values, result, gradient, ctx.needs_input_grad[2:])


def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """The results of reductions by their names, no name twice; those that one kernel does share a walk."""
    groups: dict[str, tuple[Reduce, list[str]]] = {}
    for name in names:
        kernel = next(k for k in KERNELS if k.reduce is not None and k.why_not(call, name) is None)
        assert kernel.reduce is not None
        groups.setdefault(kernel.name, (kernel.reduce, []))[1].append(name)
    results: dict[str, Any] = {}
    for answer, own in groups.values():
        results |= answer(call, statistic, own)
    return results


def walk_rows(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Iterator[Rows]:
    """All weights, a block of rows at a time, for what no reduction answers."""
    return next(k.rows(call, statistic) for k in KERNELS if k.rows and k.why_not(call, "rows") is None)
