"""The score functions: how well does each key answer each query?

Each is a small module, callable on (query, keys), that returns the plain matrix of
its formula: the reference. To run fast a score says one of two things more. Either
it is a dot product in disguise (`as_dot`), and fused kernels take it; or it splits
into work done once for each query and key (`prepare`) and work done for each pair
(`compare`), which is then walked over in tiles. A score of your own needs `forward`
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import RegardError, unknown_name

Heads = int | Sequence[int] | None
"""One set of parameters for all (None), for each head (a number), or for each of a grid of heads."""


class DotForm(NamedTuple):
    """A score as `scale * query @ keys.mT + key_bias`, up to a term that no softmax sees."""

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
    differentiable: ClassVar[bool] = True  # whether query and key get a gradient

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
        scores: Tensor = self.forward(query, keys)
        return scores

    def settle(self, keys: Float[Tensor, "..."]) -> tuple[Score, Tensor]:
        """What is done once for each key, done: a score and keys that give the same when queries come one by one."""
        return self, keys

    def extra_repr(self) -> str:
        found = ((name, p) for name, p in self.named_parameters(recurse=False))
        return ", ".join(f"{name}={p.item():g}" if p.numel() == 1 else f"{name}={tuple(p.shape)}" for name, p in found)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        """How many numbers `compare` holds for each pair at once; sets the size of a tile."""
        return max(1, query.shape[-1])


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
        self.score, self.query_dim = score, score.query_dim

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.score.compare(self.score.prepare_query(query), keys)

    def prepare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        return self.score.prepare_query(query), keys

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.score.compare(query, keys)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return self.score.numbers_per_pair(query, keys)


class Dot(Score):
    """q·k."""

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        same_width(self, query, keys)
        return product(widened(query) * self.scale(query), keys.mT)

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        same_width(self, query, keys)
        return DotForm(query, keys, self.scale(query))

    def scale(self, query: Tensor) -> float:
        """The factor before the product."""
        return 1.0

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return 1


class ScaledDot(Dot):
    """q·k / sqrt(width): of variance one where query and key are (Vaswani et al. 2017)."""

    def scale(self, query: Tensor) -> float:
        return 1 / math.sqrt(max(1, query.shape[-1]))


class FixedDot(Dot):
    """q·k times a given number: what every `DotForm` is compared by."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.factor = scale

    def scale(self, query: Tensor) -> float:
        return self.factor


class Hard(Dot):
    """q·k, and the best key (the first of equals) gets all the weight; no gradient for query and key."""

    differentiable: ClassVar[bool] = False


class Bilinear(Score):
    """q^T W k, also where query and key differ in width (Luong et al. 2015 call it general)."""

    def __init__(self, query_dim: int, key_dim: int, *, heads: Heads = None) -> None:
        super().__init__()
        self.query_dim, self.key_dim = query_dim, key_dim
        self.weight = new_parameter(heads, query_dim, key_dim, fan_in=query_dim)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return product(query @ self.weight, keys.mT)

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(query @ self.weight, keys)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return 1


class ReducedRank(SplitScore):
    """(U^T k)·(V q): `Bilinear` with a matrix of low rank, V^T U^T, that is never made."""

    def __init__(self, query_dim: int, key_dim: int, rank: int, *, heads: Heads = None) -> None:
        super().__init__()
        self.query_dim, self.key_dim = query_dim, key_dim
        self.query_weight = new_parameter(heads, rank, query_dim, fan_in=query_dim)
        self.key_weight = new_parameter(heads, key_dim, rank, fan_in=key_dim)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.compare(*self.prepare(query, keys))

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(*self.prepare(query, keys))

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return query @ self.query_weight.mT

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return keys @ self.key_weight

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return product(query, keys.mT)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return 1


class Additive(SplitScore):
    """w·g(W q + V k), g = tanh unless told otherwise (Bahdanau et al. 2015)."""

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
        self.query_dim, self.key_dim = query_dim, key_dim
        self.query_weight = new_parameter(heads, hidden, query_dim, fan_in=query_dim)
        self.key_weight = new_parameter(heads, hidden, key_dim, fan_in=key_dim)
        self.energy = new_parameter(heads, hidden, fan_in=hidden)
        self.activation = activation

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        ours, theirs = self.prepare(query, keys)
        return weigh(self.activation(every_pair(ours, theirs)), self.energy)

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return query @ self.query_weight.mT

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return keys @ self.key_weight.mT

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        if self.activation is torch.tanh:
            return energy_of_tanh(query, keys, self.energy)
        return weigh(self.activation(every_pair(query, keys)), self.energy)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return self.energy.shape[-1]


class Concat(SplitScore):
    """w·tanh(W [q; k]), as first written down: equals `Additive` with W split in two."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int, *, heads: Heads = None) -> None:
        super().__init__()
        self.query_dim, self.key_dim = query_dim, key_dim
        self.weight = new_parameter(heads, hidden, query_dim + key_dim, fan_in=query_dim + key_dim)
        self.energy = new_parameter(heads, hidden, fan_in=hidden)

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        batch = torch.broadcast_shapes(query.shape[:-2], keys.shape[:-2])
        n, m = query.shape[-2], keys.shape[-2]
        ours = query[..., :, None, :].expand(*batch, n, m, query.shape[-1])
        theirs = keys[..., None, :, :].expand(*batch, n, m, keys.shape[-1])
        joined = torch.cat([ours, theirs], dim=-1).flatten(-3, -2)  # (*batch, n·m, both)
        mixed = torch.tanh(widened(joined @ self.weight.mT))
        return weigh(mixed.unflatten(-2, (n, m)), self.energy)

    def prepare_query(self, query: Float[Tensor, "..."]) -> Tensor:
        return query @ self.weight[..., : self.query_dim].mT

    def prepare_keys(self, keys: Float[Tensor, "..."]) -> Tensor:
        return keys @ self.weight[..., self.query_dim :].mT

    def compare(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return energy_of_tanh(query, keys, self.energy)

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return self.energy.shape[-1]


class Kernel(Score):
    """A score that is the logarithm of a kernel of the distance |q - k|, measured in `width`s.

    Kernels are divided by their sum. Where the support is finite that is done
    directly, since the gradient of the logarithm is infinite at the edge.
    """

    finite: ClassVar[bool] = True

    def __init__(self, width: float = 1.0, *, learnable: bool = False, heads: Heads = None) -> None:
        super().__init__()
        if not width > 0:
            raise RegardError(f"{type(self).__name__}: width is {width}; a kernel's width is above 0")
        grid = head_axes(heads)
        self.width = nn.Parameter(torch.full((*grid, 1, 1) if grid else (), float(width)), requires_grad=learnable)

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        """The kernel itself, 0 or more for every pair."""
        raise NotImplementedError(f"{type(self).__name__} must define kernel(query, keys)")

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.kernel(query, keys).log()

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return 1


class Gaussian(Kernel):
    """exp(-|q - k|²/2), which runs as a dot product: |q|²/2 cancels in the softmax."""

    finite: ClassVar[bool] = False

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.forward(query, keys).exp()

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return -((distance(self, query, keys) / self.width) ** 2) / 2

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        same_width(self, query, keys)
        squares = widened(keys).square().sum(-1, keepdim=True)
        if lies_far_off(keys, squares):
            centre = keys.detach().mean(-2, keepdim=True)
            query, keys = query - centre, keys - centre
            squares = keys.square().sum(-1, keepdim=True)
        precision = self.width.square().reciprocal()
        key_bias = (squares * (precision / -2)).squeeze(-1)
        if precision.ndim == 0 and not precision.requires_grad and precision.device.type == "cpu":
            return DotForm(query, keys, precision.item(), key_bias)  # as a number, it rounds no query
        return DotForm(query * precision.to(query.dtype), keys, 1.0, key_bias)


class Boxcar(Kernel):
    """1 where |q - k| <= width, else 0; no gradient for query and key."""

    differentiable: ClassVar[bool] = False

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        apart = distance(self, query, keys)
        return (apart <= self.width.abs()).to(apart.dtype)


class Epanechnikov(Kernel):
    """max(0, 1 - u) with u = |q - k| / width; `power=2` gives the textbook's 1 - u²."""

    def __init__(self, width: float = 1.0, *, power: float = 1.0, learnable: bool = False, heads: Heads = None) -> None:
        super().__init__(width, learnable=learnable, heads=heads)
        self.power = power

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        apart = distance(self, query, keys) / self.width.abs()
        return (1 - apart**self.power).clamp_min(0)


class Exact(Kernel):
    """1 where the key equals the query, else 0: a look-up in a database; no gradient for query and key."""

    differentiable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        same_width(self, query, keys)
        differing = torch.cdist(widened(query), widened(keys), p=0)
        return (differing == 0).to(differing.dtype)


class Uniform(Score):
    """Every key alike: average pooling; no gradient for query and key."""

    differentiable: ClassVar[bool] = False

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        batch = torch.broadcast_shapes(query.shape[:-2], keys.shape[:-2])
        return widened(query).new_zeros(*batch, query.shape[-2], keys.shape[-2])

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        return DotForm(query.new_zeros(*query.shape[:-1], 1), keys.new_zeros(*keys.shape[:-1], 1))

    def numbers_per_pair(self, query: Tensor, keys: Tensor) -> int:
        return 1


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
        raise RegardError(f"score: found {type(score).__name__}; give a name or a subclass of regard.attention.Score")
    if score in PARAMETER_FREE:
        return PARAMETER_FREE[score]()
    if score in SCORES:
        raise RegardError(f'score: "{score}" has parameters; make it with regard.attention.build_score("{score}", ...)')
    raise unknown_name("score", score, SCORES)


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
        return kind(query_dim, key_dim, hidden or key_dim, heads=heads)
    if name == "bilinear":
        return Bilinear(query_dim, key_dim, heads=heads)
    if name == "reduced_rank":
        return ReducedRank(query_dim, key_dim, rank or max(1, min(query_dim, key_dim) // 4), heads=heads)
    return as_score(name)


def without_gradient(model: nn.Module) -> dict[str, str]:
    """The score functions inside a model from which query and key learn nothing: path -> class."""
    return {
        path: type(module).__name__
        for path, module in model.named_modules()
        if isinstance(module, Score) and not module.differentiable
    }


def head_axes(heads: Heads) -> tuple[int, ...]:
    """The leading axes of a parameter: none, one for the heads, or a grid of them."""
    if heads is None:
        return ()
    return (heads,) if isinstance(heads, int) else tuple(heads)


def check_widths(score: Score, query: Tensor, keys: Tensor) -> None:
    """Raise a `RegardError` where queries or keys are not as wide as a score was made for."""
    for name, made_for, found in (("query", score.query_dim, query), ("keys", score.key_dim, keys)):
        if made_for is not None and found.shape[-1] != made_for:
            raise RegardError(
                f"{type(score).__name__}: made for {name} of width {made_for}, found width {found.shape[-1]}"
            )


def new_parameter(heads: Heads, *shape: int, fan_in: int) -> nn.Parameter:
    """A parameter with one set of `shape` for each head, uniform within 1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(max(1, fan_in))
    return nn.Parameter(torch.empty(*head_axes(heads), *shape).uniform_(-bound, bound))


def widened(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """At least float32: scores of half precision would make weights of half precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def product(left: Float[Tensor, "..."], right: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """A matrix product in at least float32, under autocast too."""
    with torch.autocast(left.device.type, enabled=False):
        return widened(left) @ widened(right)


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


def distance(score: Score, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
    """|q - k| by differences, exact at the edge of a kernel where |q|² - 2q·k + |k|² is not."""
    same_width(score, query, keys)
    return torch.cdist(widened(query), widened(keys), compute_mode="donot_use_mm_for_euclid_dist")


def lies_far_off(keys: Float[Tensor, "..."], squares: Float[Tensor, "..."]) -> bool:
    """Whether keys should be moved to lie about zero, where q·k and |k|² are small and so exact.

    Those of half precision stay, since moving would round them. On a GPU a look costs
    more than the move.
    """
    if keys.dtype in (torch.float16, torch.bfloat16) or keys.numel() == 0:
        return False
    if keys.device.type != "cpu":
        return True
    with torch.no_grad():
        some = keys[..., :: 1 + keys.shape[-2] // 64, :]  # enough to see where they lie
        return bool(some.mean(-2).square().sum(-1).amax() > squares.mean() / 2)


def same_width(score: Score, query: Tensor, keys: Tensor) -> None:
    """Raise a `RegardError` where a score needs equal widths and has them not."""
    if query.shape[-1] != keys.shape[-1]:
        raise RegardError(
            f"{type(score).__name__}: query has width {query.shape[-1]}, keys have {keys.shape[-1]}; "
            "equal widths are needed (Bilinear, ReducedRank, Additive and Concat take any)"
        )
