"""Check and prepare the arguments of `attend`."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import broadcast_shapes, upcast
from regard.attention.normalizers import KernelSum, Normalizer, Softmax
from regard.attention.score_checks import broadcasts_to, describe_type, is_number
from regard.attention.visible import Rule, check_broadcast
from regard.errors import RegardError

Inputs = tuple[Tensor, Tensor, Tensor]
"""Query, keys and values."""

FAR = 100.0  # up to this maximum bias of a row, float32 rounds its weights by less than 1e-5


def prepare_inputs(
    query: Tensor, keys: Tensor, values: Tensor, visible: Rule | None
) -> tuple[Inputs, torch.Size, torch.dtype | None]:
    """Return query, keys and values in the autocast type, the shape of the scores, and the autocast type.

    Raises:
        RegardError: If types or shapes do not match.
    """
    for name, tensor in (("query", query), ("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise RegardError(f"attend: {name} must be a tensor, got {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise RegardError(f"attend: {name} must have a float type, got {describe_type(tensor)}")
        if tensor.ndim < 2:
            raise RegardError(f"attend: {name} must have shape (*batch, positions, width), got {tuple(tensor.shape)}")
    autocast_dtype = autocast_type(query)
    inputs = cast_inputs(query, keys, values, autocast_dtype)
    if keys.shape[-2] != values.shape[-2]:
        raise RegardError(
            f"attend: keys and values must have the same length, got {keys.shape[-2]} and {values.shape[-2]}"
        )
    leading = [tensor.shape[:-2] for tensor in inputs]
    try:
        batch = leading[0] if leading[0] == leading[1] == leading[2] else broadcast_shapes(*leading)
    except ValueError:
        shapes = ", ".join(str(tuple(axes)) for axes in leading)
        raise RegardError(f"attend: the leading axes of query, keys and values do not broadcast: {shapes}") from None
    shape = torch.Size((*batch, query.shape[-2], keys.shape[-2]))
    if visible is not None:
        visible.check(shape)
    return inputs, shape, autocast_dtype


def autocast_type(tensor: Tensor) -> torch.dtype | None:
    """Return the autocast type on a tensor's device; None if autocast is off."""
    device = "cpu" if tensor.is_cpu else tensor.device.type  # reading the name is slow
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def cast_inputs(query: Tensor, keys: Tensor, values: Tensor, autocast_dtype: torch.dtype | None) -> Inputs:
    """Return query, keys and values in the autocast type, if any; they must have one type."""
    if autocast_dtype is not None:
        query, keys, values = (t if t.dtype == torch.float64 else t.to(autocast_dtype) for t in (query, keys, values))
    if not query.dtype == keys.dtype == values.dtype:
        type_names = ", ".join(describe_type(tensor) for tensor in (query, keys, values))
        raise RegardError(f"attend: query, keys and values must have the same type, got {type_names}")
    return query, keys, values


def prepare_bias(
    bias: Tensor | None,
    normalizer: Normalizer,
    visible: Rule | None,
    query: Tensor,
    shape: torch.Size,
    *,
    has_sink: bool = False,
) -> Float[Tensor, "*bias_batch #queries #keys"] | None:
    """Return the bias to add to scores of this shape; raise a `RegardError` if it does not fit.

    With a sink, which is no key, rows keep their constants.
    """
    if bias is None:
        return None
    if not isinstance(bias, Tensor):
        raise RegardError(f"bias must be a tensor, got {type(bias).__name__}")
    if not bias.is_floating_point():
        raise RegardError(
            f"bias must have a float type, got {describe_type(bias)}; use visible to choose which keys may be seen"
        )
    check_broadcast("bias", bias.shape, shape)
    bias = collapse_expanded(torch.atleast_2d(bias).to(upcast(query).dtype))
    if isinstance(normalizer, KernelSum):
        return bias - row_peaks(bias)
    return shift_bias_rows(bias, visible) if normalizer.ranked and not has_sink else bias


def prepare_sink(
    sink: Tensor | None, normalizer: Normalizer, query: Tensor, shape: torch.Size
) -> Float[Tensor, "*sink_batch 1 1"] | None:
    """Return the sink in the type of the weights, with axes for queries and keys.

    Raises:
        RegardError: If it is no floating-point tensor that broadcasts to *batch, or the normalizer is not softmax.
    """
    if sink is None:
        return None
    if not isinstance(sink, Tensor):
        raise RegardError(f"sink must be a tensor, got {type(sink).__name__}")
    if not sink.is_floating_point():
        raise RegardError(f"sink must have a float type, got {describe_type(sink)}")
    if not isinstance(normalizer, Softmax):
        raise RegardError("sink: only weights of a softmax can have a sink, a logit in its denominator")
    if not broadcasts_to(tuple(sink.shape), tuple(shape[:-2])):
        raise RegardError(
            f"sink: expected one number per head, a shape that broadcasts to {tuple(shape[:-2])}, "
            f"got {tuple(sink.shape)}"
        )
    return sink.to(upcast(query).dtype)[..., None, None]


def collapse_expanded(bias: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the bias with size 1 along each expanded axis, so that copies are smaller."""
    if bias.requires_grad or 0 not in bias.stride() or bias.numel() == 0:
        return bias
    return bias[tuple(slice(0, 1) if step == 0 else slice(None) for step in bias.stride())]


def shift_bias_rows(bias: Float[Tensor, "..."], visible: Rule | None) -> Float[Tensor, "..."]:
    """Shift rows of the bias that are far from zero, which does not change weights that sum to one.

    Added to a bias of -1e9 for all keys, the scores of a row are lost to float32 rounding, and so is the logarithm of
    their number: in backward, the fused operators would treat each key as the only one. If a rule hides keys, a peak
    above zero may belong to a hidden key, so it is kept. Rows where a rule leaves only keys of -1e9 are not shifted
    either: finding them would mean visiting every pair.
    """
    peaks = row_peaks(bias)
    if visible is not None:
        peaks = peaks.clamp_max(0)
    if bias.is_cpu and not torch.compiler.is_compiling() and peaks.numel() and peaks.abs().amax().item() < FAR:
        return bias  # on a GPU this check costs more than it saves
    return bias - peaks


def row_peaks(bias: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the maximum bias of each row, or 0 where it is not finite.

    Subtracting it leaves a kernel's weights unchanged and keeps its exp finite.
    """
    if bias.shape[-1] == 0:
        return torch.zeros_like(bias)
    return bias.detach().amax(-1, keepdim=True).nan_to_num(0.0, 0.0, 0.0)


def check_dropout(caller: str, dropout: float) -> None:
    """Raise a `RegardError` unless dropout is a number from 0 to 1."""
    if not is_number(dropout) or not 0 <= dropout <= 1:
        raise RegardError(f"{caller}: dropout must be at least 0 and at most 1, got {dropout!r}")
