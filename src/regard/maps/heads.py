"""Measure the heads of a model while it reads a text, holding no weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.analysis import MEASURES, measure_heads
from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.maps.hugging_face import check_length, run_without_cache
from regard.maps.weights import split_heads
from regard.views.head_scores import HeadScores

LONG, MEASURED = 4096, 2048
"""Of a text with more than LONG tokens, so many evenly spaced queries are measured by default."""

DEFINITIONS = {name: f"{measure.definition} ({measure.source})" for name, measure in MEASURES.items()}


def score_heads(
    model: nn.Module,
    tokens: Int[Tensor, "batch time"],
    read: Callable[[Tensor], Any],
    title: str,
    queries: int | None = None,
) -> HeadScores:
    """Measure the self-attention of a model over tokens.

    Args:
        model: The model to watch.
        tokens: The token ids; the scores of several texts are averaged.
        read: Runs the model on the tokens.
        title: The name of the model.
        queries: Number of evenly spaced queries to measure (default: all, of long texts 2,048).
    """
    length = tokens.shape[-1]
    if queries is not None and queries < 1:
        raise RegardError(f"heads: queries must be a positive integer, got {queries}")
    if length < 2:
        raise RegardError(f"heads: the text must have at least 2 tokens, got {length}")
    queries = min(length, queries or (length if length <= LONG else MEASURED))

    def measure(weights: Weights) -> dict[str, Tensor] | None:
        weights = split_heads(weights, len(tokens))
        if weights.shape[-2:] != (length, length) or weights.shape[0] != len(tokens):
            return None  # not over the tokens of the text
        return measure_heads(weights, tokens, queries=queries)

    with torch.no_grad(), watch(model, keep=measure) as seen:
        read(tokens)
    layers = [(path, call) for path in seen for call in seen[path] if call is not None]
    if not layers:
        raise RegardError(f"heads: {title} has no self-attention over the tokens of a text")
    scores = tuple(
        {name: average_texts(values, len(tokens)) for name, values in measures.items()} for _, measures in layers
    )
    return HeadScores(title, tuple(path for path, _ in layers), scores, length, queries, DEFINITIONS)


def average_texts(values: Tensor, texts: int) -> tuple[float | None, ...]:
    """Return the mean over the texts for each head; None where it is undefined."""
    means = values.reshape(texts, -1).nanmean(0).tolist()
    return tuple(None if math.isnan(value) else value for value in means)


def score_transformer_heads(model: Any, tokens: Int[Tensor, "batch time"], queries: int | None = None) -> HeadScores:
    """Measure any model that is called with token ids; of a Transformers model without its output layer.

    Of an encoder-decoder model, this is the encoder.
    """
    if model.training:
        raise RegardError("heads: the model is in training mode; call model.eval() first")
    name = type(model).__name__
    if hasattr(model, "config"):
        check_length(model, tokens, "the text", "heads")
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        reader, name = model.get_encoder(), f"{name}, encoder"
    else:
        reader = getattr(model, "base_model", model)
    return score_heads(reader, tokens, partial(run_without_cache, reader), name, queries)
