"""One side of an attention map: what is shown, and the tokens that each of it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.text.tokenizer import Kind
from regard.text.units import Unit, units_of


@dataclass(frozen=True)
class Side:
    """The words, or tokens, of one side. Tokens that belong to none of them, such as spaces, are not shown."""

    units: tuple[Unit, ...]
    size: int  # tokens in all

    @property
    def names(self) -> tuple[str, ...]:
        """What is written beside the map."""
        return tuple(unit.text for unit in self.units)

    @cached_property
    def merged(self) -> bool:
        """Whether a unit is not simply a token."""
        return len(self.units) < self.size

    def blocks(self, most: int) -> Iterator[tuple[Unit, ...]]:
        """The units, as many at a time as have `most` tokens together, and one at the least."""
        start = 0
        for place, unit in enumerate(self.units):
            if place > start and unit.places[-1] + 1 - self.units[start].places[0] > most:
                yield self.units[start:place]
                start = place
        yield self.units[start:]

    def summed(self, weights: Float[Tensor, "*heads rows tokens"]) -> Float[Tensor, "*heads rows units"]:
        """The columns of each unit added up."""
        if not self.merged:
            return weights
        found = weights.new_zeros(*weights.shape[:-1], len(self.units) + 1)
        return found.index_add_(-1, owners(self.units, range(self.size), weights.device), weights)[..., :-1]


def mean_rows(
    weights: Float[Tensor, "*heads tokens columns"], units: Sequence[Unit]
) -> Float[Tensor, "*heads units columns"]:
    """The mean of the rows of each unit, from the first token of the first to the last of the last."""
    tokens = range(units[0].places[0], units[-1].places[-1] + 1)
    if len(tokens) == len(units):
        return weights
    own = owners(units, tokens, weights.device)
    found = weights.new_zeros(*weights.shape[:-2], len(units) + 1, weights.shape[-1])
    return found.index_add_(-2, own, weights)[..., :-1, :] / own.bincount()[: len(units), None]


def owners(units: Sequence[Unit], tokens: range, device: torch.device) -> Int[Tensor, " tokens"]:
    """The number of the unit that each token belongs to; after the last for those that belong to none."""
    found = torch.full((len(tokens),), len(units))
    for number, unit in enumerate(units):
        found[unit.places[0] - tokens.start : unit.places[-1] + 1 - tokens.start] = number
    return found.to(device)


def token_side(tokens: Sequence[str]) -> Side:
    """Every token by itself."""
    return Side(tuple(Unit(token, (place,)) for place, token in enumerate(tokens)), len(tokens))


def word_side(
    kind: Kind,
    written: str,
    tokens: Sequence[str],
    words: Sequence[int | None],
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    merge: bool = True,
) -> Side:
    """A text between special tokens: its words where tokens are parts of them and to be merged, else its tokens."""
    if not merge:
        return token_side((*before, *tokens, *after))
    start, end = len(before), len(before) + len(tokens)
    own = [
        unit._replace(places=tuple(start + place for place in unit.places))
        for unit in units_of(kind, written, tokens, words)
    ]
    first = [Unit(token, (place,)) for place, token in enumerate(before)]
    last = [Unit(token, (end + place,)) for place, token in enumerate(after)]
    return Side((*first, *own, *last), end + len(after))
