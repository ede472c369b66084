"""Tell self-attention, cross-attention and pooling apart by what a module was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from torch import Tensor, nn

NOT_SEQUENCES = ("mask", "pos", "bias", "rotary", "rope", "cos", "sin", "cache", "past", "emb_", "residual", "alibi")
"""Parts of the names of arguments that hold no sequence to attend to."""
KEYS = ("key", "keys", "k", "key_states")
"""Names of an argument that holds the keys, whatever others there are, such as values of their own."""


def find_role(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], queries: int, keys: int) -> str:
    """Return "self", "cross" or "pooling" for a call of a module with some arguments.

    Attention is cross-attention if the module was given a second sequence with as many positions as there are
    keys, and pooling if its queries are fewer than the positions it was given, and its own.
    """
    sequences = list(iter_sequences(module, args, kwargs))
    if not sequences:
        return "self"
    (_, first), *others = sequences
    others = [pair for pair in others if pair[0] in KEYS] or others
    if any(other is not first and keys in other.shape[:-1] for _, other in others):
        return "cross"
    if queries not in first.shape[:-1] and keys in first.shape[:-1]:
        return "pooling"
    return "self"


def iter_sequences(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Iterate over the arguments that may be sequences of vectors, with their names."""
    names = get_parameter_names(type(module).forward)
    named = [*zip([*names, *[""] * len(args)], args, strict=False), *kwargs.items()]
    dimensions = (3, 4) if any(name in KEYS for name, _ in named) else (3,)  # also several sequences for each image
    for name, part in named:
        if is_sequence(part, dimensions) and not any(word in name for word in NOT_SEQUENCES):
            yield name, part


@cache
def get_parameter_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters of a method, without `self`."""
    parameters = inspect.signature(forward).parameters.values()
    return tuple(one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))[1:]


def is_sequence(part: Any, dimensions: tuple[int, ...]) -> bool:
    """Return whether an argument may be a batch of sequences of vectors."""
    return isinstance(part, Tensor) and part.is_floating_point() and part.ndim in dimensions and part.shape[-1] > 1
