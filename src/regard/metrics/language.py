"""Perplexity, in units that are comparable between tokenizers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.metrics.score import MetricScore


def score_text(nats: float, *, tokens: int, words: int, characters: int, conditions: str) -> list[MetricScore]:
    """Return loss, perplexity per token, perplexity per word and bits per character of a text.

    Perplexity per token depends on the tokenizer; perplexity per word and bits per character do
    not, as long as no token is unknown.

    Args:
        nats: Negative log-likelihood of the whole text.
        tokens: Number of predicted tokens, including ends of documents.
        words: Number of words, split at whitespace.
        characters: Number of characters, including whitespace.
        conditions: Conditions to add to each score.
    """
    scores = [
        MetricScore("loss", nats / tokens, f"nats per token|{conditions}"),
        MetricScore("perplexity per token", safe_exp(nats / tokens), f"tokens:{tokens}|{conditions}", 2),
    ]
    if words:
        scores.append(MetricScore("perplexity per word", safe_exp(nats / words), f"words:{words}|{conditions}", 2))
    if characters:
        bits = nats / math.log(2) / characters
        scores.append(MetricScore("bits per character", bits, f"characters:{characters}|{conditions}"))
    return scores


def safe_exp(value: float) -> float:
    """Return e to a power, infinity on overflow."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def build_distance_bands(max_distance: int) -> list[tuple[int, int]]:
    """Return bands of context lengths: 1, 2, 3-4, 5-8, 9-16 and so on, up to the maximum."""
    bands, first = [], 1
    while first <= max_distance:
        last = first if first < 3 else 2 * (first - 1)
        bands.append((first, min(last, max_distance)))
        first = last + 1
    return bands


def score_distance_bands(nats: Sequence[float], counts: Sequence[int]) -> list[MetricScore]:
    """Return the mean loss by context length; entry p of `nats` and `counts` is for p + 1 tokens."""
    scores = []
    for first, last in build_distance_bands(len(nats)):
        count = sum(counts[first - 1 : last])
        if count:
            tokens = "1 token" if last == 1 else f"{first} tokens" if first == last else f"{first}-{last} tokens"
            scores.append(MetricScore(f"loss after {tokens}", sum(nats[first - 1 : last]) / count, f"targets:{count}"))
    return scores
