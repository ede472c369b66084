"""Where every key scores alike, the output is the mean of the values that may be seen: no pair is looked at."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import product, widened
from regard.attention.call import Call
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.normalise import Softmax
from regard.attention.visible import alike_for_all_queries, conjuncts


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """The mean of the values, and the log-sum-exp of every row."""
    terms = call.terms
    *batch, n, m = terms.shape
    seen = widened(values).new_ones(1, m)
    if terms.visible is not None:
        seen = terms.visible.tile(slice(0, 1), slice(0, m), terms.shape, values.device).to(seen.dtype)
    counts = seen.sum(-1, keepdim=True)  # (*batch, 1, 1), where an axis may be one for all
    output = product(seen / counts.clamp_min(1), values).to(values.dtype)
    lse = counts.log().masked_fill(counts == 0, math.inf)
    return Result(output.expand(*batch, n, -1).contiguous(), lse.expand(*batch, n, 1).contiguous())


def supports(call: Call, job: str) -> str | None:
    """Why the weights of a query are not all equal, or not the same for each query; None where they are."""
    terms = call.terms
    if not isinstance(terms.normaliser, Softmax) or call.bias is not None or terms.dropout:
        return "it takes neither a bias nor dropout nor another normaliser"
    if not all(alike_for_all_queries(rule) for rule in conjuncts(terms.visible)):
        return "queries differ in what they may see"
    return None


MEAN = AttentionKernel("mean", forms=("constant",), supports=supports, forward=forward, differentiable=True)
