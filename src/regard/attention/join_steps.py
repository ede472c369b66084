"""Join what was recorded at each decoding step into the result of one call over the whole sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.analysis import QueryMeasure
from regard.attention.combined_weights import JoinedWeights
from regard.attention.intercept.recorded_weights import RecordedWeights
from regard.attention.weights import DenseWeights, Weights
from regard.errors import RegardError

Kept = str | QueryMeasure | tuple[Any, ...]
"""What was kept of each call: `all`, `dense`, a reduction, a measure, or several of them."""


class CallShape(NamedTuple):
    """The queries and keys of a call."""

    shape: torch.Size  # (*batch, queries, keys)
    seen: Bool[Tensor, " keys"] | None = None  # the keys that the last query sees; a static cache has unused ones
    last_key: Tensor | None = None  # the last key in use, to tell a moving window from a source that stays
    kind: str = "self"

    def count_keys(self) -> int:
        """Return the number of keys up to the last one in use."""
        if self.seen is None or not self.seen.any():
            return self.shape[-1]
        return int(self.seen.nonzero()[-1].item()) + 1


class Extent(NamedTuple):
    """The positions of the keys of a call among all keys."""

    first: int
    end: int


def locate_steps(prefix: str, calls: Sequence[CallShape]) -> list[Extent]:
    """Return where the keys of each call are; raise a `RegardError` unless each call continues the previous one.

    A call must add one key per query, or have one query and the same keys, as attention to a
    source does. A cache with a window may have dropped the first keys.
    """
    extents: list[Extent] = []
    for number, call in enumerate(calls):
        count, queries = call.count_keys(), call.shape[-2]
        if not number:
            extents.append(Extent(0, count))
            continue
        previous, before = extents[-1], calls[number - 1]
        if before.shape[:-2] != call.shape[:-2]:
            raise RegardError(
                f"{prefix}: all calls must have the same batch shape, got {tuple(before.shape[:-2])} and "
                f"{tuple(call.shape[:-2])} for call {number + 1}"
            )
        stays = has_same_keys(before, call)
        if count == previous.end + queries:
            extents.append(Extent(0, count))
        elif queries == 1 and count == previous.end - previous.first and stays:
            extents.append(previous)
        elif queries < count < previous.end + queries and not stays:
            extents.append(Extent(previous.end + queries - count, previous.end + queries))
        else:
            raise RegardError(
                f"{prefix}: call {number + 1} does not continue the previous one: {queries} queries and keys "
                f"up to {count} after keys up to {previous.end}; "
                "only greedy or sampled steps with a cache can be joined"
            )
    return extents


def has_same_keys(before: CallShape, call: CallShape) -> bool:
    """Return whether the keys of a call are those of the one before, as in attention to a source."""
    if before.last_key is None or call.last_key is None:
        return call.kind != "self" or (before.shape[-1] == call.shape[-1] and before.seen is call.seen is None)
    return torch.equal(before.last_key, call.last_key)


def join_calls(name: Kept, calls: Sequence[Any], extents: Sequence[Extent]) -> Any:
    """Join what was kept of all calls under a name, in the same form; columns are positions among all keys."""
    if len(calls) == 1:
        return calls[0]
    if isinstance(name, tuple):
        return tuple(join_calls(part, results, extents) for part, *results in zip(name, *calls, strict=True))
    if name == "all":
        parts = [keep_first_keys(call, extent.end - extent.first) for call, extent in zip(calls, extents, strict=True)]
        return JoinedWeights(parts, [extent.first for extent in extents])
    if name == "dense":
        return torch.cat(pad_to_all_keys(calls, extents), -2)
    if name == "received":
        return torch.stack(pad_to_all_keys(calls, extents)).sum(0)
    if isinstance(name, QueryMeasure) and not name.is_relative and any(extent.first for extent in extents):
        raise RegardError(f"join_steps: the cache dropped keys, so {name} is not about the same keys in all calls")
    if isinstance(name, QueryMeasure) or name == "entropy":
        return torch.cat(list(calls), -1)
    if name == "argmax":
        return torch.cat([shift_indices(call, extent) for call, extent in zip(calls, extents, strict=True)], -1)
    assert name.startswith("top:")
    max_k = max(values.shape[-1] for values, _ in calls)
    values = [pad(values, (0, max_k - values.shape[-1])) for values, _ in calls]
    indices = [
        pad(shift_indices(call_indices, extent), (0, max_k - call_indices.shape[-1]), value=-1)
        for (_, call_indices), extent in zip(calls, extents, strict=True)
    ]
    return torch.cat(values, -2), torch.cat(indices, -2)


def keep_first_keys(weights: Weights, count: int) -> Weights:
    """Return the weights of the first keys; the others are unused slots of a cache."""
    if weights.shape[-1] == count:
        return weights
    if isinstance(weights, RecordedWeights):
        return weights.first_keys(count)
    return DenseWeights(weights[..., :count])


def shift_indices(indices: Tensor, extent: Extent) -> Tensor:
    """Convert key indices of a call to positions among all keys; -1 is unchanged."""
    return torch.where(indices < 0, indices, indices + extent.first)


def pad_to_all_keys(calls: Sequence[Tensor], extents: Sequence[Extent]) -> list[Tensor]:
    """Pad the values for the keys of each call with zeros for all other keys."""
    keys = max(extent.end for extent in extents)
    return [
        pad(call[..., : extent.end - extent.first], (extent.first, keys - extent.end))
        for call, extent in zip(calls, extents, strict=True)
    ]
