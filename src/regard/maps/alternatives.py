"""Alternatives to the tokens of a text: the most probable tokens at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.steps import MAX_POSITIONS, GenerativeModel, allowed_log_probabilities
from regard.models.features import Features
from regard.text import Tokenizer

TokenAlternatives = tuple[tuple[str, float], ...]
"""Texts and their probabilities, best first."""

TOP_K = 5
"""Number of tokens listed per step."""


@torch.no_grad()
def compute_alternatives(
    model: GenerativeModel,
    features: Float[Tensor, "time width"] | Features,
    tokens: Int[Tensor, " written"],
    tokenizer: Tokenizer,
) -> tuple[TokenAlternatives, ...]:
    """Return the most probable tokens at each step of one of our models.

    `features` are the hidden states before each token; there may be one more, after the last token.
    """
    alternatives: list[TokenAlternatives] = []
    part: Any
    for start in range(0, len(features), MAX_POSITIONS):
        stop = start + MAX_POSITIONS
        part = features[start:stop]
        alternatives += find_top_alternatives(
            allowed_log_probabilities(model.output(part), allow_unknown=False).exp(),
            tokens[start:stop],
            tokenizer.ids_to_tokens,
        )
    return tuple(alternatives)


def find_top_alternatives(
    probabilities: Float[Tensor, "time vocabulary"],
    tokens: Int[Tensor, " written"],
    to_text: Callable[[Sequence[int]], Sequence[str]],
) -> list[TokenAlternatives]:
    """Return the most probable tokens of each step, plus the actual token if it is not among them.

    Steps beyond the last token have no actual one.
    """
    values, top_ids = probabilities.topk(min(TOP_K, probabilities.shape[-1]))
    tokens = torch.cat([tokens, top_ids[len(tokens) :, 0]])
    token_probabilities = probabilities.gather(-1, tokens[:, None])
    missing = (top_ids != tokens[:, None]).all(-1).tolist()
    rows = zip(
        top_ids.tolist(), values.tolist(), tokens.tolist(), token_probabilities[:, 0].tolist(), missing, strict=True
    )
    return [
        tuple(zip(to_text([*ids, token] if add else ids), [*top_probabilities, probability], strict=False))
        for ids, top_probabilities, token, probability, add in rows
    ]
