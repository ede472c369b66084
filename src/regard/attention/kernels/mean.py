"""Attention with a constant score: the output is the mean of the visible values."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast, upcast_matmul
from regard.attention.call import Call
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.normalizers import Softmax
from regard.attention.visible import is_query_independent, split_conjunction


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute the mean of the values and the log-sum-exp of every row."""
    terms = call.terms
    *batch, n, m = terms.shape
    visible = upcast(values).new_ones(1, m)
    if terms.visible is not None:
        visible = terms.visible.tile(slice(0, 1), slice(0, m), terms.shape, values.device).to(visible.dtype)
    counts = visible.sum(-1, keepdim=True)  # (*batch, 1, 1), where axes may be 1
    output = upcast_matmul(visible / counts.clamp_min(1), values).to(values.dtype)
    lse = counts.log().masked_fill(counts == 0, math.inf)
    return Result(output.expand(*batch, n, -1).contiguous(), lse.expand(*batch, n, 1).contiguous())


def unsupported_reason(call: Call, job: str) -> str | None:
    """Return why the weights are not equal for all keys and queries; None if they are."""
    terms = call.terms
    if not isinstance(terms.normalizer, Softmax) or call.bias is not None or call.sink is not None or terms.dropout:
        return "it supports neither bias nor a sink nor dropout nor normalizers other than softmax"
    if not all(is_query_independent(rule) for rule in split_conjunction(terms.visible)):
        return "not all queries see the same keys"
    return None


MEAN = AttentionKernel(
    "mean", forms=("constant",), unsupported_reason=unsupported_reason, forward=forward, differentiable=True
)
