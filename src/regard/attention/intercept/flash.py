"""Record calls of the flash_attn package, versions 2 and 3, through the operators that its functions call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.intercept.captured import Captured, NotRecordedError
from regard.attention.intercept.flex_weights import FlexWeights
from regard.attention.intercept.recorded_weights import RecordedWeights
from regard.attention.visible import Rule, Window, causal

NAME = "_flash_attn_forward"
PACKED_NAME = "_flash_attn_varlen_forward"

Limits = tuple[int | None, int | None]
"""How many keys before and after a query's position it sees; None for no limit."""

IGNORED = {"out", "out_", "v_descale", "scheduler_metadata"}
"""Tensors among the arguments that the weights do not depend on."""


def capture(
    *,
    q: Float[Tensor, "*batch queries heads width"],
    k: Float[Tensor, "*batch keys groups width"],
    softmax_scale: float,
    causal: bool,
    cu_seqlens_q: Int[Tensor, " ends"] | None = None,
    cu_seqlens_k: Int[Tensor, " ends"] | None = None,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Float[Tensor, "..."] | None = None,
    grad: bool = False,
    **others: Any,
) -> Captured:
    """Return the weights of a call, whose arguments are those of the operator; packed sequences have their ends."""
    check_others(others)
    if not grad:
        q, k = q.detach(), k.detach()
    limits = get_limits(causal, window_size_left, window_size_right)
    features = describe(limits, softcap, alibi_slopes)
    if cu_seqlens_q is not None:
        if cu_seqlens_k is None:
            raise NotRecordedError("it packs its queries, but not its keys")
        weights = build_packed(q, k, (cu_seqlens_q, cu_seqlens_k), softmax_scale, limits, (softcap, alibi_slopes))
        return Captured(weights, PACKED_NAME, features)
    query, keys = q.transpose(1, 2), k.transpose(1, 2)
    if not softcap and alibi_slopes is None:
        grouped = query.shape[1] != keys.shape[1]
        recorded = RecordedWeights(query, keys, softmax_scale, build_rule(limits), grouped=grouped, grad=grad)
        return Captured(recorded, NAME, features)
    shift = keys.shape[-2] - query.shape[-2]

    def distance(query_index: Tensor, key_index: Tensor) -> Tensor:
        return key_index - query_index - shift

    change = build_score(softcap, alibi_slopes, distance)
    return Captured(FlexWeights(query, keys, softmax_scale, change, build_mask(limits, distance)), NAME, features)


def check_others(others: dict[str, Any]) -> None:
    """Raise `NotRecordedError` for arguments that change the weights in a way that is not followed, such as pages."""
    names = [name for name, part in others.items() if isinstance(part, Tensor) and name not in IGNORED | {"v"}]
    names += [name for name in ("attention_chunk",) if others.get(name)]
    if names:
        raise NotRecordedError(f"it calls {NAME} with {', '.join(names)}, which is not recorded")


def build_packed(
    q: Float[Tensor, "queries heads width"],
    k: Float[Tensor, "keys groups width"],
    ends: tuple[Int[Tensor, " ends"], Int[Tensor, " ends"]],
    scale: float,
    limits: Limits,
    changes: tuple[float, Float[Tensor, "..."] | None],
) -> FlexWeights:
    """Return the weights of packed sequences, as one batch whose queries see the keys of their sequence."""
    of_query, query_index, query_counts = number_positions(ends[0], q.shape[0])
    of_keys, key_index, key_counts = number_positions(ends[1], k.shape[0])
    shift = (key_counts - query_counts)[of_query]

    def distance(query_at: Tensor, key_at: Tensor) -> Tensor:
        return key_index[key_at] - query_index[query_at] - shift[query_at]

    in_limits = build_mask(limits, distance)

    def is_visible(batch: Tensor, head: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        return (of_query[query_at] == of_keys[key_at]) & in_limits(batch, head, query_at, key_at)

    change = build_score(*changes, distance)
    return FlexWeights(q.transpose(0, 1)[None], k.transpose(0, 1)[None], scale, change, is_visible)


def get_limits(is_causal: bool, left: int, right: int) -> Limits:
    """Return the limits of a call, where -1 means none."""
    return None if left < 0 else left, 0 if is_causal else None if right < 0 else right


def build_rule(limits: Limits) -> Rule | None:
    """Return the rule of some limits; None for none."""
    if limits == (None, None):
        return None
    return causal() if limits == (None, 0) else Window(*limits)


def build_mask(limits: Limits, distance: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return the function of positions that says whether a key is within the limits."""
    left, right = limits

    def is_visible(batch: Tensor, head: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        gap = distance(query_at, key_at)
        visible = torch.ones_like(gap, dtype=torch.bool)
        visible = visible if left is None else visible & (gap >= -left)
        return visible if right is None else visible & (gap <= right)

    return is_visible


def build_score(
    softcap: float, slopes: Float[Tensor, "..."] | None, distance: Callable[[Tensor, Tensor], Tensor]
) -> Callable[..., Tensor] | None:
    """Return the function that caps a score and adds the bias of ALiBi; None if there is neither."""
    if not softcap and slopes is None:
        return None

    def change(score: Tensor, batch: Tensor, head: Tensor, query_at: Tensor, key_at: Tensor) -> Tensor:
        capped = softcap * torch.tanh(score / softcap) if softcap else score
        if slopes is None:
            return capped
        slope = slopes[head] if slopes.ndim == 1 else slopes[batch, head]
        return capped - slope * distance(query_at, key_at).abs()

    return change


def describe(limits: Limits, softcap: float, slopes: Tensor | None) -> dict[str, object]:
    """Describe what is special to the scores of a call."""
    features: dict[str, object] = {}
    if limits[0] is not None:
        features["window"] = limits[0] + 1
    if softcap:
        features["softcap"] = softcap
    if slopes is not None:
        features["alibi"] = True
    return features


def number_positions(
    ends: Int[Tensor, " ends"], total: int
) -> tuple[Int[Tensor, " positions"], Int[Tensor, " positions"], Int[Tensor, " sequences"]]:
    """Return the sequence of each packed position, its index there, and the lengths of the sequences."""
    counts = ends[1:].long() - ends[:-1].long()
    sequences = torch.repeat_interleave(torch.arange(len(counts), device=ends.device), counts, output_size=total)
    return sequences, torch.arange(total, device=ends.device) - ends.long()[sequences], counts
