"""The width of a kernel inside a model, set by what lies there: at width 1 nothing would be in reach."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.call import Terms
from regard.attention.functional import listening
from regard.attention.kernel_scores import Epanechnikov, Exact, Kernel, distance

SLOPE = 2.0
"""Of Epanechnikov's kernel, the width in medians: what is out of its reach has no gradient to bring it back."""

QUERIES, KEYS = 32, 256  # how many of each sequence are looked at; they are spread over all of it


def set_kernel_widths(model: nn.Module, batch: Any) -> dict[str, float]:
    """Set the width of every kernel in a model by the median distance from query to key in a batch.

    It is that median, but for Epanechnikov's kernel, which gets twice as much.

    The model is run once, without dropout and gradient. At each call of `attend` with a
    kernel the width is set by the median of what that kernel has met so far, so that
    later layers see what it gives with the right width. Only keys that may be seen
    count. Returns path -> width, empty where there is no kernel; the model is then not
    run at all.
    """
    paths = {module: path for path, module in model.named_modules() if has_width(module)}
    met: dict[nn.Module, list[Tensor]] = {module: [] for module in paths}

    def listen(terms: Terms, query: Tensor, keys: Tensor) -> None:
        if terms.score in met:
            met[terms.score].append(some_distances(terms, query, keys))
            fit(terms.score, met[terms.score])

    training = [module for module in model.modules() if module.training]
    if paths:
        with torch.no_grad(), listening(listen):
            try:
                model.eval()(batch)
            finally:
                for module in training:
                    module.training = True
    return {path: module.width.flatten()[0].item() for module, path in paths.items() if isinstance(module, Kernel)}


def has_width(module: nn.Module) -> bool:
    """Whether a module is a kernel whose width matters."""
    return isinstance(module, Kernel) and not isinstance(module, Exact)


def fit(score: nn.Module, met: list[Tensor]) -> None:
    """Set a kernel's width by the median of some distances, unless they are none or all nothing."""
    assert isinstance(score, Kernel)
    median = float(torch.cat(met).nanmedian())
    if 0 < median < math.inf:
        score.width.fill_(SLOPE * median if isinstance(score, Epanechnikov) else median)


def some_distances(
    terms: Terms, query: Float[Tensor, "..."], keys: Float[Tensor, "..."]
) -> Float[Tensor, " distances"]:
    """|q - k| for some queries and keys of each sequence, those that may meet."""
    *batch, n, m = terms.shape
    rows, cols = spread(n, QUERIES, query.device), spread(m, KEYS, query.device)
    apart = distance(terms.score, query.index_select(-2, rows), keys.index_select(-2, cols))
    if terms.visible is None:
        return apart.flatten()
    seen: Bool[Tensor, "..."] = terms.visible.tile(rows, cols, terms.shape, query.device)
    shape = (*batch, len(rows), len(cols))
    return apart.expand(shape)[seen.expand(shape)]


def spread(size: int, most: int, device: torch.device) -> Tensor:
    """At most so many places, spread evenly over all."""
    return torch.linspace(0, max(0, size - 1), min(size, most), device=device).round().long()
