"""Record calls of torch's `scaled_dot_product_attention`."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.attention import SDPBackend

from regard.attention.inputs import autocast_type, cast_inputs
from regard.attention.intercept.captured import Captured
from regard.attention.intercept.recorded_weights import RecordedWeights
from regard.attention.kernels.operators import FULL_OPERATORS, CpuFlash, Operator, OperatorInputs
from regard.attention.visible import Rule, TensorRule, Window, causal

NAME = "scaled_dot_product_attention"


def capture(
    query: Tensor,  # (*batch, queries, width); a nested tensor has no shape that could be checked
    key: Tensor,  # (*batch, keys, width)
    value: Tensor,
    attn_mask: Shaped[Tensor, "..."] | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    grad: bool = False,
    lse: Float[Tensor, "*batch queries"] | None = None,
) -> Captured:
    """Return the weights of a call; the arguments are those of torch, and the log-sum-exp of rows, if it is known."""
    query, key, _ = cast_inputs(query, key, key, autocast_type(query))
    within = None
    if query.is_nested:
        within = both_within(find_positions(query), find_positions(key))
        query, key = query.to_padded_tensor(0.0), key.to_padded_tensor(0.0)
    if not grad:
        query, key = query.detach(), key.detach()
        attn_mask = None if attn_mask is None else attn_mask.detach()
    scale = find_scale(query) if scale is None else float(scale)
    grouped = bool(enable_gqa) and query.ndim > 2 and query.shape[-3] != key.shape[-3]
    visible, bias = split_mask(attn_mask)
    for rule in (within, causal_from_start(query.shape[-2], key.shape[-2]) if is_causal else None):
        if rule is not None:
            visible = rule if visible is None else visible & rule
    return Captured(RecordedWeights(query, key, scale, visible, bias, grouped=grouped, grad=grad, lse=lse), NAME)


def call_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Float[Tensor, "batch heads queries"]] | None:
    """Call the operator that torch's function would choose, which also returns the log-sum-exp of each row.

    None if the function would do more than that, or choose none that has it.
    """
    tensors = query, key, value
    if attn_mask is not None or dropout_p or not all(map(is_plain, tensors)):
        return None
    if not query.ndim == key.ndim == value.ndim == 4 or autocast_type(query) is not None:
        return None
    width = query.shape[-1]
    if value.shape[-1] != width or (enable_gqa and query.shape[1] != key.shape[1]):
        return None
    scale = find_scale(query) if scale is None else float(scale)
    choice = torch._fused_sdp_choice(*tensors, None, 0.0, is_causal, scale=scale)
    if query.is_cuda and width % 8 == 0 and choice in FULL_OPERATORS:
        operator: Operator = FULL_OPERATORS[choice]
    elif query.is_cpu and choice == SDPBackend.FLASH_ATTENTION.value:
        operator = CpuFlash()
    else:
        return None
    output, lse, _ = operator.forward(OperatorInputs(*tensors, None, is_causal, scale))
    return output, lse


def find_scale(query: Tensor) -> float:
    """Return torch's default factor of dot products, to the last bit; 1 for queries without numbers."""
    return 1 / math.sqrt(query.shape[-1] or 1)


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is of torch's own type and holds its numbers as they are."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_nested:
        return False
    return tensor.layout is torch.strided and not tensor.is_neg()


def split_mask(mask: Shaped[Tensor, "..."] | None) -> tuple[Rule | None, Float[Tensor, "..."] | None]:
    """Return a mask as a rule, if it is of bools, or as a bias."""
    if mask is None:
        return None, None
    return (TensorRule(mask), None) if mask.dtype == torch.bool else (None, mask)


def find_positions(nested: Tensor) -> Bool[Tensor, "batch positions"]:
    """Return which positions of padded sequences a nested tensor has, on its axis before the last one."""
    lengths = torch.tensor([part.shape[-2] for part in nested.unbind()], device=nested.device)
    return torch.arange(int(lengths.max()), device=nested.device) < lengths[:, None]


def both_within(queries: Bool[Tensor, "batch queries"], keys: Bool[Tensor, "batch keys"]) -> Rule:
    """Return the rule that padded queries see nothing, and the others no padded keys; the same for all heads."""
    return TensorRule(queries[:, None, :, None]) & keys[:, None, None, :]


def causal_from_start(queries: int, keys: int) -> Rule:
    """Return the rule that query i sees the keys up to and including i, as torch aligns them."""
    return causal() if queries == keys else Window(None, queries - keys)
