"""Follow vectors that stand for an image back to its patches, through a resampler such as that of Idefics 2.

The resampler sums patches to a fixed number of vectors in several layers. Attention rollout (Abnar and Zuidema 2020)
estimates which patches a vector comes from: in each layer, half of it stays, and half comes from the mean of the heads.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.weights import Weights


class Resampler:
    """The attention rollout from the vectors of images to their patches.

    Args:
        vectors: The number of vectors of each image.
        grid: The rows and columns of patches of each image.
    """

    def __init__(self, vectors: int, grid: tuple[int, int]) -> None:
        self.vectors, self.grid = vectors, grid
        self.shares: Float[Tensor, "images vectors patches"] | None = None

    def add(self, weights: Weights) -> bool:
        """Add the weights of a layer, whose keys are patches, then vectors; return whether these were such weights."""
        patches = math.prod(self.grid)
        if weights.shape[-2:] != (self.vectors, patches + self.vectors):
            return False
        means = weights.dense().mean(1)
        if self.shares is None:
            self.shares = means.new_zeros(len(means), self.vectors, patches)
        self.shares = (self.shares + means[..., :patches] + means[..., patches:] @ self.shares) / 2
        return True

    def spread(self, weights: Float[Tensor, "*heads rows vectors"]) -> Float[Tensor, "*heads rows patches"]:
        """Return weights to the vectors of all images as weights to their patches."""
        assert self.shares is not None
        shares = (self.shares / self.shares.sum(-1, keepdim=True)).to(weights)
        return weights @ torch.block_diag(*shares)


def build_resampler(config: Any, inputs: dict[str, Any]) -> Resampler | None:
    """Return the resampler of a model that reads its vectors as tokens; None for a model without."""
    vectors = getattr(getattr(config, "perceiver_config", None), "resampler_n_latents", None)
    if vectors is None:
        return None
    *_, height, width = inputs["pixel_values"].shape
    patch = config.vision_config.patch_size
    return Resampler(vectors, (height // patch, width // patch))
