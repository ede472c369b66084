"""Shared by the tests of attention: every score, and the formulas in NumPy's float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention import Additive, Bilinear, Concat, ReducedRank, Score
from regard.attention.scores import PARAMETER_FREE

WIDTH = 6
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
NAMES = sorted([*PARAMETER_FREE, "additive", "bilinear", "concat", "reduced_rank"])
FINITE = ["boxcar", "epanechnikov", "exact"]  # kernels of finite support
STEPS = ["boxcar", "exact", "hard", "uniform"]  # no gradient for query and key
SMOOTH = [name for name in NAMES if name not in STEPS]


def make_score(name: str, dtype: torch.dtype = torch.float64, heads: int | None = None) -> Score:
    """A score with random parameters, for queries and keys of WIDTH."""
    torch.manual_seed(7)
    score: Score
    if name == "additive":
        score = Additive(WIDTH, WIDTH, 5, heads=heads)
    elif name == "concat":
        score = Concat(WIDTH, WIDTH, 5, heads=heads)
    elif name == "bilinear":
        score = Bilinear(WIDTH, WIDTH, heads=heads)
    elif name == "reduced_rank":
        score = ReducedRank(WIDTH, WIDTH, 2, heads=heads)
    else:
        score = PARAMETER_FREE[name]()
    return score.to(dtype)


def tensors(
    *batch: int, n: int = 4, m: int = 7, width: int = 3, dtype: torch.dtype = torch.float64, spread: float = 0.5
) -> tuple[Tensor, Tensor, Tensor]:
    """Random query, keys and values; close enough together that some keys are within reach of a kernel."""
    torch.manual_seed(11)
    query = torch.randn(*batch, n, WIDTH, dtype=dtype) * spread
    keys = torch.randn(*batch, m, WIDTH, dtype=dtype) * spread
    if n and m:
        keys[..., 0, :] = query[..., 0, :]  # a match for `exact`
    return query, keys, torch.randn(*batch, m, width, dtype=dtype)


def numpy_weights(name: str, score: Score, query: np.ndarray, keys: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """The weights of one (n, d) query and (m, d) keys by the formula of SYSTEMS, pair by pair."""
    formula, is_kernel = FORMULAS[name]
    parameters = {key: value.detach().double().cpu().numpy() for key, value in score.named_parameters()}
    all_scores = np.array([[formula(q, k, parameters) for k in keys] for q in query]).reshape(len(query), len(keys))
    if name == "hard":
        all_scores = np.where(visible, all_scores, -np.inf)
        best = np.zeros_like(all_scores)
        for row, scores in zip(best, all_scores, strict=True):
            if np.isfinite(scores).any():
                row[int(np.argmax(scores))] = 1
        return best
    with np.errstate(over="ignore"):
        weights = (
            all_scores if is_kernel else np.exp(all_scores - all_scores.max(initial=-math.inf, axis=1, keepdims=True))
        )
    weights = np.where(visible, weights, 0)
    total = weights.sum(1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


Formula = Callable[[np.ndarray, np.ndarray, dict[str, np.ndarray]], Any]

FORMULAS: dict[str, tuple[Formula, bool]] = {
    "dot": (lambda q, k, p: q @ k, False),
    "scaled_dot": (lambda q, k, p: q @ k / math.sqrt(len(q)), False),
    "bilinear": (lambda q, k, p: q @ p["weight"] @ k, False),
    "reduced_rank": (lambda q, k, p: (p["key_weight"].T @ k) @ (p["query_weight"] @ q), False),
    "additive": (lambda q, k, p: p["energy"] @ np.tanh(p["query_weight"] @ q + p["key_weight"] @ k), False),
    "concat": (lambda q, k, p: p["energy"] @ np.tanh(p["weight"] @ np.concatenate([q, k])), False),
    "gaussian": (lambda q, k, p: math.exp(-((q - k) @ (q - k)) / 2), True),
    "boxcar": (lambda q, k, p: float(math.sqrt((q - k) @ (q - k)) <= 1), True),
    "epanechnikov": (lambda q, k, p: max(0.0, 1 - math.sqrt((q - k) @ (q - k))), True),
    "uniform": (lambda q, k, p: 1.0, True),
    "exact": (lambda q, k, p: float((q == k).all()), True),
    "hard": (lambda q, k, p: q @ k, False),
}
