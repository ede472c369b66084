"""Alternatives to the tokens of a text: the most probable tokens at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.steps import MAX_POSITIONS, GenerativeModel, allowed_log_probabilities
from regard.text import Tokenizer

TokenAlternatives = tuple[tuple[str, float], ...]
"""Texts and their probabilities, best first."""

TOP_K = 5
"""Number of tokens listed per step."""


@torch.no_grad()
def compute_alternatives(
    model: GenerativeModel, features: Float[Tensor, "time width"], tokens: Int[Tensor, " time"], tokenizer: Tokenizer
) -> tuple[TokenAlternatives, ...]:
    """Return the most probable tokens at each step of one of our models.

    `features` are the hidden states before each token.
    """
    alternatives: list[TokenAlternatives] = []
    for states, chunk_tokens in zip(features.split(MAX_POSITIONS), tokens.split(MAX_POSITIONS), strict=True):
        alternatives += find_top_alternatives(
            allowed_log_probabilities(model.output(states), allow_unknown=False).exp(),
            chunk_tokens,
            tokenizer.ids_to_tokens,
        )
    return tuple(alternatives)


def find_top_alternatives(
    probabilities: Float[Tensor, "time vocabulary"],
    tokens: Int[Tensor, " time"],
    to_text: Callable[[Sequence[int]], Sequence[str]],
) -> list[TokenAlternatives]:
    """Return the most probable tokens of each step, plus the actual token if it is not among them."""
    values, top_ids = probabilities.topk(min(TOP_K, probabilities.shape[-1]))
    token_probabilities = probabilities.gather(-1, tokens[:, None])
    missing = (top_ids != tokens[:, None]).all(-1).tolist()
    rows = zip(
        top_ids.tolist(), values.tolist(), tokens.tolist(), token_probabilities[:, 0].tolist(), missing, strict=True
    )
    return [
        tuple(zip(to_text([*ids, token] if add else ids), [*top_probabilities, probability], strict=False))
        for ids, top_probabilities, token, probability, add in rows
    ]
