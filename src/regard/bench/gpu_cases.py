"""The cases of `regard bench gpu`: what regard computes on a GPU, its peers, checks in float64, and goals."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from regard.attention import Additive, Boxcar, Epanechnikov, Gaussian, attend, causal, watch
from regard.attention.call import iter_blocks
from regard.bench.cases import DOT_PRODUCTS, NAIVE, Attention, additive, gaussian_distance, make_softmax
from regard.bench.measure import TimedCall
from regard.bench.settings import GpuBench, WatchBench
from regard.bench.watch import build_gpt2

COMPILED = "torch.compile"
FOUR = ("received", "entropy", "argmax", "top:8")
BACKENDS = {
    "SDPA, cuDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA, flash": SDPBackend.FLASH_ATTENTION,
    "SDPA, efficient": SDPBackend.EFFICIENT_ATTENTION,
}
CHECKED_ROWS = 8  # of the first and of the last sequence
CHUNK = 2**26  # float64 weights at once


class Goal(NamedTuple):
    """What is to be reached: a time in milliseconds, or one relative to the fastest baseline, and a peak of memory."""

    value: float
    unit: Literal["ms", "x"]
    megabytes: float | None = None


@dataclass(frozen=True)
class Candidate:
    """One way to compute a case."""

    name: str
    prepare: Callable[[], TimedCall]  # compiles or imports what the call requires
    check: Callable[[Any], float] | None = None  # the relative error of the call's result
    ours: bool = False
    baseline: bool = True  # whether times are relative to it, if it is the fastest
    is_compiled: bool = False


@dataclass(frozen=True)
class GpuCase:
    """One line of the table and its peers."""

    name: str
    build: Callable[[GpuBench], list[Candidate]]
    reach: Goal | None = None
    aim: Goal | None = None
    short: bool = False  # several calls are timed together, as they come


def draw(settings: GpuBench, *shape: int) -> Tensor:
    """Return random numbers, new in each run."""
    return torch.randn(shape, device=settings.device).to(getattr(torch, settings.dtype))


def find_error(actual: Tensor, expected: Tensor) -> float:
    """Return the relative error of a tensor."""
    difference = torch.linalg.vector_norm(actual.double() - expected.double())
    return (difference / torch.linalg.vector_norm(expected.double())).item()


def check_attention(
    result: Any, formula: Attention, score: nn.Module | None, inputs: Sequence[Tensor], gradient: Tensor | None = None
) -> float:
    """Return the largest error of some rows of the output, and of the gradient of their queries if there is one."""
    output, of_query = result if isinstance(result, tuple) else (result, None)
    exact_score = None if score is None else copy.deepcopy(score).double()
    query, keys, values = (tensor.detach().flatten(0, -3) for tensor in inputs)
    picked = torch.linspace(0, query.shape[-2] - 1, CHECKED_ROWS).long().unique().to(query.device)
    errors = []
    for sequence in {0, len(query) - 1}:
        rows = query[sequence, picked].double().requires_grad_()
        with torch.enable_grad():
            expected = formula(exact_score, rows, keys[sequence].double(), values[sequence].double())
        errors.append(find_error(output.flatten(0, -3)[sequence, picked], expected))
        if of_query is not None and gradient is not None:
            rows_gradient = gradient.flatten(0, -3)[sequence, picked].double()
            (of_rows,) = torch.autograd.grad(expected, rows, rows_gradient)
            errors.append(find_error(of_query.flatten(0, -3)[sequence, picked], of_rows))
    return max(errors)


def run_forward(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> TimedCall:
    """Return a function that computes the output without gradient."""
    return torch.no_grad()(partial(function, *inputs))


def run_backward(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor, parameters: Sequence[Tensor] = ()
) -> TimedCall:
    """Return a function that computes the output and the gradients of the inputs."""

    def call() -> tuple[Tensor, Tensor]:
        output = function(*inputs)
        of_query, *_ = torch.autograd.grad(output, [*inputs, *parameters], gradient, allow_unused=True)
        return output.detach(), of_query

    return call


def build_functions(
    settings: GpuBench,
    score: nn.Module,
    formula: Attention,
    shape: tuple[int, ...],
    *,
    backward: bool = False,
    compares_gradient: bool = True,
) -> list[Candidate]:
    """Compare `attend` with the formula in plain PyTorch, eager and compiled."""
    inputs = [draw(settings, *shape).requires_grad_(backward) for _ in range(3)]
    gradient = draw(settings, *shape) if backward else None
    parameters = [parameter for parameter in score.parameters() if parameter.requires_grad]

    def prepare(function: Callable[..., Tensor]) -> TimedCall:
        if gradient is None:
            return run_forward(function, inputs)
        return run_backward(function, inputs, gradient, parameters)

    def check(result: Any) -> float:
        return check_attention(result, formula, score, inputs, gradient if compares_gradient else None)

    plain = partial(formula, score)
    return [
        Candidate("attend", lambda: prepare(partial(attend, score=score)), check, ours=True),
        Candidate(NAIVE, lambda: prepare(plain), check),
        Candidate(
            COMPILED, lambda: prepare(torch.compile(plain, dynamic=False)), check, is_compiled=True
        ),
    ]  # fmt: skip


def build_additive(settings: GpuBench, *, backward: bool = False) -> list[Candidate]:
    """Compare additive attention."""
    score = Additive(settings.width, settings.width, hidden=settings.width)
    score = score.to(settings.device, getattr(torch, settings.dtype))
    shape = settings.sequences, settings.short_length, settings.width
    return build_functions(settings, score, additive, shape, backward=backward)


def measure_distances(query: Tensor, keys: Tensor) -> Tensor:
    """Return the distance of each pair, at least in float32."""
    norms = [tensor.to(torch.promote_types(tensor.dtype, torch.float32)).square().sum(-1) for tensor in (query, keys)]
    squared = norms[0][..., :, None] + norms[1][..., None, :] - 2 * (query @ keys.mT)
    return squared.clamp_min(1e-12).sqrt()


def average_by_kernel(kernel: Callable[[Tensor], Tensor]) -> Attention:
    """Return attention by a kernel of the distance in units of its width, with the whole matrix in memory."""

    def attention(score: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        weights = kernel(measure_distances(query, keys) / score.width.to(query.device))
        return (weights / weights.sum(-1, keepdim=True).clamp_min(1e-6)).to(values.dtype) @ values

    return attention


KERNELS: dict[str, tuple[type[nn.Module], Attention]] = {
    "boxcar": (Boxcar, average_by_kernel(lambda distances: (distances <= 1).to(distances.dtype))),
    "epanechnikov": (Epanechnikov, average_by_kernel(lambda distances: (1 - distances).clamp_min(0))),
}


def build_kernel(settings: GpuBench, *, name: str, backward: bool = False) -> list[Candidate]:
    """Compare attention with a kernel of finite support, in which about half of the pairs are."""
    kind, formula = KERNELS[name]
    score = kind(math.sqrt(2 * settings.width)).to(settings.device)
    shape = 1, settings.heads, settings.kernel_length, settings.width
    return build_functions(settings, score, formula, shape, backward=backward, compares_gradient=name != "boxcar")


DOT: Attention = make_softmax(DOT_PRODUCTS["scaled_dot"])


def iter_sdpa(
    inputs: Sequence[Tensor], *, is_causal: bool = False, gradient: Tensor | None = None, checked: bool = True
) -> Iterator[Candidate]:
    """Yield torch's fused attention as it chooses itself, and by each of its GPU backends."""
    attention = partial(scaled_dot_product_attention, is_causal=is_causal)

    def check(result: Any) -> float:
        return check_attention(result, DOT, None, inputs, gradient)

    def prepare(backend: SDPBackend | None) -> TimedCall:
        def attend_by_backend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            with nullcontext() if backend is None else sdpa_kernel(backend):
                return attention(query, keys, values)

        function = attention if backend is None else attend_by_backend
        return run_forward(function, inputs) if gradient is None else run_backward(function, inputs, gradient)

    for name, backend in {"SDPA": None, **BACKENDS}.items():
        yield Candidate(name, partial(prepare, backend), check if checked and not is_causal else None)


def build_attend(settings: GpuBench, *, backward: bool = False) -> list[Candidate]:
    """Compare a short call of `attend` with torch's fused attention."""
    shape = 1, settings.heads, settings.short_length, settings.width
    inputs = [draw(settings, *shape).requires_grad_(backward) for _ in range(3)]
    gradient = draw(settings, *shape) if backward else None
    call = run_forward(attend, inputs) if gradient is None else run_backward(attend, inputs, gradient)
    check = partial(check_attention, formula=DOT, score=None, inputs=inputs, gradient=gradient)
    return [Candidate("attend", lambda: call, check, ours=True), *iter_sdpa(inputs, gradient=gradient)]


def draw_heads(settings: GpuBench, heads: int, length: int) -> list[Tensor]:
    """Return queries, keys and values of some heads."""
    return [draw(settings, 1, heads, length, settings.width) for _ in range(3)]


def build_gaussian(settings: GpuBench) -> list[Candidate]:
    """Compare a Gaussian kernel with a dot product without one, and with FlexAttention."""
    inputs = draw_heads(settings, settings.heads, settings.length)
    score = Gaussian(math.sqrt(settings.width))
    check = partial(check_attention, formula=gaussian_distance, score=score, inputs=inputs)

    def prepare_flex() -> TimedCall:
        flex = torch.compile(import_module("torch.nn.attention.flex_attention").flex_attention, dynamic=False)
        query, keys, values = inputs
        key_bias = keys.float().square().sum(-1) / (-2 * settings.width)

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, col: Tensor) -> Tensor:
            return score + key_bias[batch, head, col]

        return run_forward(
            lambda *tensors: flex(*tensors, score_mod=add_bias, scale=1 / settings.width), (query, keys, values)
        )

    return [
        Candidate("attend", lambda: run_forward(partial(attend, score=score), inputs), check, ours=True),
        *iter_sdpa(inputs),
        Candidate("FlexAttention, key bias", prepare_flex, check, baseline=False, is_compiled=True),
    ]


def build_reductions(settings: GpuBench, *, names: tuple[str, ...], is_causal: bool = False) -> list[Candidate]:
    """Compare reductions of weights with torch's fused attention, which computes none."""
    inputs = draw_heads(settings, settings.heads, settings.length)
    query, keys, values = inputs
    rule = causal() if is_causal else None
    weights = attend(query, keys, values, visible=rule, return_weights=True)[1]
    check = partial(check_reductions, names=names, query=query, keys=keys, is_causal=is_causal)
    peers = list(iter_sdpa(inputs, is_causal=is_causal, checked=False))
    if names == FOUR[:1]:
        peers.append(build_column_sums(query, keys, is_causal))
    if names == FOUR[2:3] and not is_causal:
        peers.append(build_flex_scores(inputs))
    if names == FOUR[:3] and not is_causal:
        peers.append(build_compiled_reductions(query, keys))
    return [Candidate("weights", lambda: lambda: weights.reduce(*names), check, ours=True), *peers]


def build_column_sums(query: Tensor, keys: Tensor, is_causal: bool) -> Candidate:
    """Build the peer for the sums of columns: the package flash-colreduce."""

    def prepare() -> TimedCall:
        reduce = import_module("flash_colreduce").flash_colreduce
        return lambda: reduce(query, keys, reduction="sum", is_causal=is_causal)

    def check(result: Tensor) -> float:
        return check_reductions([result], ("received",), query, keys, is_causal)

    return Candidate("flash-colreduce, received", prepare, check, baseline=False)


def build_flex_scores(inputs: Sequence[Tensor]) -> Candidate:
    """Build the peer for what FlexAttention reports of each row: the log-sum-exp and the largest score."""

    def prepare() -> TimedCall:
        module = import_module("torch.nn.attention.flex_attention")
        flex = torch.compile(module.flex_attention, dynamic=False)
        request = module.AuxRequest(lse=True, max_scores=True)
        return run_forward(lambda *tensors: flex(*tensors, return_aux=request), inputs)

    def check(result: tuple[Tensor, Any]) -> float:
        return check_attention(result[0], DOT, None, inputs)

    return Candidate("FlexAttention, lse and max", prepare, check, baseline=False, is_compiled=True)


def build_compiled_reductions(query: Tensor, keys: Tensor) -> Candidate:
    """Build the peer that holds the whole matrix, compiled."""

    def reduce(query: Tensor, keys: Tensor) -> Any:
        weights = torch.softmax(query.shape[-1] ** -0.5 * query @ keys.mT, -1, dtype=torch.float32)
        return weights.sum(-2), torch.special.entr(weights).sum(-1), weights.argmax(-1)

    check = partial(check_reductions, names=FOUR[:3], query=query, keys=keys, is_causal=False)

    def prepare() -> TimedCall:
        return run_forward(torch.compile(reduce, dynamic=False), (query, keys))

    return Candidate(f"{COMPILED} of the matrix", prepare, check, baseline=False, is_compiled=True)


def check_reductions(
    results: Sequence[Any], names: Sequence[str], query: Tensor, keys: Tensor, is_causal: bool
) -> float:
    """Return the largest error of reductions of the first head; for keys, that of their weights."""
    given = dict(zip(names, results, strict=True))
    rows, cols = query[0, 0].double(), keys[0, 0].double()
    n, m = len(rows), len(cols)
    exact: dict[str, list[Tensor]] = {"entropy": [], "largest": [], "of argmax": [], "top": [], "of top": []}
    received = rows.new_zeros(m)
    for chunk in iter_blocks(range(n), max(1, CHUNK // m)):
        scores = rows[chunk] @ cols.mT * query.shape[-1] ** -0.5
        if is_causal:
            positions = torch.arange(m, device=query.device)
            scores.masked_fill_(positions > positions[chunk, None], -math.inf)
        weights = torch.softmax(scores, -1)
        received += weights.sum(0)
        exact["entropy"].append(torch.special.entr(weights).sum(-1))
        if "argmax" in given:
            exact["largest"].append(weights.amax(-1))
            exact["of argmax"].append(weights.gather(-1, given["argmax"][0, 0, chunk, None])[:, 0])
        if "top:8" in given:
            top_weights, top_keys = (part[0, 0, chunk] for part in given["top:8"])
            exact["top"].append(weights.topk(top_weights.shape[-1], -1).values)
            exact["of top"].append(weights.gather(-1, top_keys.clamp_min(0)) * (top_keys >= 0))
    joined = {name: torch.cat(parts) for name, parts in exact.items() if parts}
    errors = []
    if "received" in given:
        errors.append(find_error(given["received"][0, 0], received))
    if "entropy" in given:
        errors.append(find_error(given["entropy"][0, 0], joined["entropy"]))
    if "argmax" in given:
        errors.append(find_error(joined["of argmax"], joined["largest"]))
    if "top:8" in given:
        errors += [find_error(part, joined["top"]) for part in (given["top:8"][0][0, 0], joined["of top"])]
    return max(errors)


def build_long(settings: GpuBench, *, reduces: bool) -> list[Candidate]:
    """Compare one long head: attention, or attention and all four reductions, with torch's fused attention."""
    inputs = draw_heads(settings, 1, settings.long_length)
    check_output = partial(check_attention, formula=DOT, score=None, inputs=inputs)

    @torch.no_grad()
    def attend_and_reduce() -> tuple[Tensor, tuple[Any, ...]]:
        query, keys, values = inputs
        output, weights = attend(query, keys, values, return_weights=True)
        return output, weights.reduce(*FOUR)

    def check(result: tuple[Tensor, tuple[Any, ...]]) -> float:
        output, reductions = result
        return max(check_output(output), check_reductions(reductions, FOUR, inputs[0], inputs[1], False))

    ours = Candidate("attend and all four", lambda: attend_and_reduce, check, ours=True)
    if not reduces:
        ours = Candidate("attend", lambda: run_forward(attend, inputs), check_output, ours=True)
    return [ours, *iter_sdpa(inputs)]


def build_watched(settings: GpuBench, *, keep: str) -> list[Candidate]:
    """Compare a watched GPT-2 of Transformers with an unwatched one; the error is that of its states."""
    model_settings = replace(
        WatchBench(), length=settings.length, layers=settings.layers, dtype=settings.dtype, device=settings.device
    )
    model = build_gpt2(model_settings)
    model.set_attn_implementation("sdpa")
    tokens = torch.randint(0, 1000, (1, settings.length), device=settings.device)

    @torch.no_grad()
    def run_model() -> Tensor:
        return model(tokens).last_hidden_state

    @torch.no_grad()
    def run_watched() -> tuple[Tensor, Any]:
        with watch(model, keep) as weights:
            return model(tokens).last_hidden_state, weights

    expected = run_model()
    return [
        Candidate("watched", lambda: run_watched, lambda result: find_error(result[0], expected), ours=True),
        Candidate("unwatched", lambda: run_model),
    ]


def list_reduction_cases() -> Iterator[GpuCase]:
    """Yield the cases of reductions."""
    names = {"received": FOUR[:1], "entropy": FOUR[1:2], "argmax": FOUR[2:3], "three": FOUR[:3]}
    goals = {
        False: {"received": (0.85, 0.7), "entropy": (0.65, 0.5), "argmax": (0.5, 0.45), "three": (1.15, 1.0)},
        True: {"received": (1.1, 1.0), "entropy": (0.8, 0.7), "argmax": (0.7, 0.6), "three": (1.4, 1.1)},
    }
    for is_causal, of_names in goals.items():
        for name, values in of_names.items():
            reach, aim = (Goal(value, "x") for value in values)
            build = partial(build_reductions, names=names[name], is_causal=is_causal)
            yield GpuCase(f"{name}-causal" if is_causal else name, build, reach, aim)
    yield GpuCase("top8", partial(build_reductions, names=FOUR[3:]), Goal(1.4, "x"), Goal(1.0, "x"))
    yield GpuCase("all-four", partial(build_reductions, names=FOUR), Goal(2.2, "x"), Goal(1.5, "x"))


CASES = {
    case.name: case
    for case in (
        GpuCase("additive", build_additive, Goal(1.3, "ms", 48), Goal(1.0, "ms")),
        GpuCase("additive-backward", partial(build_additive, backward=True), Goal(7.0, "ms", 100), Goal(4.0, "ms")),
        *list_reduction_cases(),
        GpuCase("gaussian", build_gaussian, Goal(1.15, "x", 48), Goal(1.02, "x")),
        GpuCase("attend", build_attend, Goal(1.1, "x"), Goal(1.0, "x"), short=True),
        GpuCase("attend-backward", partial(build_attend, backward=True), Goal(1.1, "x"), Goal(1.0, "x"), short=True),
        *(
            GpuCase(
                f"{name}-backward" if backward else name,
                partial(build_kernel, name=name, backward=backward),
                Goal(0.2, "x"),
            )
            for name in KERNELS
            for backward in (False, True)
        ),
        GpuCase("long", partial(build_long, reduces=False)),
        GpuCase("long-all-four", partial(build_long, reduces=True)),
        GpuCase("watch-top8", partial(build_watched, keep="top:8"), Goal(1.8, "x"), Goal(1.4, "x")),
        GpuCase("watch-received", partial(build_watched, keep="received"), Goal(1.4, "x"), Goal(1.2, "x")),
    )
}
"""All cases by name, in the order of the table."""
