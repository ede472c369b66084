"""From the weights that were seen to those of an attention map: all of them, or the largest of each row.

Weights are computed again some rows at a time and merged to words at once, so that the matrix of a long
text, tokens by tokens, never exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.looking.sides import Side, mean_rows
from regard.views.page import LEAST_KEPT, MOST_KEPT, MOST_WEIGHTS
from regard.views.weights import MapWeights, TopWeights

LONG = 1000
"""Tokens of a side; of a longer one the largest weights of each row are shown."""

AT_ONCE = 2**24
"""Weights of a layer that exist at a time, of all its heads together."""


def map_weights(layers: Sequence[Weights], rows: Side, columns: Side, top: int | None = None) -> MapWeights:
    """The weights of one text, merged to what the two sides show.

    Args:
        layers: The first layer first; all have equally many heads.
        rows: The side that looks; of a word's tokens the mean is taken.
        columns: The side that is looked at; what the tokens of a word get is added up.
        top: How many weights of each row to keep; all unless told otherwise or a side is long.
    """
    heads = [heads_of(layer) for layer in layers]
    if len(set(heads)) > 1:
        raise RegardError(f"look: layers of {', '.join(map(str, heads))} heads; all must have equally many")
    if top is None and max(rows.size, columns.size) > LONG:
        top = max(LEAST_KEPT, min(MOST_KEPT, MOST_WEIGHTS // (sum(heads) * len(rows.units))))
    if top is None:
        whole = [torch.cat(list(merged_rows(layer, rows, columns)), -2).cpu() for layer in layers]
        return torch.stack(whole).numpy()
    kept = [largest(layer, rows, columns, top) for layer in layers]
    values, indices, received = (torch.stack(part).cpu().numpy() for part in zip(*kept, strict=True))
    return TopWeights(values, np.where(values > 0, indices, -1), received)


def heads_of(weights: Weights) -> int:
    """How many heads a layer has; a model of one may have no axis for it."""
    return int(np.prod(weights.shape[1:-2]))


def largest(weights: Weights, rows: Side, columns: Side, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of one layer the largest weights of each row and where they stand, and what each column gets from all rows."""
    best, received = [], torch.zeros((), device=weights.device)
    for block in merged_rows(weights, rows, columns):
        best.append(block.topk(min(top, block.shape[-1])))
        received = received + block.sum(-2)
    values, indices = (torch.cat(part, -2) for part in zip(*best, strict=True))
    return values, indices, received


def merged_rows(weights: Weights, rows: Side, columns: Side) -> Iterator[Float[Tensor, "heads rows columns"]]:
    """The weights of one layer and the first text of its batch, merged, some rows after the other."""
    most = AT_ONCE // (heads_of(weights) * columns.size)
    for units in rows.blocks(most):
        first, last = units[0].places[0], units[-1].places[-1]
        block = weights[..., first : last + 1, :][:1].flatten(0, -3).float()
        yield mean_rows(columns.summed(block), units)
