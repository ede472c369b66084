"""What a score function is, and what all of them share.

Each is a small module, callable on (query, keys), that returns the plain matrix of
its formula: the reference. To run fast a score says one of two things more. Either
it is a dot product in disguise (`as_dot`), and fused kernels take it; or it splits
into work done once for each query and key (`prepare`) and work done for each pair
(`compare`), which is then walked over in tiles. Its `form` tells kernels whether they
are made for it. A score of your own needs `forward` alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import RegardError

Heads = int | Sequence[int] | None
"""One set of parameters for all (None), for each head (a number), or for each of a grid of heads."""


Form = Literal["dot", "additive", "distance", "constant", "other"]
"""What a score computes: q·k (of what `as_dot` gives), w·tanh(q + k) (of what `prepare` gives, where w is its
`energy`), a `Kernel` of |q - k|, 0 for all keys, or anything else."""


class DotForm(NamedTuple):
    """A score as `scale * query @ keys.mT + key_bias`, up to a term that no softmax sees.

    The key bias is finite: who may see what is said with `visible`.
    """

    query: Float[Tensor, "*query_batch queries width"]
    keys: Float[Tensor, "*keys_batch keys width"]
    scale: float = 1.0
    key_bias: Float[Tensor, "*bias_batch keys"] | None = None


class Score(nn.Module):
    """Base of all score functions; a new one overrides `forward`.

    The score of a query and a key may depend on these two alone, not on the other keys:
    they may be in another tile.
    """

    query_dim: int | None = None  # the widths it is made for; None takes any
    key_dim: int | None = None
    head_grid: tuple[int, ...] = ()  # the heads that have parameters of their own; one set for all where it is empty
    differentiable: ClassVar[bool] = True  # whether query and key get a gradient
    form: Form = "other"  # a class that does not say it is "dot" where it has `as_dot`, else "other"
    numbers_each: int | None = None  # that `compare` holds for each pair at once; None: as many as a query is wide
    draws: bool = True  # whether it may draw random numbers, as a class may that does not say its form
    dot_scale: float | None = None  # where a score is just this times q·k

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.draws = "form" not in vars(cls)
        if cls.draws:
            cls.form = "other" if cls.as_dot is Score.as_dot else "dot"

    def forward(
        self, query: Float[Tensor, "*#batch queries query_width"], keys: Float[Tensor, "*#batch keys key_width"]
    ) -> Float[Tensor, "*batch queries keys"]:
        """Score every key for every query by the plain formula."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(query, keys)")

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm | None:
        """The same scores as a dot product, where there is such a form."""
        return None

    def prepare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        """What is done once for each query and each key, before they meet."""
        return query, keys

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        """Score prepared queries and keys, every pair of them."""
        return self.forward(query, keys)

    def settle(self, keys: Float[Tensor, "..."]) -> tuple[Score, Tensor]:
        """What is done once for each key, done: a score and keys that give the same when queries come one by one."""
        return self, keys

    def extra_repr(self) -> str:
        found = ((name, p) for name, p in self.named_parameters(recurse=False))
        return ", ".join(f"{name}={p.item():g}" if p.numel() == 1 else f"{name}={tuple(p.shape)}" for name, p in found)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        """How many numbers `compare` holds for each pair at once; sets the size of a tile."""
        return self.numbers_each or max(1, query.shape[-1])


class SplitScore(Score):
    """A score with work of its own for each query and for each key."""

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        """What is done once for each query."""
        raise NotImplementedError(f"{type(self).__name__} must define prepare_query(query)")

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        """What is done once for each key."""
        raise NotImplementedError(f"{type(self).__name__} must define prepare_keys(keys)")

    def prepare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        return self.prepare_query(query), self.prepare_keys(keys)

    def settle(self, keys: Float[Tensor, "..."]) -> tuple[Score, Tensor]:
        return Settled(self), self.prepare_keys(keys)


class Settled(Score):
    """Another score, for keys that are prepared already."""

    def __init__(self, score: SplitScore) -> None:
        super().__init__()
        self.score, self.query_dim, self.head_grid = score, score.query_dim, score.head_grid
        self.form, self.draws = "other" if score.form == "dot" else score.form, score.draws

    @property
    def energy(self) -> Tensor:
        """The w of an additive score."""
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
    """The leading axes of a parameter: none, one for the heads, or a grid of them."""
    if heads is None:
        return ()
    axes = (heads,) if not isinstance(heads, Sequence) else tuple(heads)
    if not all(isinstance(axis, int) and not isinstance(axis, bool) and axis >= 1 for axis in axes):
        raise RegardError(f"heads: found {heads!r}; a whole number above 0, or a grid of such numbers, is needed")
    return axes


def new_parameter(heads: Heads, *shape: int, fan_in: int) -> nn.Parameter:
    """A parameter with one set of `shape` for each head, uniform within 1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*head_axes(heads), *shape).uniform_(-bound, bound))


def widened(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """At least float32: scores of half precision would make weights of half precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def product(left: Float[Tensor, "..."], right: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """A matrix product in at least float32, under autocast too."""
    with torch.autocast(left.device.type, enabled=False):
        return widened(left) @ widened(right)


def learnt(score: Score) -> dict[str, Tensor]:
    """The parameters of a score, by name, and its plain tensors, which replicas of `nn.DataParallel` have instead."""
    found: dict[str, Tensor] = dict(score.named_parameters())
    for path, module in score.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                found[f"{path}.{name}" if path else name] = value
    return found


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """The shape that all of these broadcast to; torch's own function takes a third of a second to load.

    Raises a ValueError where there is none.
    """
    longest = max(len(shape) for shape in shapes)
    padded = [(1,) * (longest - len(shape)) + tuple(shape) for shape in shapes]
    found = torch.Size(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
    if any(size not in (1, wanted) for shape in padded for size, wanted in zip(shape, found, strict=True)):
        raise ValueError(f"{', '.join(str(tuple(shape)) for shape in shapes)} do not broadcast")
    return found
