"""What a score function must be given, and what it must give: said in one line where it is not so."""

from __future__ import annotations

from numbers import Integral, Real

import torch
from torch import Tensor

from regard.attention.base_score import DotForm, Score
from regard.errors import RegardError


def check_made_for(score: Score, query: Tensor, keys: Tensor, batch: tuple[int, ...]) -> None:
    """Raise a `RegardError` where queries and keys, or their leading axes, are not what a score was made for."""
    if score.query_dim is None and score.key_dim is None and not score.head_grid:
        return
    for name, made_for, found in (("query", score.query_dim, query), ("keys", score.key_dim, keys)):
        if made_for is not None and found.shape[-1] != made_for:
            raise RegardError(
                f"{type(score).__name__}: made for {name} of width {made_for}, found width {found.shape[-1]}"
            )
    grid = score.head_grid
    if grid and not fits(grid, batch):
        heads = " x ".join(str(size) for size in grid)
        raise RegardError(
            f"{type(score).__name__}: made for {heads} heads, found leading axes {tuple(batch)}; "
            f"they must end in {', '.join(str(size) for size in grid)}"
        )


def check_sizes(where: str, **sizes: object) -> None:
    """Raise a `RegardError` that names the size which is no whole number above 0."""
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < 1:
            raise RegardError(f"{where}: {name} is {size!r}; a whole number above 0 is needed")


def check_type(where: str, name: str, tensor: Tensor, parameters: Tensor) -> None:
    """Raise a `RegardError` where a tensor meets parameters of another type, and autocast does not make them one."""
    if tensor.dtype == parameters.dtype:
        return
    ours, theirs = kind(parameters), kind(tensor)
    if not tensor.is_floating_point():
        raise RegardError(f"{where}: {name} is {theirs}; a float type is needed")
    if "float64" in (ours, theirs) or not torch.is_autocast_enabled(tensor.device.type):  # which leaves float64 alone
        raise RegardError(
            f"{where}: has parameters of {ours}, {name} of {theirs} came; .to(torch.{theirs}) makes it fit"
        )


def fits(axes: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Whether these are the last leading axes, or one where it is the same for all."""
    pairs = zip(reversed(axes), reversed(batch), strict=False)
    return len(axes) <= len(batch) and all(size in (1, wanted) for size, wanted in pairs)


def same_width(score: Score, query: Tensor, keys: Tensor) -> None:
    """Raise a `RegardError` where a score needs equal widths and has them not."""
    if query.shape[-1] != keys.shape[-1]:
        raise RegardError(
            f"{type(score).__name__}: query has width {query.shape[-1]}, keys have {keys.shape[-1]}; "
            "equal widths are needed (Bilinear, ReducedRank, Additive and Concat take any)"
        )


def check_scores(score: Score, found: object, shape: tuple[int, ...]) -> None:
    """Raise a `RegardError` unless a score gave (*batch, queries, keys), where an axis of *batch may be one for all."""
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise RegardError(f"{type(score).__name__}: gave scores of type {kind(found)}; a tensor of floats is needed")
    if found.shape[-2:] != shape[-2:] or not fits(found.shape[:-2], shape[:-2]):
        raise RegardError(
            f"{type(score).__name__}: gave scores of shape {tuple(found.shape)}; "
            f"(*batch, queries, keys) is needed, {tuple(shape)}"
        )


def as_dot_form(score: Score, found: object, query: Tensor, keys: Tensor) -> DotForm | None:
    """What a score gave as its dot product, or a `RegardError` where that is none."""
    if found is None:
        return None
    if not isinstance(found, tuple) or not 2 <= len(found) <= 4:
        shown = f"{len(found)} things" if isinstance(found, tuple) else kind(found)
        raise not_dot(score, f"{shown}; DotForm(query, keys, scale, key_bias) is needed")
    form = DotForm(*found)
    for name, tensor, length in (("query", form.query, query.shape[-2]), ("keys", form.keys, keys.shape[-2])):
        if not isinstance(tensor, Tensor) or tensor.ndim < 2 or tensor.shape[-2] != length:
            shown = f"shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else f"type {kind(tensor)}"
            raise not_dot(score, f"{name} of {shown}; (*batch, {length}, width) is needed")
    if form.query.shape[-1] != form.keys.shape[-1]:
        raise not_dot(
            score, f"query of width {form.query.shape[-1]}, keys of {form.keys.shape[-1]}; one width is needed"
        )
    if not is_number(form.scale):
        raise not_dot(score, f"a scale of type {kind(form.scale)}; a plain number is needed")
    bias, m = form.key_bias, keys.shape[-2]
    if bias is not None and (not isinstance(bias, Tensor) or bias.ndim == 0 or bias.shape[-1] != m):
        shown = f"shape {tuple(bias.shape)}" if isinstance(bias, Tensor) else f"type {kind(bias)}"
        raise not_dot(score, f"a key_bias of {shown}; (*batch, {m}) is needed")
    return form


def not_dot(score: Score, found: str) -> RegardError:
    """The error for an `as_dot` that gives something else."""
    return RegardError(f"{type(score).__name__}: as_dot gave {found}")


def is_number(found: object) -> bool:
    """Whether this is a plain number, of Python or NumPy."""
    return type(found) in (float, int) or isinstance(found, Real)  # the second asks Python's slow way


def kind(found: object) -> str:
    """What sort of thing this is."""
    return str(found.dtype).removeprefix("torch.") if isinstance(found, Tensor) else type(found).__name__
