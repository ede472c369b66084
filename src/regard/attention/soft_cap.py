"""Capped scores: cap·tanh(score / cap), which keeps every score between -cap and cap."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import Form, Score
from regard.attention.function_score import ScoreFunction
from regard.attention.kernel_scores import Kernel
from regard.attention.score_checks import is_number
from regard.attention.scores import Hard, resolve_score
from regard.errors import RegardError


class SoftCap(Score):
    """A score kept between -cap and cap by cap·tanh(score / cap) (Gemma 2, 2024).

    A bias is added, and keys are hidden, after the cap.

    Args:
        score: The score to cap: a name, a score or a function, as for `attend`.
        cap: The largest score, above 0.

    Example:
        >>> out = attend(query, keys, values, SoftCap("scaled_dot", 50.0), visible=causal())
    """

    form: Form = "other"

    def __init__(self, score: str | Score | ScoreFunction, cap: float) -> None:
        super().__init__()
        if not is_number(cap) or not 0 < cap < float("inf"):
            raise RegardError(f"SoftCap: cap must be a finite number above 0, got {cap!r}")
        inner = resolve_score(score)
        if isinstance(inner, Hard) or (isinstance(inner, Kernel) and inner.finite):
            raise RegardError(f"SoftCap: {inner.title} cannot be capped: its weights are no softmax of its scores")
        self.score, self.cap = inner, float(cap)
        self.query_dim, self.key_dim, self.head_grid = inner.query_dim, inner.key_dim, inner.head_grid
        self.stochastic = inner.stochastic

    @property
    def has_head_parameters(self) -> bool:
        return self.score.has_head_parameters

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.limit(self.score(query, keys))

    def prepare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        return self.score.prepare(query, keys)

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.limit(self.score.compare(query, keys))

    def limit(self, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the capped scores."""
        return torch.tanh(scores / self.cap) * self.cap

    def precompute_keys(self, keys: Float[Tensor, "..."]) -> tuple[Score, Tensor]:
        score, precomputed = self.score.precompute_keys(keys)
        return SoftCap(score, self.cap), precomputed

    def needs_autograd(self, query: Tensor, keys: Tensor) -> bool:
        return self.score.needs_autograd(query, keys)

    def iter_captured_tensors(self) -> Iterator[Tensor]:
        return self.score.iter_captured_tensors()

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return self.score.numbers_per_pair(query, keys)

    def extra_repr(self) -> str:
        return f"cap={self.cap:g}"
