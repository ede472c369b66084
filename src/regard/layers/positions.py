"""Positional encodings: sinusoidal, learned and rotary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import RegardError, unknown_name

POSITIONS = ("sinusoidal", "learned", "rotary")
"""The kinds of positions."""

ROTARY_BASE = 10_000.0  # ratio of the fastest to the slowest rotation


class EncodedPositions(NamedTuple):
    """Encoded positions: vectors to add to embeddings, or a rotation of queries and keys."""

    added: Float[Tensor, "positions width"] | None
    turn: Rotation | None

    def slice_from(self, start: int, count: int = 1) -> EncodedPositions:
        """Return `count` positions from `start` on."""
        span = slice(start, start + count)
        added, turn = self
        return EncodedPositions(
            None if added is None else added[span],
            None if turn is None else Rotation(turn.cosine[span], turn.sine[span]),
        )


class PositionalEncoding(nn.Module):
    """An encoding of the positions of a sequence.

    Args:
        kind: `sinusoidal` adds sine waves, without parameters or a maximum length (Vaswani et al.
            2017, 3.5); `learned` adds a vector per position up to `max_length` (Gehring et al. 2017,
            3.1); `rotary` rotates queries and keys by angles proportional to the position, so that
            their product depends on their distance (Su et al. 2021, 3.2).
        width: Width of the embeddings.
        head_width: Width of an attention head, for `rotary`.
        max_length: Number of learned positions.
        scale: Factor of the vectors that are added, to match small embeddings.
    """

    def __init__(self, kind: str, width: int, *, head_width: int, max_length: int = 1024, scale: float = 1.0) -> None:
        super().__init__()
        check_positions(kind, head_width)
        self.kind, self.width, self.head_width, self.scale = kind, width, head_width, scale
        self.table = None
        if kind == "learned":
            self.table = nn.Parameter(torch.empty(max_length, width))
            nn.init.normal_(self.table, std=scale * 2**-0.5)  # the standard deviation of the sinusoids

    def forward(self, length: int, like: Float[Tensor, "..."]) -> EncodedPositions:
        """Return the first `length` positions, in the type and on the device of `like`."""
        if self.table is not None:
            if length > len(self.table):
                raise RegardError(f"positions: {length} positions exceed the maximum of {len(self.table)}")
            return EncodedPositions(self.table[:length], None)
        if self.kind == "rotary":
            theta = angles(length, self.head_width, like)
            return EncodedPositions(None, Rotation(theta.cos(), theta.sin()))
        return EncodedPositions(sinusoids(length, self.width, like) * self.scale, None)


@dataclass(frozen=True, eq=False)
class Rotation:
    """A rotation of each pair of neighboring features by an angle per position (Su et al. 2021, 3.2.2)."""

    cosine: Float[Tensor, "positions pairs"]
    sine: Float[Tensor, "positions pairs"]

    def __call__(self, heads: Float[Tensor, "*batch positions width"]) -> Float[Tensor, "*batch positions width"]:
        """Rotate queries or keys."""
        first, second = heads[..., 0::2], heads[..., 1::2]
        along, across = first * self.cosine - second * self.sine, first * self.sine + second * self.cosine
        return torch.stack([along, across], -1).flatten(-2).to(heads.dtype)


def sinusoids(length: int, width: int, like: Float[Tensor, "..."]) -> Float[Tensor, "length width"]:
    """Return alternating sines and cosines with wavelengths from 2π to 10000 · 2π (Vaswani et al. 2017, 3.5)."""
    theta = angles(length, width, like)
    return torch.stack([theta.sin(), theta.cos()], -1).flatten(-2)[:, :width].to(like.dtype)


def angles(length: int, width: int, like: Float[Tensor, "..."]) -> Float[Tensor, "length pairs"]:
    """Return position / 10000^(2i / width) for each pair i of features, in at least float32."""
    exact = torch.promote_types(like.dtype, torch.float32)
    positions = torch.arange(length, dtype=exact, device=like.device)
    speeds = ROTARY_BASE ** (-torch.arange(0, width, 2, dtype=exact, device=like.device) / width)
    return positions[:, None] * speeds


def check_positions(kind: str, head_width: int) -> None:
    """Raise a `RegardError` unless heads of this width support positions of this kind."""
    if kind not in POSITIONS:
        raise unknown_name("positions", kind, POSITIONS)
    if kind == "rotary" and head_width % 2:
        raise RegardError(f"positions: rotary requires an even head width, got {head_width}")
