"""Record calls of torch's `scaled_dot_product_attention`."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from regard.attention.inputs import autocast_type, cast_inputs
from regard.attention.intercept.captured import Captured
from regard.attention.intercept.recorded_weights import RecordedWeights
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
) -> Captured:
    """Return the weights of a call; the arguments are those of torch."""
    query, key, _ = cast_inputs(query, key, key, autocast_type(query))
    within = None
    if query.is_nested:
        within = both_within(find_positions(query), find_positions(key))
        query, key = query.to_padded_tensor(0.0), key.to_padded_tensor(0.0)
    if not grad:
        query, key = query.detach(), key.detach()
        attn_mask = None if attn_mask is None else attn_mask.detach()
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    grouped = bool(enable_gqa) and query.ndim > 2 and query.shape[-3] != key.shape[-3]
    visible, bias = split_mask(attn_mask)
    for rule in (within, causal_from_start(query.shape[-2], key.shape[-2]) if is_causal else None):
        if rule is not None:
            visible = rule if visible is None else visible & rule
    return Captured(RecordedWeights(query, key, scale, visible, bias, grouped=grouped, grad=grad), NAME)


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
