"""What `attend` is given: made to fit, or refused in one line that says what would."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import broadcast_shapes, widened
from regard.attention.normalise import KernelSum, Normaliser
from regard.attention.score_checks import is_number, kind
from regard.attention.visible import Rule, check_broadcast
from regard.errors import RegardError

Inputs = tuple[Tensor, Tensor, Tensor]
"""Query, keys and values."""

FAR = 100.0  # a row's greatest bias up to which float32 rounds its weights by less than a hundred thousandth


def checked(
    query: Tensor, keys: Tensor, values: Tensor, visible: Rule | None
) -> tuple[Inputs, torch.Size, torch.dtype | None]:
    """Query, keys and values as autocast wants them, the shape of the scores and that type, or a `RegardError`."""
    for name, tensor in (("query", query), ("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise RegardError(f"attend: {name} is {type(tensor).__name__}; a torch tensor is needed")
        if not tensor.is_floating_point():
            raise RegardError(f"attend: {name} is {kind(tensor)}; a float type is needed")
        if tensor.ndim < 2:
            raise RegardError(f"attend: {name} has shape {tuple(tensor.shape)}; (*batch, positions, width) is needed")
    low = autocast_type(query)
    inputs = of_one_type(query, keys, values, low)
    if keys.shape[-2] != values.shape[-2]:
        raise RegardError(f"attend: there are {keys.shape[-2]} keys and {values.shape[-2]} values; each key needs one")
    leading = [tensor.shape[:-2] for tensor in inputs]
    try:
        batch = leading[0] if leading[0] == leading[1] == leading[2] else broadcast_shapes(*leading)
    except ValueError:
        found = ", ".join(str(tuple(axes)) for axes in leading)
        raise RegardError(
            f"attend: leading axes of query, keys and values are {found}; they do not broadcast"
        ) from None
    shape = torch.Size((*batch, query.shape[-2], keys.shape[-2]))
    if visible is not None:
        visible.check(shape)
    return inputs, shape, low


def autocast_type(tensor: Tensor) -> torch.dtype | None:
    """The type that autocast wants on a tensor's device; None where it is off."""
    device = "cpu" if tensor.is_cpu else tensor.device.type  # to ask for its name takes its time
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def of_one_type(query: Tensor, keys: Tensor, values: Tensor, low: torch.dtype | None) -> Inputs:
    """Query, keys and values in the type that autocast wants, if any, which must be one for all."""
    if low is not None:
        query, keys, values = (t if t.dtype == torch.float64 else t.to(low) for t in (query, keys, values))
    if not query.dtype == keys.dtype == values.dtype:
        found = ", ".join(kind(tensor) for tensor in (query, keys, values))
        raise RegardError(f"attend: query, keys and values are {found}; one type for all is needed")
    return query, keys, values


def fitting_bias(
    bias: Tensor | None, normaliser: Normaliser, visible: Rule | None, query: Tensor, shape: torch.Size
) -> Float[Tensor, "*bias_batch #queries #keys"] | None:
    """What is added to scores of this shape, or a `RegardError` where it cannot be."""
    if bias is None:
        return None
    if not isinstance(bias, Tensor):
        raise RegardError(f"bias: is {type(bias).__name__}; a torch tensor is needed")
    if not bias.is_floating_point():
        raise RegardError(f"bias: is {kind(bias)}; a float type is needed (what may be seen is said with visible)")
    check_broadcast("bias", bias.shape, shape)
    bias = unrepeated(torch.atleast_2d(bias).to(widened(query).dtype))
    if isinstance(normaliser, KernelSum):
        return bias - row_peaks(bias)
    return level(bias, visible) if normaliser.ranked else bias


def unrepeated(bias: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The bias with one entry along each axis that was expanded: it broadcasts, and whoever copies it copies less."""
    if bias.requires_grad or 0 not in bias.stride() or bias.numel() == 0:
        return bias
    return bias[tuple(slice(0, 1) if step == 0 else slice(None) for step in bias.stride())]


def level(bias: Float[Tensor, "..."], visible: Rule | None) -> Float[Tensor, "..."]:
    """The bias with rows far from zero moved there, which changes no weight of rows that sum to one.

    Beside a bias of -1e9 for all its keys, float32 has no room for the scores of a row, nor for the logarithm of how
    many they are: in their backward the fused operators would weigh each key as if it were the only one. Where a rule
    hides keys, a peak above zero may be that of one that is hidden, and stays. (So does a row to which a rule leaves
    nothing but keys of -1e9: to know that, all pairs would have to be looked at.)
    """
    peaks = row_peaks(bias)
    if visible is not None:
        peaks = peaks.clamp_max(0)
    if bias.is_cpu and peaks.numel() and peaks.abs().amax().item() < FAR:  # on a GPU a look costs more than it saves
        return bias
    return bias - peaks


def row_peaks(bias: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The greatest bias of each row, 0 where that is no finite number.

    Taken off, it leaves a kernel's weights as they are and its exp finite.
    """
    if bias.shape[-1] == 0:
        return torch.zeros_like(bias)
    return bias.detach().amax(-1, keepdim=True).nan_to_num(0.0, 0.0, 0.0)


def check_share(where: str, dropout: float) -> None:
    """Raise a `RegardError` unless dropout is a share of all weights."""
    if not is_number(dropout) or not 0 <= dropout <= 1:
        raise RegardError(f"{where}: dropout is {dropout!r}; a share from 0 to 1 is needed")
