"""Where a token stands, told to layers that see no order by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import RegardError, unknown_name

POSITIONS = ("sinusoidal", "learned", "rotary")
"""The ways there are."""

BASE = 10_000.0  # how much slower the last pair of numbers turns than the first


class Places(NamedTuple):
    """The places of some tokens: what is added to their embeddings, or how their queries and keys turn."""

    added: Float[Tensor, "places width"] | None
    turn: Rotation | None

    def at(self, place: int, count: int = 1) -> Places:
        """Some of them, from a place on, as rows of their own."""
        here = slice(place, place + count)
        added, turn = self
        return Places(
            None if added is None else added[here],
            None if turn is None else Rotation(turn.cosine[here], turn.sine[here]),
        )


class Positions(nn.Module):
    """The places of a sequence, first to last.

    `sinusoidal` are the waves of Vaswani et al. 2017 (3.5), without parameters or limit;
    `learned` is a vector for each place up to `longest` (Gehring et al. 2017, 3.1);
    `rotary` turns queries and keys by angles that grow with the place, so that their
    product knows how far apart they stand (Su et al. 2021, 3.2). What is added to
    embeddings can be made smaller by `scale`, to meet smaller ones.
    """

    def __init__(self, kind: str, width: int, *, head_width: int, longest: int = 1024, scale: float = 1.0) -> None:
        super().__init__()
        check_positions(kind, head_width)
        self.kind, self.width, self.head_width, self.scale = kind, width, head_width, scale
        self.table = None
        if kind == "learned":
            self.table = nn.Parameter(torch.empty(longest, width))
            nn.init.normal_(self.table, std=scale * 2**-0.5)  # as large as the waves

    def forward(self, length: int, like: Float[Tensor, "..."]) -> Places:
        """The first `length` places, in the type and on the device of a tensor."""
        if self.table is not None:
            if length > len(self.table):
                raise RegardError(f"positions: {length} places are too many; longest is {len(self.table)}")
            return Places(self.table[:length], None)
        if self.kind == "rotary":
            turning = angles(length, self.head_width, like)
            return Places(None, Rotation(turning.cos(), turning.sin()))
        return Places(sinusoids(length, self.width, like) * self.scale, None)


@dataclass(frozen=True, eq=False)
class Rotation:
    """Turns each pair of neighbouring numbers by the angle of its place (Su et al. 2021, 3.2.2)."""

    cosine: Float[Tensor, "places pairs"]
    sine: Float[Tensor, "places pairs"]

    def __call__(self, heads: Float[Tensor, "*batch places width"]) -> Float[Tensor, "*batch places width"]:
        """Queries or keys, turned."""
        first, second = heads[..., 0::2], heads[..., 1::2]
        along, across = first * self.cosine - second * self.sine, first * self.sine + second * self.cosine
        return torch.stack([along, across], -1).flatten(-2).to(heads.dtype)


def sinusoids(length: int, width: int, like: Float[Tensor, "..."]) -> Float[Tensor, "length width"]:
    """Sine and cosine by turns, of wavelengths from 2π to 10000 · 2π (Vaswani et al. 2017, 3.5)."""
    turning = angles(length, width, like)
    return torch.stack([turning.sin(), turning.cos()], -1).flatten(-2)[:, :width].to(like.dtype)


def angles(length: int, width: int, like: Float[Tensor, "..."]) -> Float[Tensor, "length pairs"]:
    """The place, divided by 10000^(2i / width), for each pair i of numbers, in at least float32."""
    exact = torch.promote_types(like.dtype, torch.float32)
    places = torch.arange(length, dtype=exact, device=like.device)
    speeds = BASE ** (-torch.arange(0, width, 2, dtype=exact, device=like.device) / width)
    return places[:, None] * speeds


def check_positions(kind: str, head_width: int) -> None:
    """Raise a `RegardError` unless heads of this width can have positions of this kind."""
    if kind not in POSITIONS:
        raise unknown_name("positions", kind, POSITIONS)
    if kind == "rotary" and head_width % 2:
        raise RegardError(f"positions: rotary turns pairs of numbers; heads of width {head_width} leave one over")
