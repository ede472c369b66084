"""Scores that are kernels of the distance between query and key."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.base_score import DotForm, Form, Heads, Score, head_axes, widened
from regard.attention.score_checks import is_number, same_width
from regard.errors import RegardError

NEAR = 16.0  # |k|, in widths, up to which scores in float32 are right to a fifty thousandth as they are
ZERO = torch.zeros((), device="cpu")  # made once, since to make it takes as long as to use it


class Kernel(Score):
    """A score that is the logarithm of a kernel of the distance |q - k|, measured in `width`s.

    Kernels are divided by their sum. Where the support is finite that is done
    directly, since the gradient of the logarithm is infinite at the edge.
    """

    form: Form = "distance"
    numbers_each: int | None = 1
    finite: ClassVar[bool] = True

    def __init__(self, width: float = 1.0, *, learnable: bool = False, heads: Heads = None) -> None:
        super().__init__()
        if not is_number(width) or not width > 0:
            raise RegardError(f"{type(self).__name__}: width is {width!r}; a kernel's width is above 0")
        self.head_grid = grid = head_axes(heads)
        self.width = nn.Parameter(torch.full((*grid, 1, 1) if grid else (), float(width)), requires_grad=learnable)

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        """The kernel itself, 0 or more for every pair."""
        raise NotImplementedError(f"{type(self).__name__} must define kernel(query, keys)")

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.kernel(query, keys).log()


class Gaussian(Kernel):
    """exp(-|q - k|²/2), which runs as a dot product: |q|²/2 cancels in the softmax."""

    form: Form = "dot"
    finite: ClassVar[bool] = False

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        return self.forward(query, keys).exp()

    def forward(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        apart: Tensor = _SquaredDistance.apply(self, widened(query), widened(keys))
        return -apart / self.width.to(apart.dtype) ** 2 / 2

    def as_dot(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> DotForm:
        same_width(self, query, keys)
        width: Tensor = self.width
        if width.ndim == 0 and not width.requires_grad and width.is_cpu:
            number = width.item()  # which rounds no query
            query, keys, norms = about_zero(query, keys, near=NEAR * number)
            return DotForm(query, keys, number**-2, squares_of(keys, norms, number**-2 / -2))
        query, keys, norms = about_zero(query, keys)
        precision = width.to(norms.dtype).square().reciprocal()
        squares = squares_of(keys, norms, -0.5)
        return DotForm(query * precision.to(query.dtype), keys, 1.0, squares * precision.squeeze(-1))


class Boxcar(Kernel):
    """1 where |q - k| <= width, else 0; no gradient for query, key and width."""

    form: Form = "distance"
    differentiable: ClassVar[bool] = False

    def __init__(self, width: float = 1.0, *, learnable: bool = False, heads: Heads = None) -> None:
        if learnable:
            raise RegardError("Boxcar: learnable is True, but its width has no gradient to learn from")
        super().__init__(width, heads=heads)

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        apart = distance(self, query, keys)
        return (apart <= self.width.abs()).to(apart.dtype)


class Epanechnikov(Kernel):
    """max(0, 1 - u) with u = |q - k| / width; `power=2` gives the textbook's 1 - u²."""

    form: Form = "distance"

    def __init__(self, width: float = 1.0, *, power: float = 1.0, learnable: bool = False, heads: Heads = None) -> None:
        super().__init__(width, learnable=learnable, heads=heads)
        if not is_number(power) or not power > 0:
            raise RegardError(f"Epanechnikov: power is {power!r}; a number above 0 is needed")
        self.power = power

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        apart = distance(self, query, keys) / self.width.abs()
        return (1 - apart**self.power).clamp_min(0)


class Exact(Kernel):
    """1 where the key equals the query, else 0: a look-up in a database; no gradient for query and key."""

    form: Form = "distance"
    differentiable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()

    def kernel(self, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
        same_width(self, query, keys)
        differing = torch.cdist(widened(query), widened(keys), p=0)
        return (differing == 0).to(differing.dtype)


def distance(score: Score, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]) -> Tensor:
    """|q - k| by differences, exact at the edge of a kernel where |q|² - 2q·k + |k|² is not."""
    same_width(score, query, keys)
    return torch.cdist(widened(query), widened(keys), compute_mode="donot_use_mm_for_euclid_dist")


class _SquaredDistance(torch.autograd.Function):
    """|q - k|², whose gradient has a gradient itself, which that of torch's distance has not."""

    @staticmethod
    def forward(ctx: Any, score: Score, query: Tensor, keys: Tensor) -> Tensor:
        apart = distance(score, query, keys)
        ctx.save_for_backward(query, keys, apart)
        return apart.square()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, apart = ctx.saved_tensors

        def pulled(mine: Tensor, others: Tensor, gradient: Tensor, apart: Tensor) -> Tensor:
            """The gradient of those that are the rows."""
            if torch.is_grad_enabled():  # by products, which can be differentiated again
                found = gradient.sum(-1, keepdim=True) * mine - gradient @ others
            else:
                found = torch.ops.aten._cdist_backward((gradient * apart).contiguous(), mine, others, 2.0, apart)
            return 2 * found.sum_to_size(mine.shape)

        _, by_query, by_keys = ctx.needs_input_grad
        of_query = pulled(query, keys, gradient, apart) if by_query else None
        of_keys = pulled(keys, query, gradient.mT, apart.mT.contiguous()) if by_keys else None
        return None, of_query, of_keys


def squares_of(
    keys: Float[Tensor, "*places width"], norms: Float[Tensor, "*places"], times: float
) -> Float[Tensor, "*places"]:
    """|k|² times a number, of keys whose |k| is known."""
    if keys.requires_grad and torch.is_grad_enabled():
        return _Squares.apply(keys, norms, times)
    return squared(norms, times)


class _Squares(torch.autograd.Function):
    """The gradient of |k|² as one product; by way of torch's norm it takes several."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, norms: Tensor, times: float) -> Tensor:
        ctx.save_for_backward(keys)
        ctx.times = times
        return squared(norms, times)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (keys,) = ctx.saved_tensors
        return (2 * ctx.times * gradient).unsqueeze(-1) * keys, None, None


def squared(numbers: Float[Tensor, "*places"], times: float) -> Float[Tensor, "*places"]:
    """Their squares times a number, in one operation."""
    plain = numbers.is_cpu and type(numbers) is Tensor  # a fake tensor goes with none that is real
    zero = ZERO if plain else numbers.new_zeros(())
    return torch.addcmul(zero, numbers, numbers, value=times)


def norms_of(keys: Float[Tensor, "*places width"]) -> Float[Tensor, "*places"]:
    """|k|, not differentiated."""
    return torch.linalg.vector_norm(widened(keys).detach(), dim=-1)


def about_zero(
    query: Float[Tensor, "..."], keys: Float[Tensor, "..."], near: float = 0.0
) -> tuple[Tensor, Tensor, Float[Tensor, "..."]]:
    """Query and keys, moved where the keys lie far off, and the keys' |k|."""
    norms = norms_of(keys)
    if not lies_far_off(keys, norms, near):
        return query, keys, norms
    centre = keys.detach().mean(-2, keepdim=True)
    query, keys = query - centre, keys - centre
    return query, keys, norms_of(keys)


def lies_far_off(keys: Float[Tensor, "..."], norms: Float[Tensor, "..."], near: float) -> bool:
    """Whether keys should be moved to lie about zero, where q·k and |k|² are small and so exact.

    Those of half precision stay, since moving would round them, and so do those whose
    |k| is `near` at the most. On a GPU a look costs more than the move.
    """
    if keys.dtype in (torch.float16, torch.bfloat16) or keys.numel() == 0:
        return False
    if not keys.is_cpu:
        return True
    if norms.amax().item() <= near:
        return False
    some = keys.detach()[..., :: 1 + keys.shape[-2] // 64, :]  # enough to see where they lie
    return norms_of(some.mean(-2)).amax().square().item() > norms.square().mean().item() / 2
