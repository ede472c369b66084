"""Record calls of `torch.nn.attention.flex_attention`, through its operator."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.attention.intercept.captured import Captured
from regard.attention.intercept.flex_weights import FlexWeights, Modify

NAME = "flex_attention"


def capture(
    query: Float[Tensor, "batch heads queries width"],
    key: Float[Tensor, "batch groups keys width"],
    value: Float[Tensor, "batch groups keys value_width"],
    score_mod: Modify | None,
    block_mask: tuple[Any, ...] | None,
    scale: float,
    *_: Any,
    grad: bool = False,
    **__: Any,
) -> Captured:
    """Return the weights of a call; the arguments are those of torch's operator, a block mask as a tuple."""
    if not grad:
        query, key = query.detach(), key.detach()
    mask_mod = None if block_mask is None else next((part for part in reversed(block_mask) if callable(part)), None)
    return Captured(FlexWeights(query, key, float(scale), score_mod, mask_mod), NAME)
