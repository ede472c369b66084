"""Products of attention weights, as differentiable as attention and in memory linear in queries + keys.

Weights times a matrix are attention with this matrix as values, so the fastest kernel for the call computes them.
The transposed weights times a matrix are sums over blocks of rows, or, for a softmax of dot products, attention with
queries and keys exchanged: with lse_i the log-sum-exp of query i, key j gives query i the score q_i·k_j - lse_i, and
what its softmax divides by is the attention r_j that key j receives:

    Σ_i exp(q_i·k_j - lse_i) w_i = r_j · Σ_i softmax_i(q_i·k_j - lse_i) w_i

With P the weights, both products have the gradients of attention, because the sum of H ∘ (Pᵀ W) is that of W ∘ (P H):
for query and keys, the gradient of Pᵀ W under H is that of P H under W.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import DotForm, upcast_matmul
from regard.attention.call import Call, Terms, fold_key_bias
from regard.attention.gradients import refuse_second_derivative
from regard.attention.kernels.dispatch import choose_kernel, run_kernel, walk_rows
from regard.attention.kernels.fused import SDPA
from regard.attention.normalizers import Softmax
from regard.attention.visible import Causal, is_query_independent, select_index, split_conjunction


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
    """Return the transposed weights of a prepared call times a factor; differentiable."""
    if factor.dtype != call.query.dtype:
        factor = factor.to(statistic.dtype)
    factor = factor.expand(*call.terms.shape[:-1], factor.shape[-1])
    return _TransposedProduct.apply(call.terms, statistic, factor, call.sink, *call.inputs)


class _TransposedProduct(torch.autograd.Function):
    """The transposed weights times a factor; the backward is that of the weights times the gradient."""

    @staticmethod
    def forward(
        ctx: Any, terms: Terms, statistic: Tensor, factor: Tensor, sink: Tensor | None, *inputs: Tensor | None
    ) -> Tensor:
        ctx.terms = terms
        ctx.save_for_backward(factor, sink, *inputs)
        call = build_call(terms, sink, *inputs)
        swapped = swap_roles(call, statistic, factor.dtype)
        return sum_by_key(call, statistic, factor) if swapped is None else attend_from_keys(call, swapped, factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        factor, *tensors = ctx.saved_tensors
        _, _, needs_factor, *needs_inputs = ctx.needs_input_grad
        leaves = [
            None if tensor is None else tensor.detach().requires_grad_(needs_grad)
            for tensor, needs_grad in zip(tensors, needs_inputs, strict=True)
        ]
        with torch.enable_grad():
            product = multiply(build_call(ctx.terms, *leaves), gradient)
        gradients: dict[int, Tensor] = {}
        if product.requires_grad:
            wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
            of_wanted = torch.autograd.grad(product, wanted, factor.to(product.dtype), allow_unused=True)
            gradients = dict(zip(map(id, wanted), of_wanted, strict=True))
        of_factor = product.detach().to(factor.dtype) if needs_factor else None
        return None, None, of_factor, *(gradients.get(id(leaf)) for leaf in leaves)


def build_call(terms: Terms, sink: Tensor | None, *inputs: Tensor | None) -> Call:
    """Return the prepared call of some terms, a sink and its `inputs`."""
    query, keys, bias, *parameters = inputs
    assert query is not None and keys is not None
    return Call(terms, query, keys, bias, tuple(p for p in parameters if p is not None), sink, is_prepared=True)


def sum_by_key(
    call: Call, statistic: Float[Tensor, "*batch queries 1"], factor: Float[Tensor, "*batch queries width"]
) -> Float[Tensor, "*batch keys width"]:
    """Return the transposed weights times a factor, summed over blocks of rows."""
    *batch, _, keys = call.terms.shape
    factor = factor.to(statistic.dtype)
    total = factor.new_zeros(*batch, keys, factor.shape[-1])
    for block in walk_rows(call, statistic):
        part = upcast_matmul(block.weights.mT, select_index(factor, -2, block.rows))
        select_index(total, -2, block.span).add_(part)
    return total


def swap_roles(call: Call, statistic: Float[Tensor, "*batch queries 1"], dtype: torch.dtype) -> Call | None:
    """Return the call in which keys attend to queries, of which each has its negative log-sum-exp as a bias.

    Under a causal rule both are in reverse order, so that the rule is the same. The result is None where the
    fused operators do not support it.
    """
    if not is_swappable(call):
        return None
    *batch, n, m = call.terms.shape
    rule = next((rule for rule in split_conjunction(call.terms.visible) if not is_query_independent(rule)), None)
    key_bias = -statistic.masked_fill(statistic.isinf(), 0)  # a query that sees no key is hidden in another way, too
    tensors = call.keys.to(dtype), call.query.to(dtype).expand(*batch, n, -1), key_bias
    query, keys, key_bias = tensors if rule is None else (tensor.flip(-2) for tensor in tensors)
    scale = call.terms.score.dot_scale
    assert scale is not None
    form = DotForm(query, keys, scale, key_bias.squeeze(-1))
    form = fold_key_bias(form) if query.is_cuda else form
    bias = None if form.key_bias is None else form.key_bias.unsqueeze(-2)
    terms = Terms(call.terms.score, rule, Softmax(), torch.Size((*batch, m, n)), hides=False)
    swapped = Call(terms, form.query, form.keys, bias, is_prepared=True)
    return swapped if SDPA.get_unsupported_reason(swapped, "forward") is None else None


def is_swappable(call: Call) -> bool:
    """Return whether weights are a softmax of dot products whose keys can attend to queries under the same rule."""
    terms = call.terms
    if terms.score.dot_scale is None or not isinstance(terms.normalizer, Softmax) or 0 in terms.shape:
        return False
    if call.bias is not None and call.bias.shape[-2] > 1:
        return False
    rules = [rule for rule in split_conjunction(terms.visible) if not is_query_independent(rule)]
    return not rules or (len(rules) == 1 and isinstance(rules[0], Causal) and terms.shape[-2] == terms.shape[-1])


def attend_from_keys(
    call: Call, swapped: Call, factor: Float[Tensor, "*batch queries width"]
) -> Float[Tensor, "*batch keys width"]:
    """Return the transposed weights times a factor from the call with queries and keys exchanged."""
    assert SDPA.forward is not None
    is_reversed = swapped.terms.visible is not None
    result = SDPA.forward(swapped, factor.flip(-2) if is_reversed else factor)
    assert result.statistic is not None
    output, log_received = result.output, result.statistic
    if is_reversed:
        output, log_received = output.flip(-2), log_received.flip(-2)
    if call.bias is not None:
        log_received = log_received + call.bias.mT
    received = log_received.exp().masked_fill(log_received == torch.inf, 0)  # keys that no query sees
    for rule in split_conjunction(call.terms.visible):
        if is_query_independent(rule):
            seen = rule.tile(slice(0, 1), slice(0, call.terms.shape[-1]), call.terms.shape, output.device)
            received = received.masked_fill(~seen.mT, 0)
    return output * received.to(output.dtype)
