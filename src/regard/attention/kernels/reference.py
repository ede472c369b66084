"""The truth: every score at once, in plain differentiable steps."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import product
from regard.attention.call import Call
from regard.attention.kernels.kernel import AttentionKernel, Result

SMALL = 2**18  # numbers of a score that are cheaper kept for backward than computed again


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Output and the whole matrix of weights (those before dropout)."""
    weights = weights_of(call)
    dropped = torch.nn.functional.dropout(weights, call.terms.dropout) if call.terms.dropout else weights
    return Result(product(dropped, values).to(values.dtype), None, weights=weights)


def weights_of(call: Call) -> Float[Tensor, "*batch queries keys"]:
    """Scores by the plain formula, normalised; a query that sees nothing gets zeros."""
    terms = call.terms
    *_, n, m = terms.shape
    everything = slice(0, m)
    scores = terms.scores(call.query, call.keys, call.bias, slice(0, n), everything, plain=True).expand(terms.shape)
    if m == 0:
        return scores
    blind = (scores == -math.inf).all(-1, keepdim=True)  # taken out, or the gradient of their sum were NaN
    scores = scores.masked_fill(blind, 0)
    weights = terms.normaliser.of_rows(scores, terms.normaliser.statistic(scores, everything), everything)
    return weights.masked_fill(blind, 0)


def is_small(call: Call) -> bool:
    """Whether the matrix is cheaper to keep than to compute again in backward."""
    return math.prod(call.terms.shape) * call.numbers_per_pair() <= SMALL


REFERENCE = AttentionKernel("reference", worthwhile=is_small, forward=forward, differentiable=True)
