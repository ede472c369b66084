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


class Arguments(NamedTuple):
    """What the programs of one call share."""

    queries: Side
    keys: Side
    pairs: PairArguments
    center: Float[Tensor, "*batch width"]
    reaches: Float[Tensor, "*batch"]  # the widths of the kernel
    options: dict[str, Any]

    @staticmethod
    def build(
        call: Call, values: Tensor, gradient: Tensor | None = None, norms: tuple[Tensor, ...] | None = None
    ) -> Arguments:
        """Prepare the tensors of a call, and in backward the gradient of its output, where norms are known."""
        shape = call.terms.shape
        batch, score = shape[:-2], call.bind_parameters().terms.score
        assert isinstance(score, (Boxcar, Epanechnikov))
        center = find_center(call.keys)
        query, keys, values = to_four_axes(shape, call.query, call.keys, values)
        if norms is None and center is not None:
            norms = tuple(square_norms(points, center, batch) for points in (call.query, call.keys))
        elif norms is None:
            norms = tuple(square_half_norms(points, batch) for points in (query, keys))
        features = query if gradient is None else to_four_axes(shape, gradient)[0]
        pairs, options = prepare_rule(call)
        width = query.shape[-1]
        options |= {
            "WIDTH": pad_width(width),
            "FEATURES": pad_width(values.shape[-1]),
            "POWER": score.power if isinstance(score, Epanechnikov) else 0,
            "CENTERED": center is not None,
            "PRECISION": "tf32x3" if query.dtype == torch.float32 else "tf32",
        }
        return Arguments(
            Side(Points(*view(query), norms[0], shape[-2]), view(features)),
            Side(Points(*view(keys), norms[1], shape[-1]), view(values)),
            pairs,
            query.new_empty(1) if center is None else center.expand(*batch, 1, width).contiguous(),
            score.width.abs().float().to(query.device, non_blocking=True).expand(*batch, 1, 1).contiguous(),
            options,
        )

    @property
    def sizes(self) -> tuple[int | float, ...]:
        """The heads, the widths of points and features, and the bounds of rounding errors."""
        points = self.queries.points.tensor
        precise = points.dtype == torch.float32
        steps = 16 + self.options["WIDTH"] / 4 if precise else 12 + self.options["WIDTH"] / 8
        tolerance = 2.0**-17 if precise else 2.0**-10
        return points.shape[1], points.shape[-1], self.keys.features.tensor.shape[-1], steps * 2.0**-24, tolerance

    @property
    def sequences(self) -> int:
        """The number of matrices."""
        return math.prod(self.queries.points.tensor.shape[:2])

    @property
    def is_half(self) -> bool:
        """Whether programs for half precision come first."""
        return self.queries.points.tensor.dtype != torch.float32

    @property
    def whole(self) -> bool:
        """Whether tiles are as wide as points and features."""
        widths = self.queries.points.tensor.shape[-1], self.keys.features.tensor.shape[-1]
        return widths == (self.options["WIDTH"], self.options["FEATURES"])


def find_center(keys: Float[Tensor, "*keys_batch keys width"]) -> Float[Tensor, "*keys_batch 1 width"] | None:
    """Return the mean of the keys, from which float32 distances lose fewer digits; None in half precision."""
    return keys.mean(-2, keepdim=True) if keys.dtype == torch.float32 else None


def square_norms(
    points: Float[Tensor, "*points_batch positions width"], center: Tensor, batch: torch.Size
) -> Float[Tensor, "*batch positions"]:
    """Return squared norms, less the center."""
    return (points - center).square_().sum(-1).expand(*batch, -1).contiguous()


def square_half_norms(
    points: Float[Tensor, "batch heads positions width"], batch: torch.Size
) -> Float[Tensor, "*batch positions"]:
    """Return squared norms of points in half precision, exact where float32 can be."""
    from regard.attention.kernels.triton.distance_half_programs import store_norms

    heads, length, width = points.shape[1:]
    norms = torch.empty((*batch, length), dtype=torch.float32, device=points.device)
    blocks = -(-length // ROWS)
    store_norms[(blocks * math.prod(points.shape[:2]),)](
        Points(*view(points), norms, length), heads, width, blocks, OWN=ROWS, WIDTH=pad_width(width)
    )
    return norms


class Extra(NamedTuple):
    """What backward takes from forward besides the result."""

    doubts: Tensor  # 0 for queries computed by products alone, 2 for those whose distances must be differences
    norms: tuple[Tensor, ...]  # of queries and keys, squared


@run_on_device
def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute the output, and the sum of the kernel's values in each row."""
    assert TILED.forward is not None
    if values.shape[-1] > get_max_width(values.dtype):
        return TILED.forward(call, values)
    arguments = Arguments.build(call, values)
    *batch, n, _ = call.terms.shape
    normalized = isinstance(call.terms.normalizer, KernelSum)
    output = values.new_empty(*batch, n, values.shape[-1])
    totals = torch.empty((*batch, n, 1), dtype=torch.float32, device=values.device)
    if not normalized:
        totals.fill_(call.terms.normalizer.blind)
    doubts = torch.empty((*batch, n), dtype=torch.int8, device=values.device)
    if arguments.is_half:
        attend_by_products(arguments, output, totals, doubts, normalized=normalized)
    attend_to_keys(arguments, output, totals, doubts, normalized=normalized)
    extra = Extra(doubts, (arguments.queries.points.norms, arguments.keys.points.norms))
    return Result(output, totals, None if normalized else torch.zeros_like(output), extra=extra)


def attend_by_products(
    arguments: Arguments, output: Tensor, totals: Tensor, doubts: Tensor, *, normalized: bool
) -> None:
    """Compute all queries in half precision, and which are in doubt."""
    from regard.attention.kernels.triton.distance_half_programs import attend_by_products

    blocks = choose_half_blocks(arguments, "forward")
    count = -(-arguments.queries.points.length // blocks.own)
    attend_by_products[(count * arguments.sequences,)](
        arguments.queries.points,
        *arguments.keys,
        *arguments.pairs,
        arguments.reaches,
        output,
        totals,
        doubts,
        *arguments.sizes,
        count,
        OWN=blocks.own,
        OTHER=blocks.other,
        WHOLE=arguments.whole,
        NORMALIZED=normalized,
        **{name: option for name, option in arguments.options.items() if name != "CENTERED"},
        num_warps=blocks.warps,
        num_stages=blocks.stages,
        **LAUNCH_OPTIONS,
    )


def attend_to_keys(arguments: Arguments, output: Tensor, totals: Tensor, doubts: Tensor, *, normalized: bool) -> None:
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
        doubts,
        *arguments.sizes,
        blocks,
        OWN=own,
        OTHER=other,
        DOUBTFUL=arguments.is_half,
        NORMALIZED=normalized,
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
    rows = prepare_rows(call, arguments, result, gradient, moves=moves)
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
    """What backward knows of each query."""

    totals: Float[Tensor, "*batch queries 1"]  # what its weights were divided by
    deltas: Float[Tensor, "*batch queries"]  # the mean gradient of its weights
    doubts: Tensor  # whether its distances must be differences
    inverses: Float[Tensor, "*batch queries"]  # in half precision one over its total; zero if it is in doubt


def prepare_rows(
    call: Call, arguments: Arguments, result: Result, gradient: Float[Tensor, "*batch queries width"], *, moves: bool
) -> Rows:
    """Return what the programs of backward need to know of each query; only if `moves` its mean gradient."""
    totals, output, doubts = result.statistic, result.output, result.extra.doubts
    assert totals is not None
    normalized = isinstance(call.terms.normalizer, KernelSum)
    if not arguments.is_half:
        deltas = (gradient * output).sum(-1) if normalized else torch.zeros_like(totals)
        return Rows(totals if normalized else torch.ones_like(totals), deltas, doubts, deltas)
    from regard.attention.kernels.triton.distance_half_programs import store_rows

    deltas = torch.zeros(doubts.shape, dtype=torch.float32, device=doubts.device)
    inverses, blocks = torch.empty_like(deltas), -(-doubts.shape[-1] // ROWS)
    store_rows[(blocks * arguments.sequences,)](
        arguments.queries.features,
        output,
        totals,
        doubts,
        inverses,
        deltas,
        arguments.sizes[0],
        output.shape[-1],
        blocks,
        doubts.shape[-1],
        OWN=ROWS,
        FEATURES=arguments.options["FEATURES"],
        NORMALIZED=normalized,
        DELTAS=moves and normalized,
    )
    return Rows(totals if normalized else torch.ones_like(totals), deltas, doubts, inverses)


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

    own, other, stored, options = prepare_sides(arguments, side, gradients)
    blocks = choose_half_blocks(arguments, side)
    count = -(-own.points.length // blocks.own)
    differentiate_by_products[(count * arguments.sequences,)](
        *own,
        *other,
        *arguments.pairs,
        arguments.reaches,
        rows.inverses,
        rows.deltas,
        rows.doubts,
        *stored,
        *arguments.sizes,
        count,
        OWN=blocks.own,
        OTHER=blocks.other,
        WHOLE=arguments.whole,
        **{name: option for name, option in options.items() if name != "CENTERED"},
        num_warps=blocks.warps,
        num_stages=blocks.stages,
        **LAUNCH_OPTIONS,
    )


def differentiate(arguments: Arguments, rows: Rows, side: Literal["queries", "keys"], gradients: Gradients) -> None:
    """Compute gradients, in half precision from queries in doubt."""
    from regard.attention.kernels.triton.distance_programs import differentiate

    own, other, stored, options = prepare_sides(arguments, side, gradients)
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
        *stored,
        *arguments.sizes,
        count,
        OWN=own_size,
        OTHER=other_size,
        DOUBTFUL=arguments.is_half,
        **options,
        num_warps=warps,
        num_stages=2,
        **LAUNCH_OPTIONS,
    )


def prepare_sides(
    arguments: Arguments, side: Literal["queries", "keys"], gradients: Gradients
) -> tuple[Side, Side, list[Tensor], dict[str, Any]]:
    """Return a side, the other one, and what the programs of backward store: tensors, and options that name them."""
    own, other = arguments.queries, arguments.keys
    if side == "keys":
        own, other = other, own
    needs = dict(zip(("POINTS", "VALUES", "REACH"), (tensor is not None for tensor in gradients), strict=True))
    stored = [own.points.norms if tensor is None else tensor for tensor in gradients]
    return own, other, stored, arguments.options | needs | {"OF_KEYS": side == "keys"}


def make_gradient(tensor: Tensor | None, shape: torch.Size) -> Tensor | None:
    """Return a new tensor for a gradient, in float32 if several parts of it will be added."""
    if tensor is None:
        return None
    dtype = tensor.dtype if tensor.shape[:-1] == shape else torch.float32
    return torch.empty((*shape, tensor.shape[-1]), dtype=dtype, device=tensor.device)


def collect_gradient(tensor: Tensor, total: Float[Tensor, "*batch positions width"] | None) -> Tensor:
    """Return a gradient with all of *batch in the shape and type of its tensor; zeros where nothing depends on it."""
    return torch.zeros_like(tensor) if total is None else total.sum_to_size(tensor.shape).to(tensor.dtype)


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
    if width <= 64:
        return Blocks(128, 64 if arguments.options["POWER"] == 0 else 32, 8, 2)
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
