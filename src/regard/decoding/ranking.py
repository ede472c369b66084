"""The greatest of many numbers, in an order that no device and no batch can change."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


def greatest(
    numbers: Float[Tensor, "batch places"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """The `count` greatest of each row and their places, the greatest first, the first place first among equals.

    `torch.topk` leaves open which of equal numbers it takes. Here only those blocks are
    sorted whose greatest are the `count` greatest, the first first among equals: before
    all numbers of any other block stand these, which are enough.
    """
    size = max(1, math.isqrt(numbers.shape[-1] // count))
    blocks = pad(numbers, (0, -numbers.shape[-1] % size), value=-torch.inf).unflatten(-1, (-1, size))
    _, order = blocks.amax(-1).sort(descending=True, stable=True)
    chosen = order[:, :count].sort(-1).values  # in the order of places again
    few = blocks.gather(1, chosen[:, :, None].expand(-1, -1, size)).flatten(1)
    values, places = few.sort(descending=True, stable=True)
    values, places = values[:, :count], places[:, :count]
    return values, chosen.gather(1, places // size) * size + places % size
