"""What the tokens of a text might have been: the beam's hypotheses, or the most probable tokens of each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis
from regard.decoding.steps import AT_ONCE, Writer, choices
from regard.predictor import END
from regard.text import Tokenizer
from regard.views.display import ELLIPSIS

Considered = tuple[tuple[str, float], ...]
"""Texts and their probabilities, best first."""

COUNT = 5
"""Tokens that are named for each step."""

TAIL = 40
"""Characters of a hypothesis that are shown: hypotheses of one beam mostly differ near their ends."""


def beam_alternatives(tokenizer: Tokenizer, steps: Sequence[Sequence[Hypothesis]]) -> tuple[Considered, ...]:
    """The hypotheses that each step of a beam considered, as texts."""
    return tuple(
        tuple((written(tokenizer, each), probability(each.log_probability)) for each in step) for step in steps
    )


def written(tokenizer: Tokenizer, hypothesis: Hypothesis) -> str:
    """The text of a hypothesis, or its end, with <eos> where it ended."""
    text = tokenizer.decode(hypothesis.target)
    if len(text) > TAIL:
        text = ELLIPSIS + text[1 - TAIL :]
    return " ".join(filter(None, [text, END])) if hypothesis.ended else text


def probability(log_probability: float) -> float:
    """No more than one, to which rounding may lead."""
    return min(1.0, math.exp(log_probability))


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
