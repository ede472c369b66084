"""Attention with boxcar and Epanechnikov kernels by Triton: distances by matrix units, by differences near the edge.

In half precision, programs without that edge come first and mark the queries that require it; others compute these.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernel_scores import Boxcar, Epanechnikov
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.kernels.sdpa import to_four_axes
from regard.attention.kernels.tiled import TILED
from regard.attention.kernels.triton.support import (
    LAUNCH_OPTIONS,
    PairArguments,
    View,
    get_call_reason,
    get_max_width,
    pad_width,
    prepare_rule,
    run_on_device,
    view,
)
from regard.attention.normalizers import KernelSum

ROWS = 64  # of a program that computes a number for each


class Points(NamedTuple):
    """Points as programs take them: a `View` and their squared norms."""

    tensor: Float[Tensor, "batch heads positions width"]
    batch: int
    head: int
    row: int
    col: int
    norms: Float[Tensor, "*batch positions"]  # squared, less the center
    length: int


class Side(NamedTuple):
    """The queries or the keys, and the features of each."""

    points: Points
    features: View  # (batch, heads, positions, features)


class Reaches(NamedTuple):
    """The widths of the kernel as programs take them: those of all sequences, or one."""

    tensor: Float[Tensor, "..."]
    step: int  # from one sequence to the next


class Arguments(NamedTuple):
    """What the programs of one call share."""

    queries: Side
    keys: Side
    pairs: PairArguments
    center: Float[Tensor, "*batch width"] | None  # of float32 points
    reaches: Reaches
    sizes: tuple[int | float, ...]  # heads, the widths of points and features, and the bounds of rounding errors
    sequences: int  # the number of matrices
    is_half: bool  # whether programs for half precision come first
    whole: bool  # whether tiles are as wide as points and features
    options: dict[str, Any]

    @staticmethod
    def build(
        call: Call, values: Tensor, gradient: Tensor | None = None, norms: tuple[Tensor, ...] | None = None
    ) -> Arguments:
        """Prepare the tensors of a call, and in backward the gradient of its output, where norms are known.

        Those of half precision are computed by programs.
        """
        shape, score = call.terms.shape, call.terms.score
        assert isinstance(score, (Boxcar, Epanechnikov))
        center = find_center(call.keys, shape)
        query, keys, values = to_four_axes(shape, call.query, call.keys, values)
        if norms is None:
            norms = make_norms(call, center)
        features = query if gradient is None else to_four_axes(shape, gradient)[0]
        (_, heads, n, width), (_, _, m, value_width) = query.shape, values.shape
        padded, padded_values, precise = pad_width(width), pad_width(value_width), center is not None
        pairs, options = prepare_rule(call)
        options |= {
            "WIDTH": padded,
            "FEATURES": padded_values,
            "POWER": score.power if isinstance(score, Epanechnikov) else 0,
            "NORMALIZED": isinstance(call.terms.normalizer, KernelSum),
            "PRECISION": "tf32x3" if precise else "tf32",
        }
        steps = 16 + padded / 4 if precise else 12 + padded / 8
        return Arguments(
            Side(Points(*view(query), norms[0], n), view(features)),
            Side(Points(*view(keys), norms[1], m), view(values)),
            pairs,
            center,
            find_reaches(call),
            (heads, width, value_width, steps * 2.0**-24, 2.0**-17 if precise else 2.0**-10),
            math.prod(shape[:-2]),
            not precise,
            width == padded and value_width == padded_values,
            options,
        )


def find_reaches(call: Call) -> Reaches:
    """Return the widths of the kernel on the device of the queries."""
    width, device = call.parameters[0], call.query.device
    if width.numel() > 1:
        return Reaches(width.to(device, non_blocking=True).expand(*call.terms.shape[:-2], 1, 1).contiguous(), 1)
    if width.device != device:  # to fill a number is faster than to copy it
        width = torch.full((), width.item(), dtype=width.dtype, device=device)
    return Reaches(width, 0)


def find_center(
    keys: Float[Tensor, "*keys_batch keys width"], shape: torch.Size
) -> Float[Tensor, "*batch width"] | None:
    """Return the mean of the keys, from which float32 distances lose fewer digits; None in half precision."""
    if keys.dtype != torch.float32:
        return None
    return keys.mean(-2).expand(*shape[:-2], -1).contiguous()


def make_norms(call: Call, center: Float[Tensor, "*batch width"] | None) -> tuple[Tensor, ...]:
    """Return the squared norms of queries and keys, less the center; without a center only memory for them."""
    if center is not None:
        return tuple((points - center[..., None, :]).square_().sum(-1) for points in (call.query, call.keys))
    *batch, n, m = call.terms.shape
    queries = torch.empty((*batch, n), dtype=torch.float32, device=call.query.device)
    return queries, torch.empty_like(queries) if m == n else queries.new_empty((*batch, m))


class Extra(NamedTuple):
    """What backward takes from forward besides the result."""

    norms: tuple[Tensor, ...]  # of queries and keys, squared
    doubts: Tensor  # of queries: 0 if computed by products alone, 1 if checked once more, 2 if by differences
    doubtful: Tensor | None = None  # in half precision whether any query of a sequence is in doubt
    inverses: Float[Tensor, "*batch queries"] | None = None  # then one over its total; zero if it is in doubt


@run_on_device
def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute the output, and the sum of the kernel's values in each row."""
    assert TILED.forward is not None
    if values.shape[-1] > get_max_width(values.dtype):
        return TILED.forward(call, values)
    arguments = Arguments.build(call, values)
    (*batch, n, _), device = call.terms.shape, values.device
    normalized = arguments.options["NORMALIZED"]
    output = torch.empty((*batch, n, values.shape[-1]), dtype=values.dtype, device=device)
    totals = torch.empty((*batch, n, 1), dtype=torch.float32, device=device)
    if not normalized:
        totals.fill_(call.terms.normalizer.blind)
    norms = arguments.queries.points.norms, arguments.keys.points.norms
    extra = Extra(norms, torch.empty((*batch, n), dtype=torch.int8, device=device))
    if arguments.is_half:
        doubtful = torch.empty(arguments.sequences, dtype=torch.int8, device=device)
        extra = Extra(*extra[:2], doubtful, torch.empty_like(norms[0]))
        attend_by_products(arguments, output, totals, extra)
    attend_to_keys(arguments, output, totals, extra)
    return Result(output, totals, None if normalized else torch.zeros_like(output), extra=extra)


def attend_by_products(arguments: Arguments, output: Tensor, totals: Tensor, extra: Extra) -> None:
    """Compute all queries in half precision, and which are in doubt."""
    from regard.attention.kernels.triton.distance_half_programs import attend_by_products, store_norms

    heads, width, *_ = arguments.sizes
    count = -(-arguments.keys.points.length // ROWS)
    store_norms[(count * arguments.sequences,)](
        arguments.keys.points, extra.doubtful, heads, width, count,
        OWN=ROWS, WIDTH=arguments.options["WIDTH"], num_warps=4, **LAUNCH_OPTIONS,
    )  # fmt: skip
    blocks = choose_half_blocks(arguments, "forward")
    count = -(-arguments.queries.points.length // blocks.own)
    attend_by_products[(count * arguments.sequences,)](
        arguments.queries.points,
        *arguments.keys,
        *arguments.pairs,
        arguments.reaches,
        output,
        totals,
        extra.inverses,
        extra.doubts,
        extra.doubtful,
        *arguments.sizes,
        count,
        OWN=blocks.own,
        OTHER=blocks.other,
        WHOLE=arguments.whole,
        **arguments.options,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
        **LAUNCH_OPTIONS,
    )


def attend_to_keys(arguments: Arguments, output: Tensor, totals: Tensor, extra: Extra) -> None:
    """Compute all queries, in half precision those in doubt."""
    from regard.attention.kernels.triton.distance_programs import attend_to_keys

    own, other, warps = choose_blocks(arguments)
    blocks = -(-arguments.queries.points.length // own)
    attend_to_keys[(blocks * arguments.sequences,)](
        arguments.queries.points,
        *arguments.keys,
        *arguments.pairs,
        arguments.center,
        arguments.reaches,
        output,
        totals,
        extra.doubts,
        *arguments.sizes,
        blocks,
        OWN=own,
        OTHER=other,
        DOUBTFUL=arguments.is_half,
        CENTERED=arguments.center is not None,
        **arguments.options,
        num_warps=warps,
        num_stages=2,
        **LAUNCH_OPTIONS,
    )


@run_on_device
def backward(
    call: Call,
    values: Float[Tensor, "*values_batch keys width"],
    result: Result,
    gradient: Float[Tensor, "*batch queries width"],
    needs_grad: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of values, query, keys and the kernel's width; a bias has none here."""
    assert TILED.backward is not None
    if values.shape[-1] > get_max_width(values.dtype):
        return TILED.backward(call, values, result, gradient, needs_grad)
    needs_values, needs_query, needs_keys, _, needs_width = needs_grad
    moves = call.terms.score.differentiable
    arguments = Arguments.build(call, values, gradient, result.extra.norms)
    rows = prepare_rows(arguments, result, gradient, moves=moves)
    of_values = of_query = of_keys = of_reach = of_width = None
    if moves and (needs_query or needs_width or (arguments.is_half and needs_keys)):  # which may find further doubts
        of_query, _, of_reach = differentiate_side(arguments, rows, "queries", points=call.query, reach=needs_width)
    if needs_width and of_reach is not None:
        width = call.parameters[0]
        of_width = of_reach.sum(-1)[..., None, None].sum_to_size(width.shape).to(width.device) * width.sign()
    if needs_values or (moves and needs_keys):
        points = call.keys if moves and needs_keys else None
        of_keys, of_values, _ = differentiate_side(
            arguments, rows, "keys", points=points, values=values if needs_values else None
        )
    inputs = zip((values, call.query, call.keys), (of_values, of_query, of_keys), needs_grad, strict=False)
    gradients = [collect_gradient(tensor, total) if needs_this else None for tensor, total, needs_this in inputs]
    return *gradients, None, of_width


class Rows(NamedTuple):
    """What backward knows of each query; the last three only in half precision."""

    totals: Float[Tensor, "*batch queries 1"]  # what its weights were divided by
    deltas: Float[Tensor, "*batch queries"] | None  # the mean gradient of its weights, if points have gradients
    doubts: Tensor  # as in `Extra`
    output: Float[Tensor, "*batch queries width"] | None = None
    doubtful: Tensor | None = None  # whether any query of its sequence is in doubt
    inverses: Float[Tensor, "*batch queries"] | None = None  # one over its total; zero if it is in doubt


def prepare_rows(
    arguments: Arguments, result: Result, gradient: Float[Tensor, "*batch queries width"], *, moves: bool
) -> Rows:
    """Return what the programs of backward need to know of each query; only if `moves` its mean gradient.

    In half precision the program for the gradients of queries stores that.
    """
    totals, output, extra = result.statistic, result.output, result.extra
    assert totals is not None
    normalized = arguments.options["NORMALIZED"]
    if not normalized:
        totals = torch.ones_like(totals)
    if arguments.is_half:
        deltas = torch.empty_like(extra.inverses) if moves else None
        return Rows(totals, deltas, extra.doubts, output, extra.doubtful, extra.inverses)
    return Rows(totals, (gradient * output).sum(-1) if normalized else torch.zeros_like(totals), extra.doubts)


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def differentiate_side(
    arguments: Arguments,
    rows: Rows,
    side: Literal["queries", "keys"],
    *,
    points: Tensor | None = None,
    values: Tensor | None = None,
    reach: bool = False,
) -> Gradients:
    """Return the gradients of the points of a side, of values, and of the kernel's width, where they are needed.

    Those of points and values have all of *batch; they are in the type of their tensor if it has that, too.
    """
    norms = (arguments.queries if side == "queries" else arguments.keys).points.norms
    of_points, of_values = (make_gradient(tensor, norms.shape) for tensor in (points, values))
    gradients = of_points, of_values, torch.empty_like(norms) if reach else None
    if arguments.is_half:
        differentiate_by_products(arguments, rows, side, gradients)
    differentiate(arguments, rows, side, gradients)
    return gradients


def differentiate_by_products(
    arguments: Arguments, rows: Rows, side: Literal["queries", "keys"], gradients: Gradients
) -> None:
    """Compute gradients in half precision from queries that are not in doubt; those of queries find further doubts."""
    from regard.attention.kernels.triton.distance_half_programs import differentiate_by_products

    own, other, options = prepare_sides(arguments, side, gradients)
    blocks = choose_half_blocks(arguments, side)
    count = -(-own.points.length // blocks.own)
    differentiate_by_products[(count * arguments.sequences,)](
        *own,
        *other,
        *arguments.pairs,
        arguments.reaches,
        rows.output,
        rows.inverses,
        rows.deltas,
        rows.doubts,
        rows.doubtful,
        *gradients,
        *arguments.sizes,
        count,
        OWN=blocks.own,
        OTHER=blocks.other,
        WHOLE=arguments.whole,
        **options,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
        **LAUNCH_OPTIONS,
    )


def differentiate(arguments: Arguments, rows: Rows, side: Literal["queries", "keys"], gradients: Gradients) -> None:
    """Compute gradients, in half precision from queries in doubt."""
    from regard.attention.kernels.triton.distance_programs import differentiate

    own, other, options = prepare_sides(arguments, side, gradients)
    own_size, other_size, warps = choose_blocks(arguments, backward=True)
    count = -(-own.points.length // own_size)
    differentiate[(count * arguments.sequences,)](
        *own,
        *other,
        *arguments.pairs,
        arguments.center,
        arguments.reaches,
        rows.totals,
        rows.deltas,
        rows.doubts,
        rows.doubtful,
        *gradients,
        *arguments.sizes,
        count,
        OWN=own_size,
        OTHER=other_size,
        DOUBTFUL=arguments.is_half,
        CENTERED=arguments.center is not None,
        **{name: option for name, option in options.items() if name != "NORMALIZED"},
        num_warps=warps,
        num_stages=2,
        **LAUNCH_OPTIONS,
    )


def prepare_sides(
    arguments: Arguments, side: Literal["queries", "keys"], gradients: Gradients
) -> tuple[Side, Side, dict[str, Any]]:
    """Return a side, the other one, and options that name the gradients that the programs of backward store."""
    own, other = arguments.queries, arguments.keys
    if side == "keys":
        own, other = other, own
    needs = dict(zip(("POINTS", "VALUES", "REACH"), (tensor is not None for tensor in gradients), strict=True))
    return own, other, arguments.options | needs | {"OF_KEYS": side == "keys"}


def make_gradient(tensor: Tensor | None, shape: torch.Size) -> Tensor | None:
    """Return a new tensor for a gradient, in float32 if several parts of it will be added."""
    if tensor is None:
        return None
    dtype = tensor.dtype if tensor.shape[:-1] == shape else torch.float32
    return torch.empty((*shape, tensor.shape[-1]), dtype=dtype, device=tensor.device)


def collect_gradient(tensor: Tensor, total: Float[Tensor, "*batch positions width"] | None) -> Tensor:
    """Return a gradient with all of *batch in the shape and type of its tensor; zeros where nothing depends on it."""
    if total is None:
        return torch.zeros_like(tensor)
    return total if total.shape == tensor.shape else total.sum_to_size(tensor.shape).to(tensor.dtype)


def choose_blocks(arguments: Arguments, *, backward: bool = False) -> tuple[int, int, int]:
    """Return the own and the other points of a block, and its warps: as many as registers hold."""
    width = max(arguments.options["WIDTH"], arguments.options["FEATURES"])
    if arguments.queries.points.tensor.dtype == torch.float32:
        blocks = [(64, 32, 8), (64, 16, 8)] if not backward else [(32, 32, 8), (16, 16, 8)]
        return blocks[width > 64]
    if width <= 64 and not backward:
        return 64, 32, 4
    return (32, 16, 8) if width > 128 and backward else (64, 32, 8)


class Blocks(NamedTuple):
    """The own and the other points of a block, its warps, and how many blocks are loaded ahead."""

    own: int
    other: int
    warps: int
    stages: int


def choose_half_blocks(arguments: Arguments, program: Literal["forward", "queries", "keys"]) -> Blocks:
    """Return the blocks of a program for half precision: as many as registers and shared memory hold."""
    width = max(arguments.options["WIDTH"], arguments.options["FEATURES"])
    is_boxcar = arguments.options["POWER"] == 0
    if width <= 64 and program == "forward":
        return Blocks(128, 64 if is_boxcar else 32, 8, 3)
    if width <= 64 and is_boxcar:
        return Blocks(64, 64, 4, 3)
    if width <= 64:
        narrow = arguments.queries.points.tensor.dtype == torch.bfloat16 and not arguments.options["BIAS"]
        return Blocks(64, 64, 4, 2) if narrow else Blocks(128, 32, 8, 2)
    if width <= 128:
        return Blocks(128, 64, 8, 2) if program == "forward" else Blocks(64, 32, 8, 2)
    return Blocks(64, 32, 8, 2) if program == "forward" else Blocks(32, 16, 8, 2)


def unsupported_reason(call: Call, job: str) -> str | None:
    """Return why the programs do not support a call; None if they do."""
    if type(call.terms.score) not in (Boxcar, Epanechnikov):
        return f"{type(call.terms.score).__name__} is neither a boxcar nor an Epanechnikov kernel"
    if call.terms.dropout:
        return "it does not support dropout"
    if call.bias is not None and call.bias.requires_grad:
        return "it has no gradient for a bias"
    if call.query.shape[-1] > (max_width := get_max_width(call.query.dtype)):
        return f"it supports widths up to {max_width} in {str(call.query.dtype).removeprefix('torch.')}"
    return get_call_reason(call)


TRITON_DISTANCE = AttentionKernel(
    "triton_distance",
    forms=("distance",),
    unsupported_reason=unsupported_reason,
    forward=forward,
    backward=backward,
)
