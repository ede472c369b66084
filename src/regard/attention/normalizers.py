"""Normalizers, which turn scores into weights: softmax, sparse variants, and none.

Each normalizer computes one number per query, its `statistic` (for softmax, the log-sum-exp).
Given the statistic, the weights of *any* tile follow from the scores of that tile alone, and so
do their gradients:

    d loss/d score = slope * (d loss/d weight - mean),   mean = sum(share * d loss/d weight)

where the sum runs over the whole row (for softmax, slope and share are the weight). All lazy and
tiled computation in regard relies on this. The statistic of a query that sees no key makes all of
its weights zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import Score
from regard.attention.kernel_scores import Kernel
from regard.attention.scores import Hard
from regard.attention.visible import Index, index_to_tensor
from regard.errors import RegardError, unknown_name

LOG2_E = 1 / math.log(2)


class Normalizer(ABC):
    """The base class of normalizers, which turn the scores of a row into weights."""

    hidden_score: ClassVar[float] = -math.inf
    """The score of a hidden key."""
    blind: ClassVar[float] = math.inf
    """The statistic of a query that sees no key."""
    ranked: ClassVar[bool] = True
    """Whether weights are positive and sum to one, so that top, argmax and entropy are defined."""
    shares_by_weight: ClassVar[bool] = True
    """Whether `share` is the weight itself, so that the mean in backward is the output."""
    differentiable: ClassVar[bool] = True
    """Whether weights depend smoothly on the scores."""

    @abstractmethod
    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        """Return the statistic of each row, (*batch, queries, 1), from the scores of all keys it can see, `cols`."""

    @abstractmethod
    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        """Return the weights of a tile whose columns are the keys `cols`."""

    def row_weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        """Return the weights of whole rows, as precisely as possible for large scores."""
        return self.weights(scores, statistic, cols)

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        """Return the derivative of each weight by its score, before the mean is subtracted."""
        return weights

    def share(self, weights: Float[Tensor, "*batch queries keys"]) -> Tensor:
        """Return the share of each key in the mean that is subtracted; `weights` are whole rows."""
        return weights


class Softmax(Normalizer):
    """Softmax: exp(score - log-sum-exp)."""

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        total = scores.logsumexp(-1, keepdim=True)
        return total.masked_fill(total == -math.inf, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return exp(scores - statistic)

    def row_weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return torch.softmax(scores, -1).masked_fill(statistic == self.blind, 0)


class SparseNormalizer(Normalizer):
    """The base class of sparsemax and entmax: scores below a threshold get a weight of exactly zero."""

    shares_by_weight: ClassVar[bool] = False

    def share(self, weights: Float[Tensor, "*batch queries keys"]) -> Tensor:
        slope = self.slope(weights, weights, weights)
        return slope / slope.sum(-1, keepdim=True).clamp_min(torch.finfo(slope.dtype).tiny)


class Sparsemax(SparseNormalizer):
    """Sparsemax: max(0, score - threshold), the projection onto the simplex (Martins and Astudillo 2016)."""

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        best, ranked = sort_from_best(scores)
        rank = torch.arange(1, ranked.shape[-1] + 1, dtype=ranked.dtype, device=ranked.device)
        sums = ranked.cumsum(-1)
        size = ((1 + rank * ranked > sums) & (ranked > -1)).sum(-1, keepdim=True).clamp_min(1)
        threshold = (sums.gather(-1, size - 1) - 1) / size
        return (best + threshold).masked_fill(best == -math.inf, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return (scores - statistic).clamp_min(0)

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return (weights > 0).to(weights.dtype)


class Entmax15(SparseNormalizer):
    """1.5-entmax: max(0, score/2 - threshold)², halfway between softmax and sparsemax (Peters et al. 2019)."""

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        best, ranked = sort_from_best(scores / 2)
        rank = torch.arange(1, ranked.shape[-1] + 1, dtype=ranked.dtype, device=ranked.device)
        mean = ranked.cumsum(-1) / rank
        spread = ranked.square().cumsum(-1) - rank * mean.square()  # sum of squared deviations from the mean
        room = ((1 - spread) / rank).clamp_min(0)
        inside = (mean - room.detach().sqrt() <= ranked) & (ranked > -1)
        size = inside.sum(-1, keepdim=True).clamp_min(1)
        threshold = mean.gather(-1, size - 1) - room.gather(-1, size - 1).sqrt()
        return (best + threshold).masked_fill(best == -math.inf, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return (scores / 2 - statistic).clamp_min(0).square()

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return weights.sqrt()


class KernelSum(Normalizer):
    """Kernel values divided by their sum; the "scores" are the values of the kernel."""

    hidden_score: ClassVar[float] = 0.0

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        total = scores.sum(-1, keepdim=True)
        return total.masked_fill(total == 0, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return scores / statistic

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return 1 / statistic


class HardMax(Normalizer):
    """All weight on the best key, the first of ties; the statistic is the index of that key."""

    blind: ClassVar[float] = -1.0
    differentiable: ClassVar[bool] = False

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        unseen = scores.amax(-1, keepdim=True) == -math.inf
        return index_to_tensor(cols, scores.device)[scores.argmax(-1, keepdim=True)].masked_fill(unseen, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return (index_to_tensor(cols, scores.device) == statistic).to(scores.dtype)

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return torch.zeros_like(weights)


class PlainSum(Normalizer):
    """No normalization: the scores are the weights."""

    blind: ClassVar[float] = 0.0
    ranked: ClassVar[bool] = False
    shares_by_weight: ClassVar[bool] = False

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        return scores.new_full((*scores.shape[:-1], 1), self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return scores.masked_fill(scores == -math.inf, 0)

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return (scores != -math.inf).to(weights.dtype)

    def share(self, weights: Float[Tensor, "*batch queries keys"]) -> Tensor:
        return torch.zeros_like(weights)


class PlainKernelSum(PlainSum):
    """No normalization of a kernel: its values are the weights."""

    hidden_score: ClassVar[float] = 0.0


NORMALIZERS: dict[str, type[Normalizer]] = {
    "entmax15": Entmax15,
    "none": PlainSum,
    "softmax": Softmax,
    "sparsemax": Sparsemax,
}


def as_normalizer(name: str, score: Score) -> Normalizer:
    """Return the normalizer of a name in the form a score requires."""
    if not isinstance(name, str) or name not in NORMALIZERS:
        raise unknown_name("normalizer", name, NORMALIZERS)
    if isinstance(score, Hard):
        if name != "softmax":
            raise RegardError(
                f'normalizer "{name}" cannot be combined with Hard, which gives the best key all the weight'
            )
        return HardMax()
    if isinstance(score, Kernel) and name == "none":
        return PlainKernelSum()
    if isinstance(score, Kernel) and score.finite:
        if name != "softmax":
            raise RegardError(
                f'normalizer "{name}" cannot be combined with {type(score).__name__}, a kernel of finite support; '
                "choose from softmax (divide by the sum), none"
            )
        return KernelSum()
    return NORMALIZERS[name]()


def exp(logarithms: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return exp; on a CPU computed with exp2, which takes a third of the time in torch."""
    return (logarithms * LOG2_E).exp2_() if logarithms.is_cpu else logarithms.exp()


def sort_from_best(scores: Float[Tensor, "*batch queries keys"]) -> tuple[Tensor, Tensor]:
    """Return the best score of each row, and all scores relative to it in descending order.

    Both sparse normalizers give weight zero to scores more than one below the best, so lower ones,
    including -inf, are set to -2.
    """
    best = scores.amax(-1, keepdim=True)
    ranked = (scores - best.clamp_min(torch.finfo(scores.dtype).min)).clamp_min(-2).sort(-1, descending=True).values
    return best, ranked
