"""`attend`: one function for every kind of attention, run by the fastest exact kernel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention.base_score import Score
from regard.attention.call import Call, Terms
from regard.attention.function_score import ScoreFunction
from regard.attention.inputs import check_dropout, prepare_bias, prepare_inputs, prepare_sink
from regard.attention.kernels.dispatch import choose_kernel, get_kernel, run_kernel, run_kernel_alone
from regard.attention.kernels.kernel import ForwardJob
from regard.attention.lazy_weights import build_weights
from regard.attention.normalizers import as_normalizer
from regard.attention.score_checks import check_score_inputs
from regard.attention.scores import resolve_score
from regard.attention.shared_context import set_variable
from regard.attention.visible import Causal, Rule, as_rule
from regard.attention.watch import is_watching, report, suspend_watching
from regard.attention.weights import Weights


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score | ScoreFunction = ..., *,
    visible: Rule | Tensor | None = ..., bias: Tensor | None = ..., sink: Tensor | None = ..., normalizer: str = ...,
    dropout: float = ..., path: str | None = ...,
    return_weights: Literal[False] = ..., lazy: bool = ...,
) -> Tensor: ...  # fmt: skip


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score | ScoreFunction = ..., *,
    visible: Rule | Tensor | None = ..., bias: Tensor | None = ..., sink: Tensor | None = ..., normalizer: str = ...,
    dropout: float = ..., path: str | None = ...,
    return_weights: Literal[True], lazy: bool = ...,
) -> tuple[Tensor, Weights]: ...  # fmt: skip


@overload
def attend(
    query: Tensor, keys: Tensor, values: Tensor, score: str | Score | ScoreFunction = ..., *,
    visible: Rule | Tensor | None = ..., bias: Tensor | None = ..., sink: Tensor | None = ..., normalizer: str = ...,
    dropout: float = ..., path: str | None = ...,
    return_weights: bool, lazy: bool = ...,
) -> Tensor | tuple[Tensor, Weights]: ...  # fmt: skip


def attend(
    query: Float[Tensor, "*query_batch queries query_width"],
    keys: Float[Tensor, "*keys_batch keys key_width"],
    values: Float[Tensor, "*values_batch keys width"],
    score: str | Score | ScoreFunction = "scaled_dot",
    *,
    visible: Rule | Tensor | None = None,
    bias: Float[Tensor, "..."] | None = None,
    sink: Float[Tensor, "..."] | None = None,
    normalizer: str = "softmax",
    dropout: float = 0.0,
    path: str | None = None,
    return_weights: bool = False,
    lazy: bool = True,
) -> Float[Tensor, "*batch queries width"] | tuple[Float[Tensor, "*batch queries width"], Weights]:
    """Compute attention: for each query, the average of the values weighted by their keys' scores.

    The leading axes of query, keys and values broadcast. For grouped heads, pass queries of shape
    (batch, groups, heads, n, d) and keys of shape (batch, groups, 1, m, d). A query with no visible
    key gets a zero output. Hidden keys and values must still be finite, because zero times NaN is NaN.

    Args:
        query: The queries, (*batch, n, query width).
        keys: The keys to compare them with, (*batch, m, key width).
        values: The values to average, one per key.
        score: The name of a score (`dot`, `scaled_dot`, `gaussian`, `boxcar`, `epanechnikov`, `uniform`,
            `exact` or `hard`), a module such as `regard.attention.Additive(...)` or your own `Score`, or a
            function that returns scores (*batch, n, m) for query and keys, such as `lambda q, k: q @ k.mT`. The
            score of a query and a key may depend on these two only.
        visible: The keys each query may attend to: a bool tensor that broadcasts to (*batch, n, m), True
            where the key is visible, or a rule: `causal()`, `lengths(...)`, `window(...)`, `documents(...)`
            or `key_indices(...)`, combined with `&`, `|` and `~`.
        bias: A tensor added to the scores; broadcasts to (*batch, n, m). Use `visible` to hide keys, not
            a bias of -1e9: a query with only such keys still averages their values.
        sink: One more logit per head in the denominator of the softmax, which belongs to no key, so that
            weights sum to less than one; broadcasts to *batch. Only with normalizer `softmax`.
        normalizer: How scores become weights: `softmax`, `sparsemax`, `entmax15`, or `none` to use the
            scores (or the values of a kernel) as they are.
        dropout: The fraction of weights set to zero. The returned `Weights` are those before dropout.
        path: The kernel to run: `mean`, `sdpa`, `tiled` or `reference`. Defaults to the fastest that
            supports the call.
        return_weights: Whether to return the exact weights, too.
        lazy: Whether the weights are computed on demand from query and keys, which must not be modified
            in place until then (regard detects this, except in inference mode). Pass False if the keys
            are in a buffer that will be overwritten.

    Returns:
        The output, (*batch, n, value width); with `return_weights`, a tuple of the output and the
        `Weights`, (*batch, n, m).

    Raises:
        RegardError: If shapes or types do not match, a name is unknown, or `path` does not support
            the call.

    Example:
        >>> out, weights = attend(query, keys, values, visible=causal(), return_weights=True)
        >>> top_weights, indices = weights.top(5)
    """
    if (
        type(score) is str and score == "scaled_dot" and type(normalizer) is str and normalizer == "softmax"
        and bias is None and sink is None and type(dropout) is float and dropout == 0 and path is None
        and not return_weights and (visible is None or type(visible) is Causal)
        and not (torch.compiler.is_compiling() or _listeners.get() or is_watching())
        and is_ready(query, keys, values, visible)
    ):  # fmt: skip
        return scaled_dot_product_attention(query, keys, values, is_causal=visible is not None)
    module = resolve_score(score)
    rule = None if visible is None else as_rule(visible)
    row_normalizer = as_normalizer(normalizer, module)
    check_dropout("attend", dropout)
    (query, keys, values), shape, autocast = prepare_inputs(query, keys, values, rule)
    check_score_inputs(module, query, keys, shape[:-2])
    bias = prepare_bias(bias, row_normalizer, rule, query, shape, has_sink=sink is not None)
    sink = prepare_sink(sink, row_normalizer, query, shape)
    terms = Terms(module, rule, row_normalizer, shape, dropout=dropout, autocast=autocast)
    call = Call(terms, query, keys, bias, sink=sink)
    if torch.compiler.is_compiling():  # context variables would break the graph
        return attend_in_graph(call, values, path, return_weights=return_weights)
    for listen in _listeners.get():
        listen(call.terms, query, keys)
    job: ForwardJob = "forward" if return_weights or is_watching() else "output"
    kernel = choose_kernel(call, job) if path is None else get_kernel(path, call, job)
    if job == "output":
        return run_kernel_alone(kernel, call, values)
    with suspend_watching():
        result = run_kernel(kernel, call, values)
    weights = build_weights(call, result)
    if not lazy:
        weights = weights.clone()
    report(weights)
    return (result.output, weights) if return_weights else result.output


def is_ready(query: Tensor, keys: Tensor, values: Tensor, visible: Causal | None) -> bool:
    """Return whether torch's function takes inputs as they are, by checks that take a few microseconds.

    Preparation takes longer than a GPU needs for the attention of short sequences.
    """
    if not type(query) is type(keys) is type(values) is Tensor:
        return False
    shape, query_shape = keys.shape, query.shape
    if values.shape != shape or len(query_shape) != 4 or 0 in shape or 0 in query_shape:
        return False
    if query_shape != shape and (visible is not None or query_shape[:2] != shape[:-2] or query_shape[3] != shape[-1]):
        return False
    if not (query.dtype is keys.dtype is values.dtype and query.device == keys.device == values.device):
        return False
    if visible is not None and visible.strict:
        return False
    if not query.stride(3) == keys.stride(3) == values.stride(3) == 1:
        return False
    if query.is_cuda:
        return shape[3] % 8 == 0 and query.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return query.is_cpu and query.is_floating_point()


def attend_in_graph(
    call: Call, values: Tensor, path: str | None, *, return_weights: bool
) -> Tensor | tuple[Tensor, Weights]:
    """Run a call in code that is being compiled, where nothing is watched and weights are a matrix."""
    from regard.attention.kernels.compiled import run_compiled  # registers operators

    result = run_compiled(call, values, path, weights=return_weights)
    return (result.output, build_weights(call, result)) if return_weights else result.output


CallHook = Callable[[Terms, Tensor, Tensor], None]
"""A function called with the terms, query and keys of each `attend` call."""

_listeners: ContextVar[tuple[CallHook, ...]] = ContextVar("regard_listening", default=())


def hook_attend_calls(listener: CallHook) -> AbstractContextManager[None]:
    """Call a function before every `attend` call in this thread or task."""
    return set_variable(_listeners, (*_listeners.get(), listener))
