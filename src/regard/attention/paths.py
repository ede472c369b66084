"""The ways to compute one call of `attend`, and which of them is the fastest that gives the exact answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import DotForm, Score
from regard.attention.comparison import Comparison, Terms
from regard.attention.kernels.mean import mean_attention
from regard.attention.kernels.operators import operator_for
from regard.attention.kernels.reference import reference_attention
from regard.attention.kernels.sdpa import sdpa_attention
from regard.attention.kernels.tiled import tiled_attention
from regard.attention.normalise import Softmax
from regard.attention.score_checks import as_dot_form
from regard.attention.scores import fixed_dot
from regard.attention.visible import alike_for_all_queries, conjuncts
from regard.attention.weights import DenseWeights, LazyWeights, Weights
from regard.errors import RegardError, unknown_name

Path = Literal["mean", "reference", "sdpa", "tiled"]

SMALL = 2**18  # numbers of a score that are cheaper kept for backward than computed again

See = Callable[[], Weights]
"""What makes the weights of a call, if they are asked for."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of `attend`, once everything is known to fit."""

    terms: Terms
    query: Float[Tensor, "*query_batch queries query_width"]
    keys: Float[Tensor, "*keys_batch keys key_width"]
    values: Float[Tensor, "*values_batch keys width"]
    bias: Float[Tensor, "*bias_batch #queries #keys"] | None
    dropout: float

    @cached_property
    def form(self) -> DotForm | None:
        """The score as a dot product, where there is such a form."""
        if not may_be_dot(self.terms):
            return None
        found = self.terms.score.as_dot(self.query, self.keys)
        return as_dot_form(self.terms.score, found, self.query, self.keys)

    @cached_property
    def comparison(self) -> Comparison:
        """With that done which is done once for each query and key."""
        if self.form is None:
            return Comparison(self.terms, *self.terms.score.prepare(self.query, self.keys), self.bias)
        form, bias = self.form, self.bias
        if form.key_bias is not None and self.query.is_cuda:
            form = key_bias_in_width(form)
        if form.key_bias is not None:
            over_keys = form.key_bias.unsqueeze(-2)
            bias = over_keys if bias is None else bias + over_keys
        hides = self.terms.visible is not None or self.bias is not None
        terms = Terms(fixed_dot(form.scale), self.terms.visible, self.terms.normaliser, self.terms.shape, hides)
        return Comparison(terms, form.query, form.keys, bias)


def by_mean(call: Call) -> tuple[Tensor, See]:
    """As the mean of the values, since all weights are equal."""
    output, statistic = mean_attention(call.terms, call.values)
    return output, lambda: LazyWeights(call.comparison, statistic)


def by_reference(call: Call) -> tuple[Tensor, See]:
    """Everything at once, by the plain formula."""
    output, matrix = reference_attention(call.terms, call.query, call.keys, call.values, call.bias, call.dropout)
    return output, lambda: DenseWeights(matrix, ranked=call.terms.normaliser.ranked)


def by_sdpa(call: Call) -> tuple[Tensor, See]:
    """As a dot product, by torch's fused operators."""
    output, lse = sdpa_attention(call.comparison, call.values)
    return output, lambda: LazyWeights(call.comparison, lse.unsqueeze(-1))


def by_tiles(call: Call) -> tuple[Tensor, See]:
    """Tile by tile, for any score."""
    output, statistic, random = tiled_attention(call.comparison, call.values, call.dropout)
    return output, lambda: LazyWeights(call.comparison, statistic, random=random)


PATHS: dict[str, Callable[[Call], tuple[Tensor, See]]] = {
    "mean": by_mean,
    "reference": by_reference,
    "sdpa": by_sdpa,
    "tiled": by_tiles,
}


def check_path(path: object, call: Call) -> None:
    """Raise a `RegardError` that says why a path cannot be had, unless it can."""
    if not isinstance(path, str) or path not in PATHS:
        raise unknown_name("path", path, PATHS)
    limits = {"mean": why_no_mean, "sdpa": why_not_fused}
    reason = limits[path](call) if path in limits else None
    if reason is not None:
        raise RegardError(f'path: "{path}" cannot be had: {reason}; leave out path, or take "tiled" or "reference"')


def choose_path(call: Call) -> Path:
    """The fastest path that gives the exact answer."""
    pairs = math.prod(call.terms.shape)
    if pairs == 0:
        return "reference"  # nothing to compute, nothing to save
    if why_no_mean(call) is None:
        return "mean"
    if why_not_fused(call) is None:
        return "sdpa"
    if pairs * call.terms.score.numbers_per_pair(call.query, call.keys) <= SMALL:
        return "reference"  # cheaper to keep than to compute again in backward
    return "tiled"


def why_no_mean(call: Call) -> str | None:
    """Why the weights of a query are not all equal, or not the same for each query; None where they are."""
    if not call.terms.score.constant:
        return f"{type(call.terms.score).__name__} does not weigh all keys alike"
    if not isinstance(call.terms.normaliser, Softmax) or call.bias is not None or call.dropout:
        return "it takes neither a bias nor dropout nor another normaliser"
    if not all(alike_for_all_queries(rule) for rule in conjuncts(call.terms.visible)):
        return "queries differ in what they may see"
    return None


def why_not_fused(call: Call) -> str | None:
    """Why torch's fused operators cannot do it; None where they can."""
    query, no_dot = call.query, f"{type(call.terms.score).__name__} is no dot product here"
    if not may_be_dot(call.terms):
        return no_dot
    if not isinstance(call.terms.normaliser, Softmax):
        return f"{type(call.terms.normaliser).__name__} is no softmax"
    if call.dropout:
        return "dropout is not among what the fused operators do in linear memory"
    if operator_for(query, mask=True) is None:
        return f"there is no fused operator for {str(query.dtype).removeprefix('torch.')} on {query.device.type}"
    if call.bias is not None and query.is_cuda and query.dtype != torch.float32:
        return "the fused operators would round the bias to half precision"
    return no_dot if call.form is None else None


def may_be_dot(terms: Terms) -> bool:
    """Whether the score says how it is a dot product, and the normaliser does not mind what it leaves out."""
    return type(terms.score).as_dot is not Score.as_dot and terms.normaliser.ranked


def key_bias_in_width(form: DotForm) -> DotForm:
    """The key bias as further coordinates of the keys, as exact as float32.

    The fast operators of a GPU take no bias; three numbers of half precision hold one
    of float32.
    """
    assert form.key_bias is not None
    parts, rest = [], form.key_bias
    rest = rest / form.scale
    for _ in range(1 if form.keys.dtype == rest.dtype else 3):
        parts.append(rest.to(form.keys.dtype))
        rest = rest - parts[-1].to(rest.dtype)
    ones = form.query.new_ones((*form.query.shape[:-1], len(parts)))
    columns = torch.stack(parts, -1).expand(*form.keys.shape[:-1], len(parts))
    return DotForm(torch.cat([form.query, ones], -1), torch.cat([form.keys, columns], -1), form.scale)
