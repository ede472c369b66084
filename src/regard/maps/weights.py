"""Convert recorded weights to those of an attention map: all of them, or the largest of each row.

Weights are recomputed and merged to words a few rows at a time, so the token-by-token matrix of a long text is
never materialized.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.maps.sides import Side, mean_rows
from regard.views.page import LEAST_KEPT, MOST_KEPT, MOST_WEIGHTS
from regard.views.weights import MapWeights, TopWeights

LONG = 1000
"""Maximum number of tokens per side to keep all weights; longer texts keep the largest of each row."""

AT_ONCE = 2**24
"""Number of weights of a layer to compute at a time, over all heads."""


def build_map_weights(layers: Sequence[Weights], rows: Side, columns: Side, top: int | None = None) -> MapWeights:
    """Return the weights of one text, merged to the units of both sides.

    Args:
        layers: The weights of each layer; all have the same number of heads.
        rows: The query side; the tokens of a word are averaged.
        columns: The key side; the tokens of a word are summed.
        top: Number of weights to keep per row (default: all, unless a side is long).
    """
    heads = [count_heads(layer) for layer in layers]
    if len(set(heads)) > 1:
        raise RegardError(f"look: all layers must have the same number of heads, got {', '.join(map(str, heads))}")
    if top is None and max(rows.size, columns.size) > LONG:
        top = max(LEAST_KEPT, min(MOST_KEPT, MOST_WEIGHTS // (sum(heads) * len(rows.units))))
    if top is None:
        dense = [torch.cat(list(iter_merged_rows(layer, rows, columns)), -2).cpu() for layer in layers]
        return torch.stack(dense).numpy()
    top_weights = [find_largest(layer, rows, columns, top) for layer in layers]
    values, indices, received = (torch.stack(part).cpu().numpy() for part in zip(*top_weights, strict=True))
    return TopWeights(values, np.where(values > 0, indices, -1), received)


def split_heads(weights: Weights, texts: int) -> Weights:
    """Return weights with an axis for heads, which some models merge with that of the texts."""
    if len(weights.shape) != 3 or weights.shape[0] == texts or weights.shape[0] % texts:
        return weights
    merged = weights.shape[0]
    return weights.map(lambda each: each.unflatten(0, (texts, -1)) if each.shape[:-2] == (merged,) else each)


def count_heads(weights: Weights) -> int:
    """Return the number of heads of a layer, which may lack a head axis if it has one head."""
    return int(np.prod(weights.shape[1:-2]))


def find_largest(weights: Weights, rows: Side, columns: Side, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest weights of each row of a layer, their columns, and the total weight of each column."""
    best, received = [], torch.zeros((), device=weights.device)
    for block in iter_merged_rows(weights, rows, columns):
        best.append(block.topk(min(top, block.shape[-1])))
        received = received + block.sum(-2)
    values, indices = (torch.cat(part, -2) for part in zip(*best, strict=True))
    return values, indices, received


def iter_merged_rows(weights: Weights, rows: Side, columns: Side) -> Iterator[Float[Tensor, "heads rows columns"]]:
    """Yield the merged weights of a layer for the first text of the batch, in blocks of rows."""
    max_tokens = AT_ONCE // (count_heads(weights) * columns.size)
    for units in rows.iter_blocks(max_tokens):
        first, last = units[0].token_indices[0], units[-1].token_indices[-1]
        block = weights[..., first : last + 1, :][:1].flatten(0, -3).float()
        yield mean_rows(columns.sum_columns(block), units)
