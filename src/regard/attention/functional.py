"""`attend`: one function for every kind of attention; it picks the fastest exact path."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.comparison import Comparison, Terms
from regard.attention.kernels.operators import operator_for
from regard.attention.kernels.reference import reference_attention
from regard.attention.kernels.sdpa import sdpa_attention
from regard.attention.kernels.tiled import tiled_attention
from regard.attention.normalise import KernelSum, Softmax, as_normaliser
from regard.attention.scores import DotForm, FixedDot, Score, as_score, check_widths, widened
from regard.attention.visible import Rule, as_rule, check_broadcast
from regard.attention.watch import report, watching
from regard.attention.weights import DenseWeights, LazyWeights, Weights
from regard.errors import RegardError, unknown_name

Path = Literal["reference", "sdpa", "tiled"]

SMALL = 2**18  # numbers of a score that are cheaper kept for backward than computed again


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score = ..., *, visible: Rule | Tensor | None = ...,
    bias: Tensor | None = ..., normaliser: str = ..., dropout: float = ..., path: Path | None = ...,
    return_weights: Literal[False] = ..., lazy: bool = ...,
) -> Tensor: ...  # fmt: skip


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score = ..., *, visible: Rule | Tensor | None = ...,
    bias: Tensor | None = ..., normaliser: str = ..., dropout: float = ..., path: Path | None = ...,
    return_weights: Literal[True], lazy: bool = ...,
) -> tuple[Tensor, Weights]: ...  # fmt: skip


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score = ..., *, visible: Rule | Tensor | None = ...,
    bias: Tensor | None = ..., normaliser: str = ..., dropout: float = ..., path: Path | None = ...,
    return_weights: bool, lazy: bool = ...,
) -> Tensor | tuple[Tensor, Weights]: ...  # fmt: skip


def attend(
    query: Float[Tensor, "*query_batch queries query_width"],
    keys: Float[Tensor, "*keys_batch keys key_width"],
    values: Float[Tensor, "*values_batch keys width"],
    score: str | Score = "scaled_dot",
    *,
    visible: Rule | Tensor | None = None,
    bias: Float[Tensor, "..."] | None = None,
    normaliser: str = "softmax",
    dropout: float = 0.0,
    path: str | None = None,
    return_weights: bool = False,
    lazy: bool = True,
) -> Float[Tensor, "*batch queries width"] | tuple[Float[Tensor, "*batch queries width"], Weights]:
    """For each query, the values averaged by how well their keys answer it.

    The leading axes of query, keys and values broadcast; grouped heads are
    (batch, groups, heads, n, d) against (batch, groups, 1, m, d). A query that may look
    at nothing gets a zero output.

    Args:
        query: What is looked for.
        keys: What it is compared with.
        values: What is found there.
        score: A name (`dot scaled_dot gaussian boxcar epanechnikov uniform exact hard`) or
            a module, such as `regard.attention.Additive(...)` or a `Score` of your own.
        visible: True where a query may look: a bool tensor that broadcasts to
            (*batch, n, m), or `causal()`, `lengths(...)`, `window(...)`, `documents(...)`,
            combined with `&`, `|`, `~`.
        bias: Added to the scores; broadcasts to (*batch, n, m).
        normaliser: `softmax`, `sparsemax`, `entmax15`, or `none`: the scores (for a kernel
            its values) are the weights.
        dropout: The share of weights set to zero; the `Weights` are those before it.
        path: `sdpa`, `tiled` or `reference`; by default the fastest that can do it.
        return_weights: Also return the exact weights.
        lazy: The weights are computed when they are asked for, from query and keys, which must
            not have changed by then (a change is noticed, but not in inference mode); False
            makes them independent now, for keys in memory that is written again.

    Example:
        >>> out, weights = attend(query, keys, values, visible=causal(), return_weights=True)
        >>> values, indices = weights.top(5)
    """
    module = as_score(score)
    rule = None if visible is None else as_rule(visible)
    how = as_normaliser(normaliser, module)
    query, keys, values, bias, shape = checked(query, keys, values, bias, rule, dropout)
    check_widths(module, query, keys)
    if bias is not None and isinstance(how, KernelSum):
        bias = bias - row_peaks(bias)
    terms = Terms(module, rule, how, shape)
    for listen in _listeners.get():
        listen(terms, query, keys)
    if path is None:
        path = choose_path(terms, query, keys, bias, dropout)
    else:
        check_path(path, terms, query, bias, dropout)
    output, see = PATHS[path](terms, query, keys, values, bias, dropout)
    if not (return_weights or watching()):
        return output
    weights = see() if lazy else see().apart()
    report(weights)
    return (output, weights) if return_weights else output


Listener = Callable[[Terms, Tensor, Tensor], None]
"""What is told the terms, the query and the keys of a call."""

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("regard_listening", default=())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a function of every call of `attend` in this thread or task, before anything is computed."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


See = Callable[[], Weights]
"""What makes the weights of a call, if they are asked for."""


def by_reference(
    terms: Terms, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, dropout: float
) -> tuple[Tensor, See]:
    """Everything at once, by the plain formula."""
    output, matrix = reference_attention(terms, query, keys, values, bias, dropout)
    return output, lambda: DenseWeights(matrix, ranked=terms.normaliser.ranked)


def by_sdpa(
    terms: Terms, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, dropout: float
) -> tuple[Tensor, See]:
    """As a dot product, by torch's fused operators."""
    comparison = prepared(terms, query, keys, bias)
    output, statistic = sdpa_attention(comparison, values)
    return output, lambda: LazyWeights(comparison, statistic)


def by_tiles(
    terms: Terms, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, dropout: float
) -> tuple[Tensor, See]:
    """Tile by tile, for any score."""
    comparison = prepared(terms, query, keys, bias)
    output, statistic, random = tiled_attention(comparison, values, dropout)
    return output, lambda: LazyWeights(comparison, statistic, random=random)


PATHS = {"reference": by_reference, "sdpa": by_sdpa, "tiled": by_tiles}


def check_path(path: str, terms: Terms, query: Tensor, bias: Tensor | None, dropout: float) -> None:
    """Raise a `RegardError` that says why a path cannot be had, unless it can."""
    if path not in PATHS:
        raise unknown_name("path", path, PATHS)
    reason = why_not_fused(terms, query, bias, dropout) if path == "sdpa" else None
    if reason is not None:
        raise RegardError(f'path: "sdpa" cannot be had: {reason}; leave out path, or take "tiled" or "reference"')


def choose_path(terms: Terms, query: Tensor, keys: Tensor, bias: Tensor | None, dropout: float) -> Path:
    """The fastest path that gives the exact answer."""
    if math.prod(terms.shape) == 0:
        return "reference"  # nothing to compute, nothing to save
    if why_not_fused(terms, query, bias, dropout) is None:
        return "sdpa"
    if math.prod(terms.shape) * terms.score.numbers_per_pair(query, keys) <= SMALL:
        return "reference"  # cheaper to keep than to compute again in backward
    return "tiled"


def why_not_fused(terms: Terms, query: Tensor, bias: Tensor | None, dropout: float) -> str | None:
    """Why torch's fused operators cannot do it; None where they can."""
    if not has_dot_form(terms):
        return f"{type(terms.score).__name__} is no dot product here"
    if not isinstance(terms.normaliser, Softmax):
        return f"{type(terms.normaliser).__name__} is no softmax"
    if dropout:
        return "dropout is not among what the fused operators do in linear memory"
    if operator_for(query, mask=True) is None:
        return f"there is no fused operator for {str(query.dtype).removeprefix('torch.')} on {query.device.type}"
    if bias is not None and query.device.type == "cuda" and query.dtype != torch.float32:
        return "the fused operators would round the bias to half precision"
    return None


def has_dot_form(terms: Terms) -> bool:
    """Whether the score says how it is a dot product, and the normaliser does not mind what it leaves out."""
    return type(terms.score).as_dot is not Score.as_dot and terms.normaliser.ranked


def row_peaks(bias: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The greatest bias of each row: taken off, it leaves a kernel's weights as they are and its exp finite."""
    if bias.shape[-1] == 0:
        return torch.zeros_like(bias)
    peaks = bias.detach().amax(-1, keepdim=True)
    return peaks.masked_fill(peaks == -math.inf, 0)


def prepared(terms: Terms, query: Tensor, keys: Tensor, bias: Tensor | None) -> Comparison:
    """Do once what is done once for each query and key."""
    form = terms.score.as_dot(query, keys) if has_dot_form(terms) else None
    if form is None:
        return Comparison(terms, *terms.score.prepare(query, keys), bias)
    if form.key_bias is not None and query.device.type == "cuda":
        form = key_bias_in_width(form)
    if form.key_bias is not None:
        over_keys = form.key_bias[..., None, :]
        bias = over_keys if bias is None else bias + over_keys
    return Comparison(replace(terms, score=FixedDot(form.scale)), form.query, form.keys, bias)


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


def checked(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, visible: Rule | None, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, torch.Size]:
    """The inputs as autocast wants them and the shape of the scores, or a `RegardError` that says what does not fit."""
    for name, tensor in (("query", query), ("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise RegardError(f"attend: {name} is {type(tensor).__name__}; a torch tensor is needed")
        if not tensor.is_floating_point():
            raise RegardError(f"attend: {name} is {str(tensor.dtype).removeprefix('torch.')}; a float type is needed")
        if tensor.ndim < 2:
            raise RegardError(f"attend: {name} has shape {tuple(tensor.shape)}; (*batch, positions, width) is needed")
    if not 0 <= dropout <= 1:
        raise RegardError(f"attend: dropout is {dropout}; a share from 0 to 1 is needed")
    if torch.is_autocast_enabled(query.device.type):
        low = torch.get_autocast_dtype(query.device.type)
        query, keys, values = (t if t.dtype == torch.float64 else t.to(low) for t in (query, keys, values))
    if not query.dtype == keys.dtype == values.dtype:
        found = ", ".join(str(t.dtype).removeprefix("torch.") for t in (query, keys, values))
        raise RegardError(f"attend: query, keys and values are {found}; one type for all is needed")
    if keys.shape[-2] != values.shape[-2]:
        raise RegardError(f"attend: there are {keys.shape[-2]} keys and {values.shape[-2]} values; each key needs one")
    try:
        batch = torch.broadcast_shapes(query.shape[:-2], keys.shape[:-2], values.shape[:-2])
    except RuntimeError:
        found = ", ".join(str(tuple(t.shape[:-2])) for t in (query, keys, values))
        raise RegardError(
            f"attend: leading axes of query, keys and values are {found}; they do not broadcast"
        ) from None
    shape = torch.Size((*batch, query.shape[-2], keys.shape[-2]))
    if visible is not None:
        visible.check(shape)
    if bias is not None:
        if not isinstance(bias, Tensor) or not bias.is_floating_point():
            found = str(bias.dtype).removeprefix("torch.") if isinstance(bias, Tensor) else type(bias).__name__
            raise RegardError(f"bias: is {found}; a float type is needed (what may be seen is said with visible)")
        check_broadcast("bias", bias.shape, shape)
        bias = torch.atleast_2d(bias).to(widened(query).dtype)
    return query, keys, values, bias, shape
