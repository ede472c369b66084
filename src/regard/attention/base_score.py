"""The base class of score functions and the helpers they share.

A score is a small module. `forward(query, keys)` returns the full score matrix by the plain formula
and serves as the reference. To run fast, a score can define more: `as_dot`, if it can be written as
a dot product, so that fused kernels can run it; or `prepare` and `compare`, which split the work per
query and per key from the work per pair, which then runs in tiles. Its `form` tells kernels whether
they support it. Your own score only has to define `forward`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.visible import fits_axis
from regard.errors import RegardError

Heads = int | Sequence[int] | None
"""Parameters shared by all heads (None), one set per head (a number), or one per cell of a grid of heads."""


Form = Literal["dot", "additive", "distance", "constant", "other"]
"""What a score computes: "dot" is q·k (on the result of `as_dot`), "additive" is w·tanh(q + k) (on the result of
`prepare`, where w is `energy`), "distance" is a `Kernel` of |q - k|, "constant" is 0 for all keys."""


class DotForm(NamedTuple):
    """A score written as `scale * query @ keys.mT + key_bias`, up to a constant per query.

    Softmax ignores such constants. The key bias must be finite; use `visible` to hide keys.

    Example:
        >>> class Cosine(Score):
        ...     def forward(self, query, keys):
        ...         return 8 * normalize(query, dim=-1) @ normalize(keys, dim=-1).mT
        ...
        ...     def as_dot(self, query, keys):  # runs on fused kernels
        ...         return DotForm(normalize(query, dim=-1), normalize(keys, dim=-1), scale=8.0)
    """

    query: Float[Tensor, "*query_batch queries width"]
    keys: Float[Tensor, "*keys_batch keys width"]
    scale: float = 1.0
    key_bias: Float[Tensor, "*bias_batch keys"] | None = None


class Score(nn.Module):
    """The base class of all score functions; subclasses override `forward`.

    The score of a query and a key may depend only on these two, not on other keys, which may be in
    another tile.

    Example:
        >>> class Cosine(Score):
        ...     def forward(self, query, keys):
        ...         return 8 * normalize(query, dim=-1) @ normalize(keys, dim=-1).mT
        >>> out = attend(query, keys, values, Cosine())
    """

    query_dim: int | None = None  # the required widths; None accepts any
    key_dim: int | None = None
    head_grid: tuple[int, ...] = ()  # the heads with separate parameters; empty if shared by all
    differentiable: ClassVar[bool] = True  # whether query and keys get a gradient
    form: Form = "other"  # defaults to "dot" for a class that defines `as_dot`
    numbers_each: int | None = None  # elements `compare` holds per pair; None: the query's width
    stochastic: bool = True  # whether it may draw random numbers; False for classes that set `form`
    dot_scale: float | None = None  # set if the score is this times q·k
    title: str  # what messages call it; defaults to the name of the class

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.title = cls.__name__
        cls.stochastic = "form" not in vars(cls)
        if cls.stochastic:
            cls.form = "other" if cls.as_dot is Score.as_dot else "dot"

    def forward(
        self, query: Float[Tensor, "*#batch queries query_width"], keys: Float[Tensor, "*#batch keys key_width"]
    ) -> Float[Tensor, "*batch queries keys"]:
        """Score every key for every query by the plain formula."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(query, keys)")

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm | None:
        """Return the scores as a dot product, or None if that is not possible."""
        return None

    def prepare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        """Do the work per query and per key; return the prepared queries and keys."""
        return query, keys

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        """Score every pair of prepared queries and keys."""
        return self.forward(query, keys)

    def precompute_keys(self, keys: Float[Tensor, "..."]) -> tuple[Score, Tensor]:
        """Do the work per key once; return a score and keys for queries that arrive one by one."""
        return self, keys

    def needs_autograd(self, query: Tensor, keys: Tensor) -> bool:
        """Return whether tensors need a gradient that are neither query, keys nor parameters; tiles cannot give it."""
        return False

    @property
    def has_head_parameters(self) -> bool:
        """Whether a head may be scored with parameters of its own, so that the scores of one head need all heads."""
        return True

    def iter_captured_tensors(self) -> Iterator[Tensor]:
        """Iterate over tensors that the scores depend on, besides query, keys and parameters, as far as known."""
        return iter(())

    def extra_repr(self) -> str:
        parameters = ((name, p) for name, p in self.named_parameters(recurse=False))
        return ", ".join(
            f"{name}={p.item():g}" if p.numel() == 1 else f"{name}={tuple(p.shape)}" for name, p in parameters
        )

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        """Return how many elements `compare` holds per pair at once, which limits the tile size."""
        return self.numbers_each or max(1, query.shape[-1])


class SplitScore(Score):
    """A score with separate preparation of queries and keys."""

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        """Do the work per query."""
        raise NotImplementedError(f"{type(self).__name__} must define prepare_query(query)")

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        """Do the work per key."""
        raise NotImplementedError(f"{type(self).__name__} must define prepare_keys(keys)")

    def prepare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        return self.prepare_query(query), self.prepare_keys(keys)

    def precompute_keys(self, keys: Float[Tensor, "..."]) -> tuple[Score, Tensor]:
        return PrecomputedScore(self), self.prepare_keys(keys)


class PrecomputedScore(Score):
    """A score for keys that are already prepared."""

    def __init__(self, score: SplitScore) -> None:
        super().__init__()
        self.score, self.query_dim, self.head_grid = score, score.query_dim, score.head_grid
        self.form, self.stochastic = "other" if score.form == "dot" else score.form, score.stochastic

    @property
    def energy(self) -> Tensor:
        """The vector w of an additive score."""
        return self.score.energy  # type: ignore[return-value]

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.score.compare(self.score.prepare_query(query), keys)

    def prepare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        return self.score.prepare_query(query), keys

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.score.compare(query, keys)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return self.score.numbers_per_pair(query, keys)


def head_axes(heads: Heads) -> tuple[int, ...]:
    """Return the leading axes of a parameter: none, one for the heads, or a grid of heads."""
    if heads is None:
        return ()
    axes = (heads,) if not isinstance(heads, Sequence) else tuple(heads)
    if not all(isinstance(axis, int) and not isinstance(axis, bool) and axis >= 1 for axis in axes):
        raise RegardError(f"heads must be a positive integer or a sequence of them, got {heads!r}")
    return axes


def new_parameter(heads: Heads, *shape: int, fan_in: int) -> nn.Parameter:
    """Create a parameter of `shape` for each head, uniform within 1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*head_axes(heads), *shape).uniform_(-bound, bound))


def upcast(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return a tensor in at least float32, so that weights do not have half precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def upcast_matmul(left: Float[Tensor, "..."], right: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return a matrix product in at least float32, even under autocast."""
    with torch.autocast(left.device.type, enabled=False):
        return upcast(left) @ upcast(right)


def get_score_parameters(score: Score) -> dict[str, Tensor]:
    """Return a score's parameters by name, including plain tensors, which `nn.DataParallel` replicas have instead."""
    parameters: dict[str, Tensor] = dict(score.named_parameters())
    for path, module in score.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                parameters[f"{path}.{name}" if path else name] = value
    return parameters


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """Return the shape that all shapes broadcast to; raise a ValueError if there is none.

    torch's own function takes a third of a second to import.
    """
    max_axes = max(len(shape) for shape in shapes)
    padded = [(1,) * (max_axes - len(shape)) + tuple(shape) for shape in shapes]
    result = torch.Size(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
    if not all(fits_axis(size, expected) for shape in padded for size, expected in zip(shape, result, strict=True)):
        raise ValueError(f"{', '.join(str(tuple(shape)) for shape in shapes)} do not broadcast")
    return result
