"""`attend`: one function for every kind of attention; it picks the fastest exact kernel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Literal, overload

from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import Score
from regard.attention.call import Call, Terms
from regard.attention.inputs import check_share, checked, fitting_bias
from regard.attention.kernels.table import choose_kernel, kernel_of, run
from regard.attention.lazy_weights import weights_of
from regard.attention.normalise import as_normaliser
from regard.attention.score_checks import check_made_for
from regard.attention.scores import score_for_a_call
from regard.attention.shared import holding
from regard.attention.visible import Rule, as_rule
from regard.attention.watch import report, watching
from regard.attention.weights import Weights


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score = ..., *, visible: Rule | Tensor | None = ...,
    bias: Tensor | None = ..., normaliser: str = ..., dropout: float = ..., path: str | None = ...,
    return_weights: Literal[False] = ..., lazy: bool = ...,
) -> Tensor: ...  # fmt: skip


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score = ..., *, visible: Rule | Tensor | None = ...,
    bias: Tensor | None = ..., normaliser: str = ..., dropout: float = ..., path: str | None = ...,
    return_weights: Literal[True], lazy: bool = ...,
) -> tuple[Tensor, Weights]: ...  # fmt: skip


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score = ..., *, visible: Rule | Tensor | None = ...,
    bias: Tensor | None = ..., normaliser: str = ..., dropout: float = ..., path: str | None = ...,
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
    at nothing gets a zero output. Keys and values that may not be seen must still be
    finite numbers: zero times NaN is NaN.

    Args:
        query: What is looked for.
        keys: What it is compared with.
        values: What is found there.
        score: A name (`dot scaled_dot gaussian boxcar epanechnikov uniform exact hard`) or
            a module, such as `regard.attention.Additive(...)` or a `Score` of your own.
        visible: True where a query may look: a bool tensor that broadcasts to
            (*batch, n, m), or `causal()`, `lengths(...)`, `window(...)`, `documents(...)`,
            combined with `&`, `|`, `~`.
        bias: Added to the scores; broadcasts to (*batch, n, m). To hide keys say so with `visible`: a
            query that sees nothing but keys of -1e9 mixes these, one that may see none gets zero.
        normaliser: `softmax`, `sparsemax`, `entmax15`, or `none`: the scores (for a kernel
            its values) are the weights.
        dropout: The share of weights set to zero; the `Weights` are those before it.
        path: `mean`, `sdpa`, `tiled` or `reference`; by default the fastest that can do it.
        return_weights: Also return the exact weights.
        lazy: The weights are computed when they are asked for, from query and keys, which must
            not have changed by then (a change is noticed, but not in inference mode); False
            makes them independent now, for keys in memory that is written again.

    Example:
        >>> out, weights = attend(query, keys, values, visible=causal(), return_weights=True)
        >>> values, indices = weights.top(5)
    """
    module = score_for_a_call(score)
    rule = None if visible is None else as_rule(visible)
    how = as_normaliser(normaliser, module)
    check_share("attend", dropout)
    (query, keys, values), shape, autocast = checked(query, keys, values, rule)
    check_made_for(module, query, keys, shape[:-2])
    bias = fitting_bias(bias, how, rule, query, shape)
    call = Call(Terms(module, rule, how, shape, dropout=dropout, autocast=autocast), query, keys, bias)
    for listen in _listeners.get():
        listen(call.terms, query, keys)
    kernel = choose_kernel(call) if path is None else kernel_of(path, call)
    result = run(kernel, call, values)
    if not (return_weights or watching()):
        return result.output
    weights = weights_of(call, result)
    if not lazy:
        weights = weights.apart()
    report(weights)
    return (result.output, weights) if return_weights else result.output


Listener = Callable[[Terms, Tensor, Tensor], None]
"""What is told the terms, the query and the keys of a call."""

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("regard_listening", default=())


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Tell a function of every call of `attend` in this thread or task, before anything is computed."""
    return holding(_listeners, (*_listeners.get(), listener))
