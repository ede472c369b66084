"""The heart: attention as one function, its scores, its exact weights, and who may see what.

Needs torch and jaxtyping alone, so it can be carried anywhere.
"""

from regard.attention.base_score import DotForm, Score
from regard.attention.functional import attend
from regard.attention.kernel_scores import Boxcar, Epanechnikov, Exact, Gaussian, Kernel
from regard.attention.scores import (
    SCORES,
    Additive,
    Bilinear,
    Concat,
    Dot,
    Hard,
    ReducedRank,
    ScaledDot,
    Uniform,
    build_score,
)
from regard.attention.visible import Rule, causal, documents, lengths, window
from regard.attention.watch import Seen, watch
from regard.attention.weights import DenseWeights, Weights

__all__ = [
    "SCORES",
    "Additive",
    "Bilinear",
    "Boxcar",
    "Concat",
    "DenseWeights",
    "Dot",
    "DotForm",
    "Epanechnikov",
    "Exact",
    "Gaussian",
    "Hard",
    "Kernel",
    "ReducedRank",
    "Rule",
    "ScaledDot",
    "Score",
    "Seen",
    "Uniform",
    "Weights",
    "attend",
    "build_score",
    "causal",
    "documents",
    "lengths",
    "watch",
    "window",
]
