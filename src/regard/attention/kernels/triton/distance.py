"""Attention with boxcar and Epanechnikov kernels by Triton: distances by matrix units, by differences near the edge."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast
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
    def build(call: Call, values: Tensor, gradient: Tensor | None = None) -> Arguments:
        """Prepare the tensors of a call, and the gradient of its output in backward."""
        shape = call.terms.shape
        batch, score = shape[:-2], call.bind_parameters().terms.score
        assert isinstance(score, (Boxcar, Epanechnikov))
        center = find_center(call.keys)
        norms = [square_norms(points, center, batch) for points in (call.query, call.keys)]
        query, keys, values = to_four_axes(shape, call.query, call.keys, values)
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


def find_center(keys: Float[Tensor, "*keys_batch keys width"]) -> Float[Tensor, "*keys_batch 1 width"] | None:
    """Return the mean of the keys, from which float32 distances lose fewer digits; None in half precision."""
    return keys.mean(-2, keepdim=True) if keys.dtype == torch.float32 else None


def square_norms(
    points: Float[Tensor, "*points_batch positions width"], center: Tensor | None, batch: torch.Size
) -> Float[Tensor, "*batch positions"]:
    """Return squared norms, less the center."""
    if center is None:
        norms = torch.linalg.vector_norm(points, dim=-1, dtype=torch.float32).square_()
    else:
        norms = (points - center).square_().sum(-1)
    return norms.expand(*batch, -1).contiguous()


@run_on_device
def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute the output, and the sum of the kernel's values in each row."""
    from regard.attention.kernels.triton.distance_programs import attend_to_keys

    assert TILED.forward is not None
    if values.shape[-1] > get_max_width(values.dtype):
        return TILED.forward(call, values)
    arguments = Arguments.build(call, values)
    *batch, n, _ = call.terms.shape
    normalized = isinstance(call.terms.normalizer, KernelSum)
    output = values.new_empty(*batch, n, values.shape[-1])
    totals = upcast(values).new_full((*batch, n, 1), call.terms.normalizer.blind)
    doubts = torch.empty((*batch, n), dtype=torch.int8, device=values.device)
    own, other, warps = choose_blocks(arguments)
    blocks = -(-n // own)
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
        NORMALIZED=normalized,
        **arguments.options,
        num_warps=warps,
        num_stages=2,
        **LAUNCH_OPTIONS,
    )
    return Result(output, totals, None if normalized else torch.zeros_like(output), extra=doubts)


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
    arguments, rows = Arguments.build(call, values, gradient), prepare_rows(call, result, gradient)
    of_values = of_query = of_keys = of_reach = of_width = None
    if moves and (needs_query or needs_width):
        of_query, _, of_reach = differentiate_side(arguments, rows, "queries")
    if needs_width and of_reach is not None:
        width = call.parameters[0]
        of_width = of_reach.sum(-1)[..., None, None].sum_to_size(width.shape).to(width.device) * width.sign()
    if needs_values or (moves and needs_keys):
        of_keys, of_values, _ = differentiate_side(
            arguments, rows, "keys", points=moves and needs_keys, values=needs_values
        )
    inputs = zip((values, call.query, call.keys), (of_values, of_query, of_keys), needs_grad, strict=False)
    gradients = [collect_gradient(tensor, total) if needs_this else None for tensor, total, needs_this in inputs]
    return *gradients, None, of_width


class Rows(NamedTuple):
    """What backward knows of each query."""

    totals: Float[Tensor, "*batch queries 1"]  # what its weights were divided by
    deltas: Float[Tensor, "*batch queries"]  # the mean gradient of its weights
    doubts: Tensor  # whether its distances must be differences


def prepare_rows(call: Call, result: Result, gradient: Float[Tensor, "*batch queries width"]) -> Rows:
    """Return what the programs of backward need to know of each query."""
    totals = result.statistic
    assert totals is not None
    if not isinstance(call.terms.normalizer, KernelSum):
        return Rows(torch.ones_like(totals), torch.zeros_like(totals), result.extra)
    return Rows(totals, (upcast(gradient) * result.output).sum(-1), result.extra)


def differentiate_side(
    arguments: Arguments, rows: Rows, side: Literal["queries", "keys"], *, points: bool = True, values: bool = False
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of the points and the features of a side, and for queries that of the kernel's width."""
    from regard.attention.kernels.triton.distance_programs import differentiate

    own, other = arguments.queries, arguments.keys
    if side == "keys":
        own, other = other, own
    like, unused = own.points.norms, own.points.norms.new_empty(1)
    of_points = like.new_empty(*like.shape, own.points.tensor.shape[-1]) if points else None
    of_features = like.new_empty(*like.shape, own.features.tensor.shape[-1]) if values else None
    of_reach = torch.empty_like(like) if points and side == "queries" else None
    gradients = of_points, of_features, of_reach
    own_size, other_size, warps = choose_blocks(arguments, backward=True)
    blocks = -(-own.points.length // own_size)
    differentiate[(blocks * arguments.sequences,)](
        *own,
        *other,
        *arguments.pairs,
        arguments.center,
        arguments.reaches,
        *rows,
        *(unused if tensor is None else tensor for tensor in gradients),
        *arguments.sizes,
        blocks,
        OF_KEYS=side == "keys",
        OWN=own_size,
        OTHER=other_size,
        POINTS=points,
        VALUES=values,
        **arguments.options,
        num_warps=warps,
        num_stages=2,
        **LAUNCH_OPTIONS,
    )
    return gradients


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
