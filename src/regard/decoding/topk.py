"""Top-k with a deterministic order of ties, on every device and in every batch."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


def stable_topk(
    scores: Float[Tensor, "batch places"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """Return the `count` largest values of each row and their indices, largest first; ties in index order.

    `torch.topk` does not define the order of ties. To avoid sorting the whole row, it is split
    into blocks, and only the `count` blocks with the largest maxima are sorted: every value
    of any other block ranks after these maxima.
    """
    size = max(1, math.isqrt(scores.shape[-1] // count))
    blocks = pad(scores, (0, -scores.shape[-1] % size), value=-torch.inf).unflatten(-1, (-1, size))
    _, order = blocks.amax(-1).sort(descending=True, stable=True)
    chosen = order[:, :count].sort(-1).values  # back in index order
    few = blocks.gather(1, chosen[:, :, None].expand(-1, -1, size)).flatten(1)
    values, indices = few.sort(descending=True, stable=True)
    values, indices = values[:, :count], indices[:, :count]
    return values, chosen.gather(1, indices // size) * size + indices % size
