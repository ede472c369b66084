"""Dropout (Srivastava et al. 2014): of each number by itself, or of the same numbers at all steps of a sequence."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Module):
    """Dropout of each number by itself, in training."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, inputs: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """What is left, made larger by as much as was dropped."""
        return drop(inputs, self.share, self.training)

    def extra_repr(self) -> str:
        return f"share={self.share}"


class VariationalDropout(Dropout):
    """Dropout of the same numbers of a sequence at all its steps, in training (Gal and Ghahramani 2016)."""

    def forward(self, inputs: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        """What is left, made larger by as much as was dropped."""
        return drop_for_all_steps(inputs, self.share, self.training)


def drop_for_all_steps(
    inputs: Float[Tensor, "batch time width"], share: float, training: bool
) -> Float[Tensor, "batch time width"]:
    """Dropout, in training, of the same numbers of a sequence at all its steps."""
    if not training or not share:
        return inputs
    return inputs * drop(inputs.new_ones(len(inputs), 1, inputs.shape[-1]), share, training)


def drop(inputs: Float[Tensor, "..."], share: float, training: bool) -> Float[Tensor, "..."]:
    """Dropout, in training, of each number by itself.

    On a CPU uniform numbers are compared with the share, in about half the time that
    torch takes to draw what to keep.
    """
    if not training or not share:
        return inputs
    if not inputs.is_cpu:
        return functional.dropout(inputs, share)
    kept = torch.rand(inputs.shape) >= share
    return inputs * (kept.to(inputs.dtype) / (1 - share))
