"""Products of attention weights, as differentiable as attention and in memory linear in queries + keys.

Weights times a matrix are attention with this matrix as values, so the fastest kernel for the call computes them.
The transposed weights times a matrix are sums over blocks of rows. With P the weights, both have the gradients of
attention, because the sum of H ∘ (Pᵀ W) is that of W ∘ (P H): for query and keys, the gradient of Pᵀ W under H is that
of P H under W.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast_matmul
from regard.attention.call import Call, Terms
from regard.attention.gradients import refuse_second_derivative
from regard.attention.kernels.dispatch import choose_kernel, run_kernel, walk_rows
from regard.attention.visible import select_index


def multiply(call: Call, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
    """Return the weights of a call, before dropout, times a factor; differentiable."""
    is_dot = call.terms.score.dot_scale is not None
    autocast = None if is_dot else call.terms.autocast
    call = replace(call, terms=call.terms._replace(dropout=0.0, autocast=autocast))
    if factor.dtype != call.query.dtype:  # of a product in another type, at least float32
        dtype = torch.promote_types(call.query.dtype, torch.float32)
        factor = factor.to(dtype)
        if is_dot:
            call = replace(call, query=call.query.to(dtype), keys=call.keys.to(dtype))
    with call.autocast():
        return run_kernel(choose_kernel(call), call, factor).output


def multiply_transposed(
    call: Call, statistic: Float[Tensor, "*batch queries 1"], factor: Float[Tensor, "*#batch queries width"]
) -> Float[Tensor, "*batch keys width"]:
    """Return the transposed weights of a prepared call times a factor, in the type of the weights; differentiable."""
    factor = factor.to(statistic.dtype).expand(*call.terms.shape[:-1], factor.shape[-1])
    return _TransposedProduct.apply(call.terms, statistic, factor, call.sink, *call.inputs)


class _TransposedProduct(torch.autograd.Function):
    """The transposed weights times a factor; the backward is that of the weights times the gradient."""

    @staticmethod
    def forward(ctx: Any, terms: Terms, statistic: Tensor, factor: Tensor, sink: Tensor | None, *inputs: Any) -> Tensor:
        ctx.terms = terms
        ctx.save_for_backward(factor, sink, *inputs)
        query, keys, bias, *parameters = inputs
        return sum_by_key(Call(terms, query, keys, bias, tuple(parameters), is_prepared=True), statistic, factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        factor, *tensors = ctx.saved_tensors
        _, _, needs_factor, *needs_inputs = ctx.needs_input_grad
        leaves = [
            None if tensor is None else tensor.detach().requires_grad_(needs_grad)
            for tensor, needs_grad in zip(tensors, needs_inputs, strict=True)
        ]
        sink, query, keys, bias, *parameters = leaves
        assert query is not None and keys is not None
        with torch.enable_grad():
            call = Call(ctx.terms, query, keys, bias, tuple(parameters), sink, is_prepared=True)
            product = multiply(call, gradient)
        gradients = iter(())
        if product.requires_grad:
            wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
            gradients = iter(torch.autograd.grad(product, wanted, factor.to(product.dtype), allow_unused=True))
        of_inputs = [next(gradients, None) if needs_grad else None for needs_grad in needs_inputs]
        return None, None, product.detach().to(factor.dtype) if needs_factor else None, *of_inputs


def sum_by_key(
    call: Call, statistic: Float[Tensor, "*batch queries 1"], factor: Float[Tensor, "*batch queries width"]
) -> Float[Tensor, "*batch keys width"]:
    """Return the transposed weights times a factor, summed over blocks of rows."""
    *batch, _, keys = call.terms.shape
    total = factor.new_zeros(*batch, keys, factor.shape[-1])
    for block in walk_rows(call, statistic):
        part = upcast_matmul(block.weights.mT, select_index(factor, -2, block.rows))
        select_index(total, -2, block.span).add_(part)
    return total
