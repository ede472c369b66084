"""Dot-product attention by torch: its function for the output alone, its operators for what weights need, too."""

from __future__ import annotations

from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention.call import Call, Terms, fold_key_bias, join_biases
from regard.attention.kernels.kernel import NOT_OF_FORM, AttentionKernel
from regard.attention.kernels.operators import OperatorInputs, align_mask, choose_operator
from regard.attention.kernels.sdpa import (
    OperatorPart,
    backward,
    count_mask_rows,
    forward,
    has_row_masks,
    iter_parts,
    pad_widths,
    to_four_axes,
)
from regard.attention.normalizers import Softmax


def attend_alone(
    call: Call, values: Float[Tensor, "*values_batch keys width"]
) -> Float[Tensor, "*batch queries width"] | None:
    """Compute the output by one call of torch's function, under its autograd; None if it does not support the call."""
    terms, form = call.terms, call.dot
    assert form is not None
    if form.key_bias is not None and (call.query.is_cuda or torch.compiler.is_compiling()):
        form = fold_key_bias(form)
    bias = join_biases(call.bias, form.key_bias)
    if call.sink is not None or (bias is not None and bias.requires_grad and torch.is_grad_enabled()):
        return None
    part = find_single_part(terms, bias, form.query)
    if part is None:
        return None
    query, keys, padded = to_four_axes(terms.shape, *pad_widths(form.query, form.keys, values))
    inputs = part.select(query, keys, padded, form.scale)
    output = run_operator(inputs, terms.dropout, keeps_bias=bias is not None and terms.autocast is not None)
    if len(terms.shape) != 4:
        output = output.reshape(*terms.shape[:-1], output.shape[-1])
    return output if output.shape[-1] == values.shape[-1] else output[..., : values.shape[-1]]


def run_operator(
    inputs: OperatorInputs, dropout: float, *, keeps_bias: bool
) -> Float[Tensor, "batch heads queries width"]:
    """Return torch's attention under its autograd.

    Where the function would refuse a mask, or autocast would round a bias, the operator below it runs. On a GPU the
    function may also choose one that does not give zeros to rows that see no key.
    """
    mask, causal, scale = inputs.mask, inputs.causal, inputs.scale
    if mask is None or not (causal or keeps_bias or mask.is_cuda):
        return scaled_dot_product_attention(*inputs.qkv, mask, dropout, causal, scale=scale)
    if mask.is_cuda:
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            *inputs.qkv, align_mask(inputs), True, dropout, causal, scale=scale
        )[0]
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *inputs.qkv, dropout, causal, attn_mask=mask, scale=scale
    )[0]


def find_single_part(terms: Terms, bias: Tensor | None, like: Tensor) -> OperatorPart | None:
    """Return the part of a call if a single operator computes it; None if it is split."""
    n = terms.shape[-2]
    if has_row_masks(terms, bias) and count_mask_rows(terms, bias, like) < n:
        return None
    parts = list(islice(iter_parts(terms, bias, like), 2))
    return parts[0] if len(parts) == 1 and parts[0].rows.stop - parts[0].rows.start == n else None


def unsupported_reason(call: Call, job: str) -> str | None:
    """Return why torch's fused operators do not support a call; None if they do."""
    terms, query = call.terms, call.query
    if not terms.normalizer.ranked:
        return f"{type(terms.score).__name__} {NOT_OF_FORM['dot']}"
    if not isinstance(terms.normalizer, Softmax):
        return f"{type(terms.normalizer).__name__} is not softmax"
    if choose_operator(query, mask=True) is None:
        return f"no fused operator supports {str(query.dtype).removeprefix('torch.')} on {query.device.type}"
    if call.bias is not None and query.is_cuda and query.dtype != torch.float32:
        return "the fused operators would round the bias to half precision"
    if call.dot is None:
        return f"{type(terms.score).__name__} {NOT_OF_FORM['dot']}"
    if terms.dropout and not (job == "output" and drops_weights(call)):
        return "the fused operators do not support dropout in linear memory"
    return None


def drops_weights(call: Call) -> bool:
    """Return whether torch's function supports the dropout of a call in linear memory."""
    if not call.query.is_cuda or call.terms.dropout == 1 or call.sink is not None:
        return False
    if call.bias is not None and call.bias.requires_grad and torch.is_grad_enabled():
        return False
    return find_single_part(call.terms, call.bias, call.query) is not None


SDPA = AttentionKernel(
    "sdpa",
    forms=("dot", "constant"),
    unsupported_reason=unsupported_reason,
    forward=forward,
    backward=backward,
    attend_alone=attend_alone,
)
