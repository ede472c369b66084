"""Attention as one function, with pluggable scores, exact lazy weights and visibility rules.

Depends only on torch and jaxtyping.

Example:
    >>> from regard.attention import Additive, attend, lengths
    >>> score = Additive(query_dim=64, key_dim=32, hidden=128)
    >>> out, weights = attend(query, keys, values, score, visible=lengths([5, 3]), return_weights=True)
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
from regard.attention.soft_cap import SoftCap
from regard.attention.visible import Rule, causal, documents, key_indices, lengths, window
from regard.attention.watch import AttentionRecording, watch
from regard.attention.weights import DenseWeights, Weights

__all__ = [
    "SCORES",
    "Additive",
    "AttentionRecording",
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
    "SoftCap",
    "Uniform",
    "Weights",
    "attend",
    "build_score",
    "causal",
    "documents",
    "key_indices",
    "lengths",
    "watch",
    "window",
]
