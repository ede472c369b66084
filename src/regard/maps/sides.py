"""One side of an attention map: its labels, and the tokens of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.text.tokenizer import Tokenizer
from regard.text.units import TextUnit, split_into_units


@dataclass(frozen=True)
class Side:
    """The words or tokens of one side. Tokens that belong to no unit, such as spaces, are not shown."""

    units: tuple[TextUnit, ...]
    size: int  # total number of tokens

    @property
    def names(self) -> tuple[str, ...]:
        """Labels of the units."""
        return tuple(unit.text for unit in self.units)

    @cached_property
    def merged(self) -> bool:
        """Whether units and tokens differ."""
        return len(self.units) < self.size

    def iter_blocks(self, max_tokens: int) -> Iterator[tuple[TextUnit, ...]]:
        """Yield the units in blocks of at most `max_tokens` tokens, but at least one unit."""
        start = 0
        for index, unit in enumerate(self.units):
            if index > start and unit.token_indices[-1] + 1 - self.units[start].token_indices[0] > max_tokens:
                yield self.units[start:index]
                start = index
        yield self.units[start:]

    def sum_columns(self, weights: Float[Tensor, "*heads rows tokens"]) -> Float[Tensor, "*heads rows units"]:
        """Sum the columns of each unit."""
        if not self.merged:
            return weights
        totals = weights.new_zeros(*weights.shape[:-1], len(self.units) + 1)
        return totals.index_add_(-1, map_tokens_to_units(self.units, range(self.size), weights.device), weights)[
            ..., :-1
        ]


def mean_rows(
    weights: Float[Tensor, "*heads tokens columns"], units: Sequence[TextUnit]
) -> Float[Tensor, "*heads units columns"]:
    """Average the rows of each unit. `weights` starts at the first token of the first unit."""
    tokens = range(units[0].token_indices[0], units[-1].token_indices[-1] + 1)
    if len(tokens) == len(units):
        return weights
    unit_indices = map_tokens_to_units(units, tokens, weights.device)
    totals = weights.new_zeros(*weights.shape[:-2], len(units) + 1, weights.shape[-1])
    return totals.index_add_(-2, unit_indices, weights)[..., :-1, :] / unit_indices.bincount()[: len(units), None]


def map_tokens_to_units(units: Sequence[TextUnit], tokens: range, device: torch.device) -> Int[Tensor, " tokens"]:
    """Return the unit index of each token; `len(units)` for tokens that belong to none."""
    unit_indices = torch.full((len(tokens),), len(units))
    for index, unit in enumerate(units):
        unit_indices[unit.token_indices[0] - tokens.start : unit.token_indices[-1] + 1 - tokens.start] = index
    return unit_indices.to(device)


def build_token_side(tokens: Sequence[str]) -> Side:
    """Return a side with one unit per token."""
    return Side(tuple(TextUnit(token, (index,)) for index, token in enumerate(tokens)), len(tokens))


def build_word_side(
    tokenizer: Tokenizer,
    text: str,
    tokens: Sequence[str],
    words: Sequence[int | None],
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    merge: bool = True,
) -> Side:
    """Return the words, or composed characters, of a text between special tokens; its tokens if `merge` is False."""
    if not merge:
        return build_token_side((*before, *tokens, *after))
    start, end = len(before), len(before) + len(tokens)
    units = [
        unit._replace(token_indices=tuple(start + index for index in unit.token_indices))
        for unit in split_into_units(tokenizer, text, tokens, words)
    ]
    first = [TextUnit(token, (index,)) for index, token in enumerate(before)]
    last = [TextUnit(token, (end + index,)) for index, token in enumerate(after)]
    return Side((*first, *units, *last), end + len(after))
