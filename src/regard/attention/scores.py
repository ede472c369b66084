"""Score functions, which measure how well each key matches each query, and their names.

Dot products and small networks are defined here, kernels of a distance in `kernel_scores`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
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
    upcast,
    upcast_matmul,
)
from regard.attention.function_score import FunctionScore
from regard.attention.kernel_scores import Boxcar, Epanechnikov, Exact, Gaussian
from regard.attention.score_checks import check_positive_sizes, check_same_width, check_type
from regard.errors import RegardError, unknown_name


class Dot(Score):
    """The dot product q·k; query and keys must have the same width.

    Example:
        >>> out = attend(query, keys, values, "dot")  # the same as Dot()
    """

    form: Form = "dot"
    numbers_each: int | None = 1

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        check_same_width(self, query, keys)
        return upcast_matmul(upcast(query) * self.scale(query), keys.mT)

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        check_same_width(self, query, keys)
        return DotForm(query, keys, self.scale(query))

    @property
    def has_head_parameters(self) -> bool:
        return False

    def scale(self, query: Tensor) -> float:
        """Return the factor of the product."""
        return 1.0


class ScaledDot(Dot):
    """The scaled dot product q·k / sqrt(width), the default of `attend` (Vaswani et al. 2017).

    Example:
        >>> out = attend(query, keys, values)  # the same as ScaledDot()
    """

    form: Form = "dot"

    def scale(self, query: Tensor) -> float:
        return 1 / math.sqrt(max(1, query.shape[-1]))


class FixedDot(Dot):
    """q·k times a fixed number; the score of every prepared `DotForm`."""

    form: Form = "dot"

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.dot_scale: float = scale

    def scale(self, query: Tensor) -> float:
        return self.dot_scale


@lru_cache(maxsize=64)
def get_fixed_dot(scale: float) -> FixedDot:
    """Return the cached `FixedDot` of a scale; it has no parameters."""
    return FixedDot(scale)


class Hard(Dot):
    """Hard attention: the key with the largest q·k, the first of ties, gets all the weight.

    Query and keys get no gradient.

    Example:
        >>> out = attend(query, keys, values, "hard")
    """

    form: Form = "dot"
    differentiable: ClassVar[bool] = False


class Bilinear(Score):
    """The bilinear score q^T W k, called "general" by Luong et al. (2015).

    Args:
        query_dim: Width of the queries.
        key_dim: Width of the keys.
        heads: Number of heads (or a grid of heads) with separate parameters; None shares one set.

    Example:
        >>> out = attend(query, keys, values, Bilinear(query_dim=64, key_dim=32))
    """

    form: Form = "dot"
    numbers_each: int | None = 1

    def __init__(self, query_dim: int, key_dim: int, *, heads: Heads = None) -> None:
        super().__init__()
        check_positive_sizes("Bilinear", query_dim=query_dim, key_dim=key_dim)
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.weight = new_parameter(heads, query_dim, key_dim, fan_in=query_dim)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return upcast_matmul(project(self, query, self.weight), keys.mT)

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(project(self, query, self.weight), keys)


class ReducedRank(SplitScore):
    """The bilinear score (U^T k)·(V q), whose matrix V^T U^T has low rank and is never built.

    Args:
        query_dim: Width of the queries.
        key_dim: Width of the keys.
        rank: Rank of the matrix.
        heads: Number of heads (or a grid of heads) with separate parameters; None shares one set.

    Example:
        >>> out = attend(query, keys, values, ReducedRank(query_dim=64, key_dim=32, rank=8))
    """

    form: Form = "dot"
    numbers_each: int | None = 1

    def __init__(self, query_dim: int, key_dim: int, rank: int, *, heads: Heads = None) -> None:
        super().__init__()
        check_positive_sizes("ReducedRank", query_dim=query_dim, key_dim=key_dim, rank=rank)
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.query_weight = new_parameter(heads, rank, query_dim, fan_in=query_dim)
        self.key_weight = new_parameter(heads, key_dim, rank, fan_in=key_dim)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.compare(*self.prepare(query, keys))

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(*self.prepare(query, keys))

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return project(self, query, self.query_weight.mT)

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return project(self, keys, self.key_weight)

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return upcast_matmul(query, keys.mT)


class Additive(SplitScore):
    """The additive score w·tanh(W q + V k) (Bahdanau et al. 2015).

    Args:
        query_dim: Width of the queries.
        key_dim: Width of the keys.
        hidden: Width of the hidden layer.
        heads: Number of heads (or a grid of heads) with separate parameters; None shares one set.
        activation: A function to use instead of tanh.

    Example:
        >>> out = attend(query, keys, values, Additive(query_dim=64, key_dim=32, hidden=128))
    """

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
        check_positive_sizes("Additive", query_dim=query_dim, key_dim=key_dim, hidden=hidden)
        if not callable(activation):
            raise RegardError(f"Additive: activation must be a function such as torch.tanh, got {activation!r}")
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.query_weight = new_parameter(heads, hidden, query_dim, fan_in=query_dim)
        self.key_weight = new_parameter(heads, hidden, key_dim, fan_in=key_dim)
        self.energy = new_parameter(heads, hidden, fan_in=hidden)
        self.numbers_each = hidden
        self.activation = activation
        if activation is not torch.tanh:
            self.form, self.stochastic = "other", True

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        projected_query, projected_keys = self.prepare(query, keys)
        return apply_energy(self.activation(pairwise_sum(projected_query, projected_keys)), self.energy)

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return project(self, query, self.query_weight.mT)

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return project(self, keys, self.key_weight.mT)

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        if self.activation is torch.tanh:
            return tanh_energy(query, keys, self.energy)
        return apply_energy(self.activation(pairwise_sum(query, keys)), self.energy)


class Concat(SplitScore):
    """The concatenation score w·tanh(W [q; k]); equals `Additive` with W split in two.

    Args:
        query_dim: Width of the queries.
        key_dim: Width of the keys.
        hidden: Width of the hidden layer.
        heads: Number of heads (or a grid of heads) with separate parameters; None shares one set.

    Example:
        >>> out = attend(query, keys, values, Concat(query_dim=64, key_dim=32, hidden=128))
    """

    form: Form = "additive"

    def __init__(self, query_dim: int, key_dim: int, hidden: int, *, heads: Heads = None) -> None:
        super().__init__()
        check_positive_sizes("Concat", query_dim=query_dim, key_dim=key_dim, hidden=hidden)
        self.query_dim, self.key_dim, self.head_grid = query_dim, key_dim, head_axes(heads)
        self.weight = new_parameter(heads, hidden, query_dim + key_dim, fan_in=query_dim + key_dim)
        self.energy = new_parameter(heads, hidden, fan_in=hidden)
        self.numbers_each = hidden

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        batch = broadcast_shapes(query.shape[:-2], keys.shape[:-2])
        n, m = query.shape[-2], keys.shape[-2]
        expanded_query = query[..., :, None, :].expand(*batch, n, m, query.shape[-1])
        expanded_keys = keys[..., None, :, :].expand(*batch, n, m, keys.shape[-1])
        joined = torch.cat([expanded_query, expanded_keys], dim=-1).flatten(-3, -2)  # (*batch, n·m, both)
        mixed = torch.tanh(upcast(project(self, joined, self.weight.mT)))
        return apply_energy(mixed.unflatten(-2, (n, m)), self.energy)

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return project(self, query, self.weight[..., : self.query_dim].mT)

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return project(self, keys, self.weight[..., self.query_dim :].mT)

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return tanh_energy(query, keys, self.energy)


class PreparedAdditive(Score):
    """The additive score w·tanh(q + k) of queries and keys that are already projected."""

    form: Form = "additive"

    def __init__(self, energy: Float[Tensor, "*heads hidden"]) -> None:
        super().__init__()
        self.energy = energy
        self.numbers_each = energy.shape[-1]

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return tanh_energy(query, keys, self.energy)


class Uniform(Score):
    """The same score for every key: the output is the mean of the visible values.

    Query and keys get no gradient.

    Example:
        >>> out = attend(query, keys, values, "uniform", visible=lengths([5, 3]))
    """

    form: Form = "constant"
    numbers_each: int | None = 1
    differentiable: ClassVar[bool] = False

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        batch = broadcast_shapes(query.shape[:-2], keys.shape[:-2])
        return upcast(query).new_zeros(*batch, query.shape[-2], keys.shape[-2])

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

SCORE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
"""The activations of `additive` that have a name."""

SCORES = sorted([*PARAMETER_FREE, "additive", "bilinear", "concat", "reduced_rank"])
"""The names of all score functions."""

EQUAL_WIDTHS = frozenset(PARAMETER_FREE) - {"uniform"}
"""The names of scores that require query and keys of the same width."""


def as_score(score: object) -> Score:
    """Return a score as is, or create one from a function or from a name that requires no parameters."""
    if isinstance(score, Score):
        return score
    if callable(score) and not isinstance(score, type):
        return FunctionScore(score)
    if not isinstance(score, str):
        type_name = f"the class {score.__name__}" if isinstance(score, type) else type(score).__name__
        raise RegardError(
            "score must be a name, a score such as regard.attention.Gaussian(), or a function of (query, keys), "
            f"got {type_name}"
        )
    if score in PARAMETER_FREE:
        return PARAMETER_FREE[score]()
    if score in SCORES:
        raise RegardError(
            f'score "{score}" has parameters; create it once and pass it: '
            f'score = regard.attention.build_score("{score}", query_dim=..., key_dim=...)'
        )
    raise unknown_name("score", score, SCORES)


def resolve_score(score: object) -> Score:
    """Return a score as `as_score` does; those of a name that requires no parameters are shared: do not modify them."""
    return SHARED_SCORES[score] if isinstance(score, str) and score in SHARED_SCORES else as_score(score)


def build_shared_scores() -> dict[str, Score]:
    """Build the scores of all names that require no parameters."""
    with torch.inference_mode(False), torch.device("cpu"):  # independent of the context of the import
        return {name: kind() for name, kind in PARAMETER_FREE.items()}


SHARED_SCORES = build_shared_scores()


def build_score(
    name: str,
    query_dim: int,
    key_dim: int,
    *,
    hidden: int | None = None,
    rank: int | None = None,
    activation: str = "tanh",
    power: float = 1.0,
    heads: Heads = None,
) -> Score:
    """Create a score by name, for queries and keys of the given widths.

    Args:
        name: One of `SCORES`.
        query_dim: Width of the queries.
        key_dim: Width of the keys.
        hidden: Width of the hidden layer of `additive` and `concat`. Defaults to `key_dim`.
        rank: Rank of `reduced_rank`. Defaults to a quarter of the smaller width.
        activation: Activation of `additive`: `tanh`, `relu` or `sigmoid`.
        power: Exponent of `epanechnikov`.
        heads: Number of heads (or a grid of heads) with separate parameters; None shares one set.

    Returns:
        The score, a module for the `score` argument of `attend`.

    Raises:
        RegardError: If the name is unknown or a size is not a positive integer.

    Example:
        >>> score = build_score("additive", query_dim=64, key_dim=32, hidden=128)
        >>> out = attend(query, keys, values, score)
    """
    hidden = key_dim if hidden is None else hidden
    if name == "additive":
        if activation not in SCORE_ACTIVATIONS:
            raise unknown_name("activation", activation, SCORE_ACTIVATIONS)
        return Additive(query_dim, key_dim, hidden, heads=heads, activation=SCORE_ACTIVATIONS[activation])
    if name == "concat":
        return Concat(query_dim, key_dim, hidden, heads=heads)
    if name == "epanechnikov":
        return Epanechnikov(power=power)
    if name == "bilinear":
        return Bilinear(query_dim, key_dim, heads=heads)
    if name == "reduced_rank":
        rank = max(1, min(query_dim, key_dim) // 4) if rank is None else rank
        return ReducedRank(query_dim, key_dim, rank, heads=heads)
    return as_score(name)


def find_scores_without_gradient(model: nn.Module) -> dict[str, str]:
    """Return the scores in a model that give query and keys no gradient: path -> class name."""
    return {
        path: type(module).__name__
        for path, module in model.named_modules()
        if isinstance(module, Score) and not module.differentiable
    }


def project(score: Score, tensor: Float[Tensor, "..."], weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Multiply queries or keys by parameters, which must have the same type."""
    check_type(type(score).__name__, "a query or key", tensor, weight)
    return tensor @ weight


def pairwise_sum(
    query: Float[Tensor, "*#batch queries width"], keys: Float[Tensor, "*#batch keys width"]
) -> Float[Tensor, "*batch queries keys width"]:
    """Return the sum of each query and each key."""
    return upcast(query)[..., :, None, :] + upcast(keys)[..., None, :, :]


def apply_energy(
    mixed: Float[Tensor, "*batch queries keys hidden"], energy: Float[Tensor, "*#heads hidden"]
) -> Float[Tensor, "*batch queries keys"]:
    """Return w·mixed for each pair, with the w of its head."""
    if energy.ndim == 1:
        return upcast_matmul(mixed, energy)
    flat = upcast_matmul(mixed.flatten(-3, -2), energy[..., None])  # one product per head for all pairs
    return flat.squeeze(-1).unflatten(-1, mixed.shape[-3:-1])


def tanh_energy(
    query: Float[Tensor, "*#batch queries hidden"],
    keys: Float[Tensor, "*#batch keys hidden"],
    energy: Float[Tensor, "*#heads hidden"],
) -> Float[Tensor, "*batch queries keys"]:
    """Compute w·tanh(q + k) as 2 sigmoid(2x) - 1: torch's sigmoid takes a sixth of the time of tanh on a CPU."""
    total = upcast(energy).sum(-1)[..., None, None]
    return 2 * apply_energy(torch.sigmoid(pairwise_sum(2 * upcast(query), 2 * upcast(keys))), energy) - total
