"""Record calls of torch's `scaled_dot_product_attention`."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from regard.attention.inputs import autocast_type, cast_inputs
from regard.attention.intercept.captured import Captured
from regard.attention.intercept.recorded_weights import RecordedWeights
from regard.attention.visible import Rule, TensorRule, Window, causal

NAME = "scaled_dot_product_attention"


def capture(
    query: Float[Tensor, "*query_batch queries width"],
    key: Float[Tensor, "*keys_batch keys width"],
    value: Float[Tensor, "*values_batch keys value_width"],
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
    if not grad:
        query, key = query.detach(), key.detach()
        attn_mask = None if attn_mask is None else attn_mask.detach()
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    grouped = bool(enable_gqa) and query.ndim > 2 and query.shape[-3] != key.shape[-3]
    visible, bias = split_mask(attn_mask)
    if is_causal:
        rule = causal_from_start(query.shape[-2], key.shape[-2])
        visible = rule if visible is None else visible & rule
    return Captured(RecordedWeights(query, key, scale, visible, bias, grouped=grouped, grad=grad), NAME)


def split_mask(mask: Shaped[Tensor, "..."] | None) -> tuple[Rule | None, Float[Tensor, "..."] | None]:
    """Return a mask as a rule, if it is of bools, or as a bias."""
    if mask is None:
        return None, None
    return (TensorRule(mask), None) if mask.dtype == torch.bool else (None, mask)


def causal_from_start(queries: int, keys: int) -> Rule:
    """Return the rule that query i sees the keys up to and including i, as torch aligns them."""
    return causal() if queries == keys else Window(None, queries - keys)
