"""What the tokens of a text might have been: the most probable tokens of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.steps import AT_ONCE, Writer, choices
from regard.text import Tokenizer

Considered = tuple[tuple[str, float], ...]
"""Texts and their probabilities, best first."""

COUNT = 5
"""Tokens that are named for each step."""


@torch.no_grad()
def model_alternatives(
    model: Writer, features: Float[Tensor, "time width"], tokens: Int[Tensor, " time"], tokenizer: Tokenizer
) -> tuple[Considered, ...]:
    """For each token the most probable ones by what one of our models thinks before it."""
    found: list[Considered] = []
    for places, own in zip(features.split(AT_ONCE), tokens.split(AT_ONCE), strict=True):
        found += most_probable(choices(model.output(places), allow_unknown=False).exp(), own, tokenizer.tokens_of)
    return tuple(found)


def most_probable(
    probabilities: Float[Tensor, "time vocabulary"],
    tokens: Int[Tensor, " time"],
    shown: Callable[[Sequence[int]], Sequence[str]],
) -> list[Considered]:
    """The most probable tokens of each step, and the one that stands there if it is none of them."""
    values, places = probabilities.topk(min(COUNT, probabilities.shape[-1]))
    own = probabilities.gather(-1, tokens[:, None])
    missing = (places != tokens[:, None]).all(-1).tolist()
    rows = zip(places.tolist(), values.tolist(), tokens.tolist(), own[:, 0].tolist(), missing, strict=True)
    return [
        tuple(zip(shown([*ids, token] if add else ids), [*numbers, number], strict=False))
        for ids, numbers, token, number, add in rows
    ]
