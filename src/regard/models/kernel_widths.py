"""Initialize the widths of kernel scores from data: with a width of 1, hardly any key is in range."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.call import Terms
from regard.attention.functional import hook_attend_calls
from regard.attention.kernel_scores import Epanechnikov, Exact, Kernel, distance

EPANECHNIKOV_FACTOR = 2.0
"""Width of the Epanechnikov kernel in medians: keys outside its support get no gradient."""

MAX_QUERIES, MAX_KEYS = 32, 256  # samples per sequence, evenly spaced


def set_kernel_widths(model: nn.Module, batch: Any) -> dict[str, float]:
    """Set the width of every kernel score to the median distance between queries and keys in a batch.

    The Epanechnikov kernel gets twice the median. The model is run once, in evaluation mode
    and without gradients; each kernel is set as soon as it is called, so that later layers
    see its output with the new width. Only visible keys count.

    Returns:
        Module path -> width. Empty for a model without kernel scores, which is not run.
    """
    paths = {module: path for path, module in model.named_modules() if has_width(module)}
    distances: dict[nn.Module, list[Tensor]] = {module: [] for module in paths}

    def record_distances(terms: Terms, query: Tensor, keys: Tensor) -> None:
        if terms.score in distances:
            distances[terms.score].append(sample_distances(terms, query, keys))
            fit_width(terms.score, distances[terms.score])

    training = [module for module in model.modules() if module.training]
    if paths:
        with torch.no_grad(), hook_attend_calls(record_distances):
            try:
                model.eval()(batch)
            finally:
                for module in training:
                    module.training = True
    return {path: module.width.flatten()[0].item() for module, path in paths.items() if isinstance(module, Kernel)}


def has_width(module: nn.Module) -> bool:
    """Return whether a module is a kernel score with a width."""
    return isinstance(module, Kernel) and not isinstance(module, Exact)


def fit_width(score: nn.Module, distances: list[Tensor]) -> None:
    """Set a kernel's width by the median of some distances, unless there are none or all are zero."""
    assert isinstance(score, Kernel)
    median = float(torch.cat(distances).nanmedian())
    if 0 < median < math.inf:
        score.width.fill_(EPANECHNIKOV_FACTOR * median if isinstance(score, Epanechnikov) else median)


def sample_distances(
    terms: Terms, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]
) -> Float[Tensor, " distances"]:
    """Return |q - k| for a sample of queries and visible keys of each sequence."""
    *batch, n, m = terms.shape
    rows, cols = spread_indices(n, MAX_QUERIES, query.device), spread_indices(m, MAX_KEYS, query.device)
    distances = distance(terms.score, query.index_select(-2, rows), keys.index_select(-2, cols))
    if terms.visible is None:
        return distances.flatten()
    visible: Bool[Tensor, "..."] = terms.visible.tile(rows, cols, terms.shape, query.device)
    shape = (*batch, len(rows), len(cols))
    return distances.expand(shape)[visible.expand(shape)]


def spread_indices(size: int, max_count: int, device: torch.device) -> Tensor:
    """Return at most `max_count` evenly spaced indices below `size`."""
    return torch.linspace(0, max(0, size - 1), min(size, max_count), device=device).round().long()
