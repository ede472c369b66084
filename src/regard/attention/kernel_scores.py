"""Scores that are kernels of the distance between query and key."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.base_score import DotForm, Form, Heads, Score, head_axes, upcast
from regard.attention.score_checks import check_same_width, is_number
from regard.errors import RegardError

NEAR = 16.0  # |k|, in widths, up to which float32 scores have an error below 2e-5 without centering
ZERO = torch.zeros((), device="cpu")  # shared: creating it takes as long as using it


class Kernel(Score):
    """The base class of kernel scores: the logarithm of a kernel of the distance |q - k| / width.

    The weights are the kernel values divided by their sum. For kernels of finite support this is
    computed directly, because the gradient of the logarithm is infinite at the edge.

    Args:
        width: The width (bandwidth) of the kernel.
        learnable: Whether the width is learned.
        heads: Number of heads (or a grid of heads) with separate widths; None shares one.

    Example:
        >>> class Laplace(Kernel):
        ...     finite = False
        ...     def kernel(self, query, keys):
        ...         return torch.exp(-torch.cdist(query, keys) / self.width)
    """

    form: Form = "distance"
    numbers_each: int | None = 1
    finite: ClassVar[bool] = True

    def __init__(self, width: float = 1.0, *, learnable: bool = False, heads: Heads = None) -> None:
        super().__init__()
        if not is_number(width) or not width > 0:
            raise RegardError(f"{type(self).__name__}: width must be above 0, got {width!r}")
        self.head_grid = grid = head_axes(heads)
        self.width = nn.Parameter(torch.full((*grid, 1, 1) if grid else (), float(width)), requires_grad=learnable)

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        """Return the kernel value of every pair, at least 0."""
        raise NotImplementedError(f"{type(self).__name__} must define kernel(query, keys)")

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.kernel(query, keys).log()


class Gaussian(Kernel):
    """The Gaussian kernel exp(-u²/2) with u = |q - k| / width.

    It runs as a dot product, because |q|²/2 cancels in the softmax. See `Kernel` for the arguments.

    Example:
        >>> out = attend(query, keys, values, Gaussian(width=0.5, learnable=True))
    """

    form: Form = "dot"
    finite: ClassVar[bool] = False

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.forward(query, keys).exp()

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        squared_distance: Tensor = _SquaredDistance.apply(self, upcast(query), upcast(keys))
        return -squared_distance / self.width.to(squared_distance.dtype) ** 2 / 2

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        check_same_width(self, query, keys)
        width: Tensor = self.width
        if width.ndim == 0 and not width.requires_grad and width.is_cpu:
            width_value = width.item()  # a Python float, so queries are not rounded
            query, keys, norms = center_keys(query, keys, max_norm=NEAR * width_value)
            return DotForm(query, keys, width_value**-2, scaled_squared_norms(keys, norms, width_value**-2 / -2))
        query, keys, norms = center_keys(query, keys)
        precision = width.to(norms.dtype).square().reciprocal()
        squares = scaled_squared_norms(keys, norms, -0.5)
        return DotForm(query * precision.to(query.dtype), keys, 1.0, squares * precision.squeeze(-1))


class Boxcar(Kernel):
    """The boxcar kernel: 1 if |q - k| <= width, else 0.

    Query, keys and width get no gradient.

    Args:
        width: The width of the kernel.
        learnable: Must be False.
        heads: Number of heads (or a grid of heads) with separate widths; None shares one.

    Example:
        >>> out = attend(query, keys, values, Boxcar(width=2.0))
    """

    form: Form = "distance"
    differentiable: ClassVar[bool] = False

    def __init__(self, width: float = 1.0, *, learnable: bool = False, heads: Heads = None) -> None:
        if learnable:
            raise RegardError("Boxcar: learnable must be False, since the width has no gradient")
        super().__init__(width, heads=heads)

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        distances = distance(self, query, keys)
        return (distances <= self.width.abs()).to(distances.dtype)


class Epanechnikov(Kernel):
    """The kernel max(0, 1 - u**power) with u = |q - k| / width.

    Args:
        width: The width of the kernel.
        power: The exponent of u. The default, 1, is the triangular kernel; 2 is the Epanechnikov
            kernel of textbooks.
        learnable: Whether the width is learned.
        heads: Number of heads (or a grid of heads) with separate widths; None shares one.

    Example:
        >>> out = attend(query, keys, values, Epanechnikov(width=2.0, power=2))
    """

    form: Form = "distance"

    def __init__(self, width: float = 1.0, *, power: float = 1.0, learnable: bool = False, heads: Heads = None) -> None:
        super().__init__(width, learnable=learnable, heads=heads)
        if not is_number(power) or not power > 0:
            raise RegardError(f"Epanechnikov: power must be above 0, got {power!r}")
        self.power = power

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        scaled_distance = distance(self, query, keys) / self.width.abs()
        return (1 - scaled_distance**self.power).clamp_min(0)


class Exact(Kernel):
    """The exact-match kernel: 1 if the key equals the query, else 0, as in a database lookup.

    Query and keys get no gradient.

    Example:
        >>> out = attend(query, keys, values, "exact")
    """

    form: Form = "distance"
    differentiable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        check_same_width(self, query, keys)
        differing = torch.cdist(upcast(query), upcast(keys), p=0)
        return (differing == 0).to(differing.dtype)


def distance(score: Score, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
    """Return |q - k| from differences, which is exact at the edge of a kernel, unlike |q|² - 2q·k + |k|²."""
    check_same_width(score, query, keys)
    return torch.cdist(upcast(query), upcast(keys), compute_mode="donot_use_mm_for_euclid_dist")


class _SquaredDistance(torch.autograd.Function):
    """|q - k|² with a second derivative, which torch's distance lacks."""

    @staticmethod
    def forward(ctx: Any, score: Score, query: Tensor, keys: Tensor) -> Tensor:
        distances = distance(score, query, keys)
        ctx.save_for_backward(query, keys, distances)
        return distances.square()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, distances = ctx.saved_tensors

        def compute_gradient(points: Tensor, other_points: Tensor, gradient: Tensor, distances: Tensor) -> Tensor:
            """Return the gradient of the points in the rows."""
            if torch.is_grad_enabled():  # matrix products can be differentiated again
                point_gradient = gradient.sum(-1, keepdim=True) * points - gradient @ other_points
            else:
                point_gradient = torch.ops.aten._cdist_backward(
                    (gradient * distances).contiguous(), points, other_points, 2.0, distances
                )
            return 2 * point_gradient.sum_to_size(points.shape)

        _, by_query, by_keys = ctx.needs_input_grad
        of_query = compute_gradient(query, keys, gradient, distances) if by_query else None
        of_keys = compute_gradient(keys, query, gradient.mT, distances.mT.contiguous()) if by_keys else None
        return None, of_query, of_keys


def scaled_squared_norms(
    keys: Float[Tensor, "*positions width"], norms: Float[Tensor, "*positions"], scale: float
) -> Float[Tensor, "*positions"]:
    """Return scale * |k|² for keys whose norms |k| are known."""
    if keys.requires_grad and torch.is_grad_enabled():
        return _Squares.apply(keys, norms, scale)
    return scaled_square(norms, scale)


class _Squares(torch.autograd.Function):
    """|k|² with a gradient of one product; through torch's norm it takes several."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, norms: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keys)
        ctx.times = scale
        return scaled_square(norms, scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (keys,) = ctx.saved_tensors
        return (2 * ctx.times * gradient).unsqueeze(-1) * keys, None, None


def scaled_square(values: Float[Tensor, "*positions"], scale: float) -> Float[Tensor, "*positions"]:
    """Return scale * values² in one operation."""
    plain = values.is_cpu and type(values) is Tensor  # fake tensors do not mix with real ones
    zero = ZERO if plain else values.new_zeros(())
    return torch.addcmul(zero, values, values, value=scale)


def detached_norms(keys: Float[Tensor, "*positions width"]) -> Float[Tensor, "*positions"]:
    """Return |k| without gradient."""
    half = keys.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(keys.detach(), dim=-1, dtype=torch.float32 if half else None)


def center_keys(
    query: Float[Tensor, "..."], keys: Float[Tensor, "..."], max_norm: float = 0.0
) -> tuple[Tensor, Tensor, Float[Tensor, "..."]]:
    """Return query and keys, centered if the keys are far from zero, and the norms of the keys."""
    norms = detached_norms(keys)
    if not needs_centering(keys, norms, max_norm):
        return query, keys, norms
    center = keys.detach().mean(-2, keepdim=True)
    query, keys = query - center, keys - center
    return query, keys, detached_norms(keys)


def needs_centering(keys: Float[Tensor, "..."], norms: Float[Tensor, "..."], max_norm: float) -> bool:
    """Return whether to center keys around zero, where q·k and |k|² are small and thus precise.

    Keys of half precision are not centered, since that would round them; nor are keys with norms of
    at most `max_norm`. On a GPU the check costs more than centering.
    """
    if keys.dtype in (torch.float16, torch.bfloat16) or keys.numel() == 0:
        return False
    if not keys.is_cpu:
        return True
    if norms.amax().item() <= max_norm:
        return False
    sample = keys.detach()[..., :: 1 + keys.shape[-2] // 64, :]  # enough to estimate the center
    return detached_norms(sample.mean(-2)).amax().square().item() > norms.square().mean().item() / 2
