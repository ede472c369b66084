"""The truth: every score at once, in plain differentiable steps."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import product
from regard.attention.comparison import Terms


def reference_attention(
    terms: Terms,
    query: Float[Tensor, "*query_batch queries width"],
    keys: Float[Tensor, "*keys_batch keys other_width"],
    values: Float[Tensor, "*values_batch keys value_width"],
    bias: Float[Tensor, "..."] | None,
    dropout: float,
) -> tuple[Float[Tensor, "*batch queries value_width"], Float[Tensor, "*batch queries keys"]]:
    """Output and the whole matrix of weights (those before dropout)."""
    weights = reference_weights(terms, query, keys, bias)
    dropped = torch.nn.functional.dropout(weights, dropout) if dropout else weights
    return product(dropped, values).to(values.dtype), weights


def reference_weights(
    terms: Terms,
    query: Float[Tensor, "*query_batch queries width"],
    keys: Float[Tensor, "*keys_batch keys other_width"],
    bias: Float[Tensor, "..."] | None,
) -> Float[Tensor, "*batch queries keys"]:
    """Scores by the plain formula, normalised; a query that sees nothing gets zeros."""
    *_, n, m = terms.shape
    scores = terms.scores(query, keys, bias, slice(0, n), slice(0, m), plain=True).expand(terms.shape)
    if m == 0:
        return scores
    blind = (scores == -math.inf).all(-1, keepdim=True)  # taken out, or the gradient of their sum were NaN
    scores = scores.masked_fill(blind, 0)
    everything = slice(0, m)
    weights = terms.normaliser.of_rows(scores, terms.normaliser.statistic(scores, everything), everything)
    return weights.masked_fill(blind, 0)
