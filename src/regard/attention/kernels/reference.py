"""The reference kernel: the whole score matrix at once, in plain differentiable operations."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast_matmul
from regard.attention.call import Call
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.sink import share_of_keys
from regard.attention.visible import Index, select_broadcast, select_index

SMALL = 2**18  # score elements up to which saving them for backward is cheaper than recomputing


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute the output and the whole matrix of weights before dropout."""
    weights = compute_weights(call)
    dropped = torch.nn.functional.dropout(weights, call.terms.dropout) if call.terms.dropout else weights
    return Result(upcast_matmul(dropped, values).to(values.dtype), None, weights=weights)


def compute_weights(call: Call, rows: Index | None = None) -> Float[Tensor, "*batch rows keys"]:
    """Compute the weights of some rows (default: all) by the plain formula; zeros for a query that sees no key."""
    call = call.bind_parameters()
    terms = call.terms
    *batch, n, m = terms.shape
    rows, everything = slice(0, n) if rows is None else rows, slice(0, m)
    query = select_index(call.query, -2, rows)
    bias = None if call.bias is None else select_broadcast(call.bias, -2, rows)
    scores = terms.compute_scores(query, call.keys, bias, rows, everything, plain=not call.is_prepared)
    scores = scores.expand(*batch, query.shape[-2], m)
    if m == 0:
        return scores
    blind = (scores == -math.inf).all(-1, keepdim=True)  # masked, or the gradient of their sum would be NaN
    scores = scores.masked_fill(blind, 0)
    statistic = terms.normalizer.statistic(scores, everything)
    weights = terms.normalizer.row_weights(scores, statistic, everything)
    if call.sink is not None:
        weights = weights * share_of_keys(statistic, call.sink)
    return weights.masked_fill(blind, 0)


def is_small(call: Call) -> bool:
    """Return whether saving the matrix for backward is cheaper than recomputing it."""
    return math.prod(call.terms.shape) * call.numbers_per_pair() <= SMALL


def is_worthwhile(call: Call) -> bool:
    """Return whether the matrix is small, or only torch's autograd gives all gradients."""
    return is_small(call) or call.terms.score.needs_autograd(call.query, call.keys)


REFERENCE = AttentionKernel("reference", worthwhile=is_worthwhile, forward=forward, differentiable=True)
