"""Choose and run kernels: the table of kernels, and the autograd function that all of them share.

A call runs on the first kernel that supports it. The kernel of a reduction is chosen separately,
because weights recorded from another library never ran through one of these forward functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast
from regard.attention.call import Call
from regard.attention.gradients import refuse_second_derivative
from regard.attention.kernels.dot_rows import DOT_ROWS
from regard.attention.kernels.fused import SDPA
from regard.attention.kernels.kernel import AttentionKernel, ForwardJob, Reduce, Result
from regard.attention.kernels.mean import MEAN
from regard.attention.kernels.reference import REFERENCE
from regard.attention.kernels.tiled import TILED
from regard.attention.kernels.triton.additive import TRITON_ADDITIVE
from regard.attention.kernels.triton.distance import TRITON_DISTANCE
from regard.attention.kernels.triton.dot import TRITON_DOT
from regard.attention.reductions import Rows
from regard.attention.sink import include_sink, sink_gradient
from regard.errors import RegardError, unknown_name

KERNELS = (MEAN, TRITON_DOT, SDPA, TRITON_ADDITIVE, DOT_ROWS, REFERENCE, TRITON_DISTANCE, TILED)
"""In order of preference; the last one supports every call."""


def choose_kernel(call: Call, job: ForwardJob = "forward") -> AttentionKernel:
    """Return the fastest kernel that supports a call."""
    if math.prod(call.terms.shape) == 0:
        return REFERENCE  # nothing to compute
    form = call.terms.score.form
    for kernel in KERNELS:
        if kernel.forward is None or form not in kernel.forms or kernel.get_unsupported_reason(call, job) is not None:
            continue
        if kernel.worthwhile is None or kernel.worthwhile(call):
            return kernel
    raise AssertionError("the last kernel supports every call")


def get_kernel(path: object, call: Call, job: ForwardJob = "forward") -> AttentionKernel:
    """Return the kernel of a name; raise a `RegardError` if it does not support the call."""
    kernels = {kernel.name: kernel for kernel in KERNELS if kernel.forward is not None}
    if not isinstance(path, str) or path not in kernels:
        raise unknown_name("path", path, kernels)
    reason = kernels[path].get_unsupported_reason(call, job)
    if reason is not None:
        raise RegardError(f'path "{path}" does not support this call: {reason}; use path=None, "tiled" or "reference"')
    return kernels[path]


def run_kernel_alone(kernel: AttentionKernel, call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Tensor:
    """Run a kernel for its output, without what weights would need if that is faster."""
    output = None if kernel.attend_alone is None else kernel.attend_alone(call, values)
    return run_kernel(kernel, call, values).output if output is None else output


def run_kernel(kernel: AttentionKernel, call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Run a kernel, with gradients if enabled; the sink is included here for kernels without torch's autograd."""
    assert kernel.forward is not None
    if kernel.differentiable:
        return kernel.forward(call, values)
    prepared = call.keep_key_bias() if kernel.takes_key_bias else call.prepared
    if not torch.is_grad_enabled():
        return run_forward(kernel, prepared, values)
    output, statistic, used_rng = _Attention.apply(kernel, prepared, values, prepared.sink, *prepared.inputs)
    return Result(output, statistic, used_rng=used_rng)


def run_forward(kernel: AttentionKernel, call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Run a kernel's forward, and include the sink in its result."""
    assert kernel.forward is not None
    result = kernel.forward(call, values)
    if call.sink is None:
        return result
    assert result.statistic is not None
    output, statistic = include_sink(result.output, result.statistic, call.sink)
    return result._replace(output=output, statistic=statistic)


class _Attention(torch.autograd.Function):
    """A kernel's forward, with its own backward or that of `TILED`."""

    @staticmethod
    def forward(
        ctx: Any, kernel: AttentionKernel, call: Call, values: Tensor, sink: Tensor | None, *inputs: Tensor | None
    ) -> tuple[Tensor, Tensor, bool]:
        result = run_forward(kernel, call, values)
        assert result.statistic is not None
        ctx.kernel, ctx.terms, ctx.extra = kernel, call.terms, result.extra
        ctx.save_for_backward(values, result.output, result.statistic, result.mean, sink, *inputs)
        ctx.mark_non_differentiable(result.statistic)
        return result.output, result.statistic, result.used_rng

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        values, output, statistic, mean, sink, query, keys, bias, *parameters = ctx.saved_tensors
        result = Result(output, statistic, mean, extra=ctx.extra)
        run_backward = ctx.kernel.backward
        if run_backward is None:
            run_backward, result = TILED.backward, result._replace(extra=None)
        call = Call(ctx.terms, query, keys, bias, tuple(parameters))
        _, _, needs_values, needs_sink, *needs_inputs = ctx.needs_input_grad
        of_values, *of_inputs = run_backward(call, values, result, gradient, (needs_values, *needs_inputs))
        of_sink = None
        if needs_sink:
            of_sink = sink_gradient(sink, statistic, (upcast(gradient) * output).sum(-1, keepdim=True))
        return None, None, of_values, of_sink, *of_inputs


def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """Return the results of reductions by name, in one pass per kernel; names must be unique."""
    groups: dict[str, tuple[Reduce, list[str]]] = {}
    for name in names:
        kernel = next(k for k in KERNELS if k.reduce is not None and k.get_unsupported_reason(call, name) is None)
        assert kernel.reduce is not None
        groups.setdefault(kernel.name, (kernel.reduce, []))[1].append(name)
    results: dict[str, Any] = {}
    for reduce_group, group_names in groups.values():
        results |= reduce_group(call, statistic, group_names)
    return results


def walk_rows(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Iterator[Rows]:
    """Iterate over all weights in blocks of rows."""
    return next(k.rows(call, statistic) for k in KERNELS if k.rows and k.get_unsupported_reason(call, "rows") is None)
