"""What was kept of the steps of writing, put together as if one call had seen it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.arranged import JoinedWeights
from regard.errors import RegardError


class Extent(NamedTuple):
    """Which queries and keys a call was about."""

    shape: torch.Size  # (*batch, queries, keys)
    first: int  # the position of the first key

    @property
    def end(self) -> int:
        """The position after the last key."""
        return self.first + self.shape[-1]


def check_steps(where: str, extents: Sequence[Extent]) -> None:
    """Raise a `RegardError` unless each call continues the one before.

    It has as many keys more as it has queries, or it has one query and the same keys,
    such as those of a source.
    """
    for number, (before, now) in enumerate(pairwise(extents), start=2):
        if before.shape[:-2] != now.shape[:-2]:
            raise RegardError(
                f"{where}: call {number} has a batch of {tuple(now.shape[:-2])}, the one before of "
                f"{tuple(before.shape[:-2])}; steps of one batch can be joined"
            )
        queries = now.shape[-2]
        if now.end != before.end + queries and not (
            queries == 1 and (now.first, now.end) == (before.first, before.end)
        ):
            raise RegardError(
                f"{where}: call {number} has {queries} queries and keys up to {now.end}, the one before had keys up to "
                f"{before.end}; greedy or sampled steps with a cache, of one text, can be joined"
            )


def join(name: str, calls: Sequence[Any], extents: Sequence[Extent]) -> Any:
    """What was kept by a name of all calls, in the same form; columns are positions of all keys."""
    if len(calls) == 1 and extents[0].first == 0:
        return calls[0]
    if name == "all":
        return JoinedWeights(calls, [extent.first for extent in extents])
    if name == "dense":
        return torch.cat(at_all_keys(calls, extents), -2)
    if name == "received":  # in all steps
        return torch.stack(at_all_keys(calls, extents)).sum(0)
    if name == "entropy":
        return torch.cat(list(calls), -1)
    if name == "argmax":
        return torch.cat([from_first(call, extent) for call, extent in zip(calls, extents, strict=True)], -1)
    assert name.startswith("top:")
    most = max(values.shape[-1] for values, _ in calls)
    values = [pad(values, (0, most - values.shape[-1])) for values, _ in calls]
    places = [
        pad(from_first(found, extent), (0, most - found.shape[-1]), value=-1)
        for (_, found), extent in zip(calls, extents, strict=True)
    ]
    return torch.cat(values, -2), torch.cat(places, -2)


def from_first(places: Tensor, extent: Extent) -> Tensor:
    """Places among the keys of a call as positions among all keys; -1 stays what it is."""
    return torch.where(places < 0, places, places + extent.first)


def at_all_keys(calls: Sequence[Tensor], extents: Sequence[Extent]) -> list[Tensor]:
    """Numbers for the keys of each call, with zeros for all other keys."""
    keys = max(extent.end for extent in extents)
    return [pad(call, (extent.first, keys - extent.end)) for call, extent in zip(calls, extents, strict=True)]
