"""Check the inputs and the results of score functions."""

from __future__ import annotations

from numbers import Integral, Real

import torch
from torch import Tensor

from regard.attention.base_score import DotForm, Score
from regard.attention.visible import fits_axis
from regard.errors import RegardError


def check_score_inputs(score: Score, query: Tensor, keys: Tensor, batch: tuple[int, ...]) -> None:
    """Raise a `RegardError` if the widths or leading axes of queries and keys do not fit a score."""
    if score.query_dim is None and score.key_dim is None and not score.head_grid:
        return
    for name, expected_width, tensor in (("query", score.query_dim, query), ("keys", score.key_dim, keys)):
        if expected_width is not None and tensor.shape[-1] != expected_width:
            raise RegardError(
                f"{type(score).__name__}: expected {name} of width {expected_width}, got {tensor.shape[-1]}"
            )
    grid = score.head_grid
    if grid and not broadcasts_to(grid, batch):
        heads = " x ".join(str(size) for size in grid)
        raise RegardError(
            f"{type(score).__name__}: expected leading axes that end in {heads} heads, got {tuple(batch)}"
        )


def check_positive_sizes(caller: str, **sizes: object) -> None:
    """Raise a `RegardError` unless all sizes are positive integers."""
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < 1:
            raise RegardError(f"{caller}: {name} must be a positive integer, got {size!r}")


def check_type(caller: str, name: str, tensor: Tensor, parameters: Tensor) -> None:
    """Raise a `RegardError` if a tensor and parameters differ in type and autocast does not convert them."""
    if tensor.dtype == parameters.dtype:
        return
    parameter_type, tensor_type = describe_type(parameters), describe_type(tensor)
    if not tensor.is_floating_point():
        raise RegardError(f"{caller}: {name} must have a float type, got {tensor_type}")
    # autocast does not convert float64
    if "float64" in (parameter_type, tensor_type) or not torch.is_autocast_enabled(tensor.device.type):
        raise RegardError(
            f"{caller}: parameters are {parameter_type}, but {name} is {tensor_type}; "
            f"convert the module with .to(torch.{tensor_type})"
        )


def broadcasts_to(axes: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Return whether these axes broadcast to the last axes of a batch."""
    pairs = zip(reversed(axes), reversed(batch), strict=False)
    return len(axes) <= len(batch) and all(fits_axis(size, expected) for size, expected in pairs)


def check_same_width(score: Score, query: Tensor, keys: Tensor) -> None:
    """Raise a `RegardError` unless query and keys have the same width."""
    if query.shape[-1] != keys.shape[-1]:
        raise RegardError(
            f"{type(score).__name__}: query and keys must have the same width, got {query.shape[-1]} and "
            f"{keys.shape[-1]} (Bilinear, ReducedRank, Additive and Concat accept different widths)"
        )


def check_scores(score: Score, scores: object, shape: tuple[int, ...]) -> None:
    """Raise a `RegardError` unless scores have shape (*batch, queries, keys), where axes of *batch may be 1."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        raise RegardError(f"{score.title}: scores must be a float tensor, got {describe_type(scores)}")
    if scores.shape[-2:] != shape[-2:] or not broadcasts_to(scores.shape[:-2], shape[:-2]):
        raise RegardError(
            f"{score.title}: scores must have shape (*batch, queries, keys) = {tuple(shape)}, got {tuple(scores.shape)}"
        )


def as_dot_form(score: Score, result: object, query: Tensor, keys: Tensor) -> DotForm | None:
    """Check the result of a score's `as_dot` and return it; raise a `RegardError` if it is not a `DotForm`."""
    if result is None:
        return None
    if not isinstance(result, tuple) or not 2 <= len(result) <= 4:
        description = f"{len(result)} items" if isinstance(result, tuple) else describe_type(result)
        raise make_dot_error(score, f"expected DotForm(query, keys, scale, key_bias), got {description}")
    form = DotForm(*result)
    for name, tensor, length in (("query", form.query, query.shape[-2]), ("keys", form.keys, keys.shape[-2])):
        if not isinstance(tensor, Tensor) or tensor.ndim < 2 or tensor.shape[-2] != length:
            description = f"shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else f"{describe_type(tensor)}"
            raise make_dot_error(score, f"expected {name} of shape (*batch, {length}, width), got {description}")
    if form.query.shape[-1] != form.keys.shape[-1]:
        raise make_dot_error(
            score,
            f"query and keys must have the same width, got {form.query.shape[-1]} and {form.keys.shape[-1]}",
        )
    if not is_number(form.scale):
        raise make_dot_error(score, f"scale must be a number, got {describe_type(form.scale)}")
    bias, m = form.key_bias, keys.shape[-2]
    if bias is not None and (not isinstance(bias, Tensor) or bias.ndim == 0 or bias.shape[-1] != m):
        description = f"shape {tuple(bias.shape)}" if isinstance(bias, Tensor) else describe_type(bias)
        raise make_dot_error(score, f"expected key_bias of shape (*batch, {m}), got {description}")
    return form


def make_dot_error(score: Score, description: str) -> RegardError:
    """Return the error for an invalid result of `as_dot`."""
    return RegardError(f"{type(score).__name__}.as_dot: {description}")


def is_number(value: object) -> bool:
    """Return whether a value is a plain number, of Python or NumPy."""
    return type(value) in (float, int) or isinstance(value, Real)  # isinstance with Real is slow


def describe_type(value: object) -> str:
    """Return the type of a tensor's elements, or of any other value."""
    return str(value.dtype).removeprefix("torch.") if isinstance(value, Tensor) else type(value).__name__
