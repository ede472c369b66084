"""Where every key scores alike, the output is the mean of the values that may be seen: no pair is looked at."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import product, widened
from regard.attention.comparison import Terms


def mean_attention(
    terms: Terms, values: Float[Tensor, "*values_batch keys width"]
) -> tuple[Float[Tensor, "*batch queries width"], Float[Tensor, "*batch queries 1"]]:
    """Output, and the log-sum-exp of every row; what may be seen must be the same for all queries."""
    *batch, n, m = terms.shape
    seen = widened(values).new_ones(1, m)
    if terms.visible is not None:
        seen = terms.visible.tile(slice(0, 1), slice(0, m), terms.shape, values.device).to(seen.dtype)
    counts = seen.sum(-1, keepdim=True)  # (*batch, 1, 1), where an axis may be one for all
    output = product(seen / counts.clamp_min(1), values).to(values.dtype)
    lse = counts.log().masked_fill(counts == 0, math.inf)
    return output.expand(*batch, n, -1).contiguous(), lse.expand(*batch, n, 1).contiguous()
