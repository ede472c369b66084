"""A plain function of query and keys as a score function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.base_score import Score
from regard.errors import RegardError

ScoreFunction = Callable[[Tensor, Tensor], Tensor]
"""Returns scores of shape (*batch, n, m) for query (*batch, n, d) and keys (*batch, m, d)."""


class FunctionScore(Score):
    """A function of query and keys, such as a lambda, as a score.

    It runs in tiles, like any custom `Score`. If gradients are needed for tensors that it closes
    over, the whole matrix is computed at once instead: only autograd knows these tensors. A module
    that is not a `Score` has its parameters like one, so it runs in tiles with their gradients.

    Example:
        >>> out = attend(query, keys, values, lambda q, k: -torch.cdist(q, k))  # the same as this score
    """

    def __init__(self, function: ScoreFunction) -> None:
        super().__init__()
        self.function = function
        self.title = f"score function {getattr(function, '__name__', type(function).__name__)}"
        check_accepts_two(self.title, function)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.function(query, keys)

    def needs_autograd(self, query: Tensor, keys: Tensor) -> bool:
        if isinstance(self.function, nn.Module) or not torch.is_grad_enabled():
            return False
        scores = self.function(query.detach()[..., :1, :], keys.detach()[..., :1, :])
        return isinstance(scores, Tensor) and scores.requires_grad

    def iter_captured_tensors(self) -> Iterator[Tensor]:
        if not inspect.isfunction(self.function):
            return
        captured = inspect.getclosurevars(self.function)
        for value in (*captured.nonlocals.values(), *captured.globals.values()):
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, nn.Module):
                yield from value.parameters()


def check_accepts_two(title: str, function: ScoreFunction) -> None:
    """Raise a `RegardError` for a function that cannot be called with query and keys."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # built-in functions have none
        return
    try:
        signature.bind(None, None)
    except TypeError:
        raise RegardError(f"{title}: expected a function of (query, keys), got {signature}") from None
