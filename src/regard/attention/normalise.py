"""From scores to weights: softmax, its sparse relatives, and the plain sum.

Each normaliser keeps one number a query, its `statistic` (softmax: the log-sum-exp).
With it the weights of *any* tile follow from the scores of that tile alone, and so
do their gradients:

    d loss/d score = slope * (d loss/d weight - mean),   mean = sum(share * d loss/d weight)

where the sum runs over the whole row (softmax: slope and share are the weight).
Everything lazy or tiled in regard rests on this. A query that sees nothing has a
statistic that makes every weight zero.
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
from regard.attention.visible import Index, positions
from regard.errors import RegardError, unknown_name

LOG2_E = 1 / math.log(2)


class Normaliser(ABC):
    """How the scores of a row become its weights."""

    nothing: ClassVar[float] = -math.inf
    """The score of a key that may not be seen."""
    blind: ClassVar[float] = math.inf
    """The statistic of a query that sees nothing."""
    ranked: ClassVar[bool] = True
    """Whether weights are positive and sum to one, so that there is a most and a spread."""
    shares_by_weight: ClassVar[bool] = True
    """Whether `share` is the weight itself, so that the mean of the values is the output."""
    differentiable: ClassVar[bool] = True
    """Whether weights move with the scores at all."""

    @abstractmethod
    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        """One number for each row, (*batch, queries, 1), from all the keys it can see, which are `cols`."""

    @abstractmethod
    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        """The weights of a tile; `cols` says which keys its columns are."""

    def of_rows(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        """The weights of whole rows: the same, as exact as can be where scores are large."""
        return self.weights(scores, statistic, cols)

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        """How much each weight moves with its score, apart from what normalising takes back."""
        return weights

    def share(self, weights: Float[Tensor, "*batch queries keys"]) -> Tensor:
        """What each key counts in the mean that is taken back; `weights` are whole rows."""
        return weights


class Softmax(Normaliser):
    """exp(score - log-sum-exp)."""

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        total = scores.logsumexp(-1, keepdim=True)
        return total.masked_fill(total == -math.inf, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return exp(scores - statistic)

    def of_rows(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return torch.softmax(scores, -1).masked_fill(statistic == self.blind, 0)


class Sparse(Normaliser):
    """Common to sparsemax and entmax: a threshold below which the weight is exactly zero."""

    shares_by_weight: ClassVar[bool] = False

    def share(self, weights: Float[Tensor, "*batch queries keys"]) -> Tensor:
        slope = self.slope(weights, weights, weights)
        return slope / slope.sum(-1, keepdim=True).clamp_min(torch.finfo(slope.dtype).tiny)


class Sparsemax(Sparse):
    """max(0, score - threshold): the nearest point of the simplex (Martins and Astudillo 2016)."""

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        best, ranked = from_the_best(scores)
        rank = torch.arange(1, ranked.shape[-1] + 1, dtype=ranked.dtype, device=ranked.device)
        sums = ranked.cumsum(-1)
        size = ((1 + rank * ranked > sums) & (ranked > -1)).sum(-1, keepdim=True).clamp_min(1)
        threshold = (sums.gather(-1, size - 1) - 1) / size
        return (best + threshold).masked_fill(best == -math.inf, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return (scores - statistic).clamp_min(0)

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return (weights > 0).to(weights.dtype)


class Entmax15(Sparse):
    """max(0, score/2 - threshold)², halfway between softmax and sparsemax (Peters et al. 2019)."""

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        best, ranked = from_the_best(scores / 2)
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


class KernelSum(Normaliser):
    """kernel / sum of the row; the "scores" here are the kernel's own values."""

    nothing: ClassVar[float] = 0.0

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        total = scores.sum(-1, keepdim=True)
        return total.masked_fill(total == 0, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return scores / statistic

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return 1 / statistic


class HardMax(Normaliser):
    """All weight on the best key, the first of equals; the statistic is where it stands."""

    blind: ClassVar[float] = -1.0
    differentiable: ClassVar[bool] = False

    def statistic(self, scores: Float[Tensor, "*batch queries keys"], cols: Index) -> Tensor:
        unseen = scores.amax(-1, keepdim=True) == -math.inf
        return positions(cols, scores.device)[scores.argmax(-1, keepdim=True)].masked_fill(unseen, self.blind)

    def weights(self, scores: Float[Tensor, "*batch queries keys"], statistic: Tensor, cols: Index) -> Tensor:
        return (positions(cols, scores.device) == statistic).to(scores.dtype)

    def slope(self, scores: Tensor, weights: Tensor, statistic: Tensor) -> Tensor:
        return torch.zeros_like(weights)


class PlainSum(Normaliser):
    """The scores are the weights."""

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
    """The kernel's values are the weights."""

    nothing: ClassVar[float] = 0.0


NORMALISERS: dict[str, type[Normaliser]] = {
    "entmax15": Entmax15,
    "none": PlainSum,
    "softmax": Softmax,
    "sparsemax": Sparsemax,
}


def as_normaliser(name: str, score: Score) -> Normaliser:
    """The normaliser of a name, as this score function takes it."""
    if not isinstance(name, str) or name not in NORMALISERS:
        raise unknown_name("normaliser", name, NORMALISERS)
    if isinstance(score, Hard):
        if name != "softmax":
            raise RegardError(f'normaliser: "{name}" does not go with Hard, whose best key gets all the weight')
        return HardMax()
    if isinstance(score, Kernel) and name == "none":
        return PlainKernelSum()
    if isinstance(score, Kernel) and score.finite:
        if name != "softmax":
            raise RegardError(
                f'normaliser: "{name}" does not go with {type(score).__name__}, a kernel of finite support; '
                'leave it at "softmax" (divided by its sum) or take "none"'
            )
        return KernelSum()
    return NORMALISERS[name]()


def exp(logarithms: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """exp; on a CPU by way of exp2, which takes torch a third of the time."""
    return (logarithms * LOG2_E).exp2_() if logarithms.is_cpu else logarithms.exp()


def from_the_best(scores: Float[Tensor, "*batch queries keys"]) -> tuple[Tensor, Tensor]:
    """The best score of each row, and all of them ranked and measured from it.

    Both sparse normalisers give nothing to a score more than one below the best, so
    what lies deeper, -inf included, is put at -2.
    """
    best = scores.amax(-1, keepdim=True)
    ranked = (scores - best.clamp_min(torch.finfo(scores.dtype).min)).clamp_min(-2).sort(-1, descending=True).values
    return best, ranked
