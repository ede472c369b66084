"""The score functions: how well does each key answer each query?

Dot products and small networks are here, the kernels of a distance in
`kernel_scores`; by name all are found here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.base_score import (
    DotForm,
    Form,
    Heads,
    Score,
    SplitScore,
    broadcast_shapes,
    head_axes,
    new_parameter,
    product,
    widened,
)
from regard.attention.kernel_scores import Boxcar, Epanechnikov, Exact, Gaussian
from regard.attention.score_checks import check_sizes, check_type, same_width
from regard.errors import RegardError, unknown_name


class Dot(Score):
    """q·k."""

    form: Form = "dot"
    numbers_each: int | None = 1

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        same_width(self, query, keys)
        return product(widened(query) * self.scale(query), keys.mT)

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        same_width(self, query, keys)
        return DotForm(query, keys, self.scale(query))

    def scale(self, query: Tensor) -> float:
        """The factor before the product."""
        return 1.0


class ScaledDot(Dot):
    """q·k / sqrt(width): of variance one where query and key are (Vaswani et al. 2017)."""

    form: Form = "dot"

    def scale(self, query: Tensor) -> float:
        return 1 / math.sqrt(max(1, query.shape[-1]))


class FixedDot(Dot):
    """q·k times a given number: what every `DotForm` is compared by."""

    form: Form = "dot"

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.dot_scale: float = scale

    def scale(self, query: Tensor) -> float:
        return self.dot_scale


@lru_cache(maxsize=64)
def fixed_dot(scale: float) -> FixedDot:
    """The same, made once for each number: nothing of it is learnt."""
    return FixedDot(scale)


class Hard(Dot):
    """q·k, and the best key (the first of equals) gets all the weight; no gradient for query and key."""

    form: Form = "dot"
    differentiable: ClassVar[bool] = False


class Bilinear(Score):
    """q^T W k, also where query and key differ in width (Luong et al. 2015 call it general)."""

    form: Form = "dot"
    numbers_each: int | None = 1

    def __init__(self, query_dim: int, key_dim: int, *, heads: Heads = None) -> None:
        super().__init__()
        check_sizes("Bilinear", query_dim=query_dim, key_dim=key_dim)
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.weight = new_parameter(heads, query_dim, key_dim, fan_in=query_dim)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return product(times(self, query, self.weight), keys.mT)

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(times(self, query, self.weight), keys)


class ReducedRank(SplitScore):
    """(U^T k)·(V q): `Bilinear` with a matrix of low rank, V^T U^T, that is never made."""

    form: Form = "dot"
    numbers_each: int | None = 1

    def __init__(self, query_dim: int, key_dim: int, rank: int, *, heads: Heads = None) -> None:
        super().__init__()
        check_sizes("ReducedRank", query_dim=query_dim, key_dim=key_dim, rank=rank)
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.query_weight = new_parameter(heads, rank, query_dim, fan_in=query_dim)
        self.key_weight = new_parameter(heads, key_dim, rank, fan_in=key_dim)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.compare(*self.prepare(query, keys))

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(*self.prepare(query, keys))

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return times(self, query, self.query_weight.mT)

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return times(self, keys, self.key_weight)

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return product(query, keys.mT)


class Additive(SplitScore):
    """w·g(W q + V k), g = tanh unless told otherwise (Bahdanau et al. 2015)."""

    form: Form = "additive"

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden: int,
        *,
        heads: Heads = None,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
    ) -> None:
        super().__init__()
        check_sizes("Additive", query_dim=query_dim, key_dim=key_dim, hidden=hidden)
        if not callable(activation):
            raise RegardError(f"Additive: activation is {activation!r}; a function is needed, such as torch.tanh")
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.query_weight = new_parameter(heads, hidden, query_dim, fan_in=query_dim)
        self.key_weight = new_parameter(heads, hidden, key_dim, fan_in=key_dim)
        self.energy = new_parameter(heads, hidden, fan_in=hidden)
        self.numbers_each = hidden
        self.activation = activation
        if activation is not torch.tanh:
            self.form, self.draws = "other", True

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        ours, theirs = self.prepare(query, keys)
        return weigh(self.activation(every_pair(ours, theirs)), self.energy)

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return times(self, query, self.query_weight.mT)

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return times(self, keys, self.key_weight.mT)

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        if self.activation is torch.tanh:
            return energy_of_tanh(query, keys, self.energy)
        return weigh(self.activation(every_pair(query, keys)), self.energy)


class Concat(SplitScore):
    """w·tanh(W [q; k]), as first written down: equals `Additive` with W split in two."""

    form: Form = "additive"

    def __init__(self, query_dim: int, key_dim: int, hidden: int, *, heads: Heads = None) -> None:
        super().__init__()
        check_sizes("Concat", query_dim=query_dim, key_dim=key_dim, hidden=hidden)
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.weight = new_parameter(heads, hidden, query_dim + key_dim, fan_in=query_dim + key_dim)
        self.energy = new_parameter(heads, hidden, fan_in=hidden)
        self.numbers_each = hidden

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        batch = broadcast_shapes(query.shape[:-2], keys.shape[:-2])
        n, m = query.shape[-2], keys.shape[-2]
        ours = query[..., :, None, :].expand(*batch, n, m, query.shape[-1])
        theirs = keys[..., None, :, :].expand(*batch, n, m, keys.shape[-1])
        joined = torch.cat([ours, theirs], dim=-1).flatten(-3, -2)  # (*batch, n·m, both)
        mixed = torch.tanh(widened(times(self, joined, self.weight.mT)))
        return weigh(mixed.unflatten(-2, (n, m)), self.energy)

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return times(self, query, self.weight[..., : self.query_dim].mT)

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return times(self, keys, self.weight[..., self.query_dim :].mT)

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return energy_of_tanh(query, keys, self.energy)


class Uniform(Score):
    """Every key alike: average pooling; no gradient for query and key."""

    form: Form = "constant"
    numbers_each: int | None = 1
    differentiable: ClassVar[bool] = False

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        batch = broadcast_shapes(query.shape[:-2], keys.shape[:-2])
        return widened(query).new_zeros(*batch, query.shape[-2], keys.shape[-2])

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(query.new_zeros(*query.shape[:-1], 1), keys.new_zeros(*keys.shape[:-1], 1))


PARAMETER_FREE: dict[str, type[Score]] = {
    "boxcar": Boxcar,
    "dot": Dot,
    "epanechnikov": Epanechnikov,
    "exact": Exact,
    "gaussian": Gaussian,
    "hard": Hard,
    "scaled_dot": ScaledDot,
    "uniform": Uniform,
}

SCORES = sorted([*PARAMETER_FREE, "additive", "bilinear", "concat", "reduced_rank"])
"""The names of all score functions."""

EQUAL_WIDTHS = frozenset(PARAMETER_FREE) - {"uniform"}
"""Those that need query and key to be of one width."""


def as_score(score: object) -> Score:
    """The score function of a name that needs no parameters, or the module itself."""
    if isinstance(score, Score):
        return score
    if not isinstance(score, str):
        found = f"the class {score.__name__}" if isinstance(score, type) else type(score).__name__
        raise RegardError(f"score: found {found}; give a name or a score, such as regard.attention.Gaussian()")
    if score in PARAMETER_FREE:
        return PARAMETER_FREE[score]()
    if score in SCORES:
        raise RegardError(f'score: "{score}" has parameters; make it with regard.attention.build_score("{score}", ...)')
    raise unknown_name("score", score, SCORES)


def score_for_a_call(score: object) -> Score:
    """The same where nobody keeps it: of a name there is one for all calls, since to make a module takes its time."""
    return made_once(score) if isinstance(score, str) and score in PARAMETER_FREE else as_score(score)


@cache
def made_once(name: str) -> Score:
    """The score function of a name that needs no parameters; it must not be changed."""
    with torch.inference_mode(False), torch.device("cpu"):  # whatever holds where it is first asked for
        return PARAMETER_FREE[name]()


def build_score(
    name: str,
    query_dim: int,
    key_dim: int,
    *,
    hidden: int | None = None,
    rank: int | None = None,
    heads: Heads = None,
) -> Score:
    """A new score function of any name, for queries and keys of these widths.

    `hidden` is key_dim unless told otherwise, `rank` a quarter of the smaller width.
    """
    if name in ("additive", "concat"):
        kind = Additive if name == "additive" else Concat
        return kind(query_dim, key_dim, key_dim if hidden is None else hidden, heads=heads)
    if name == "bilinear":
        return Bilinear(query_dim, key_dim, heads=heads)
    if name == "reduced_rank":
        rank = max(1, min(query_dim, key_dim) // 4) if rank is None else rank
        return ReducedRank(query_dim, key_dim, rank, heads=heads)
    return as_score(name)


def without_gradient(model: nn.Module) -> dict[str, str]:
    """The score functions inside a model from which query and key learn nothing: path -> class."""
    return {
        path: type(module).__name__
        for path, module in model.named_modules()
        if isinstance(module, Score) and not module.differentiable
    }


def times(score: Score, given: Float[Tensor, "..."], weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Queries or keys times parameters, which must be of their type."""
    check_type(type(score).__name__, "a query or key", given, weight)
    return given @ weight


def every_pair(
    query: Float[Tensor, "*#batch queries width"], keys: Float[Tensor, "*#batch keys width"]
) -> Float[Tensor, "*batch queries keys width"]:
    """The sum of each query with each key."""
    return widened(query)[..., :, None, :] + widened(keys)[..., None, :, :]


def weigh(
    mixed: Float[Tensor, "*batch queries keys hidden"], energy: Float[Tensor, "*#heads hidden"]
) -> Float[Tensor, "*batch queries keys"]:
    """w·mixed for each pair, with the w of its head."""
    if energy.ndim == 1:
        return product(mixed, energy)
    flat = product(mixed.flatten(-3, -2), energy[..., None])  # one product for all pairs of a head
    return flat.squeeze(-1).unflatten(-1, mixed.shape[-3:-1])


def energy_of_tanh(
    query: Float[Tensor, "*#batch queries hidden"],
    keys: Float[Tensor, "*#batch keys hidden"],
    energy: Float[Tensor, "*#heads hidden"],
) -> Float[Tensor, "*batch queries keys"]:
    """w·tanh(q + k) by way of 2 sigmoid(2x) - 1: torch's sigmoid takes a sixth of the time of its tanh on a CPU."""
    total = widened(energy).sum(-1)[..., None, None]
    return 2 * weigh(torch.sigmoid(every_pair(2 * widened(query), 2 * widened(keys))), energy) - total
