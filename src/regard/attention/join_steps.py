"""Join what was recorded at each decoding step into the result of one call over the whole sequence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.combined_weights import JoinedWeights
from regard.errors import RegardError


class Extent(NamedTuple):
    """The queries and keys of a call."""

    shape: torch.Size  # (*batch, queries, keys)
    first: int  # the position of the first key

    @property
    def end(self) -> int:
        """The position after the last key."""
        return self.first + self.shape[-1]


def check_steps(prefix: str, extents: Sequence[Extent]) -> None:
    """Raise a `RegardError` unless each call continues the previous one.

    A call must add one key per query, or have one query and the same keys, as attention to a
    source does.
    """
    for call_number, (previous, current) in enumerate(pairwise(extents), start=2):
        if previous.shape[:-2] != current.shape[:-2]:
            raise RegardError(
                f"{prefix}: all calls must have the same batch shape, got {tuple(previous.shape[:-2])} and "
                f"{tuple(current.shape[:-2])} for call {call_number}"
            )
        queries = current.shape[-2]
        if current.end != previous.end + queries and not (
            queries == 1 and (current.first, current.end) == (previous.first, previous.end)
        ):
            raise RegardError(
                f"{prefix}: call {call_number} does not continue the previous one: {queries} queries and keys "
                f"up to {current.end} after keys up to {previous.end}; "
                "only greedy or sampled steps with a cache can be joined"
            )


def join_calls(name: str, calls: Sequence[Any], extents: Sequence[Extent]) -> Any:
    """Join what was kept of all calls under a name, in the same form; columns are positions among all keys."""
    if len(calls) == 1 and extents[0].first == 0:
        return calls[0]
    if name == "all":
        return JoinedWeights(calls, [extent.first for extent in extents])
    if name == "dense":
        return torch.cat(pad_to_all_keys(calls, extents), -2)
    if name == "received":
        return torch.stack(pad_to_all_keys(calls, extents)).sum(0)
    if name == "entropy":
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


def shift_indices(indices: Tensor, extent: Extent) -> Tensor:
    """Convert key indices of a call to positions among all keys; -1 is unchanged."""
    return torch.where(indices < 0, indices, indices + extent.first)


def pad_to_all_keys(calls: Sequence[Tensor], extents: Sequence[Extent]) -> list[Tensor]:
    """Pad the values for the keys of each call with zeros for all other keys."""
    keys = max(extent.end for extent in extents)
    return [pad(call, (extent.first, keys - extent.end)) for call, extent in zip(calls, extents, strict=True)]
