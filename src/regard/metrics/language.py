"""Perplexity, in units that can be compared between tokenizers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.metrics.score import Score


def text_scores(nats: float, *, tokens: int, words: int, characters: int, conditions: str) -> list[Score]:
    """What a text's surprise is worth: perplexity per token and per word, bits per character.

    The first depends on how the text is cut into tokens; the other two do not, as long
    as no token is unknown.

    Args:
        nats: -log p of the whole text.
        tokens: How many tokens were predicted, ends of documents among them.
        words: How many words, parted by whitespace, the text has.
        characters: How many characters, whitespace included.
        conditions: Under which conditions this holds.
    """
    found = [
        Score("loss", nats / tokens, f"nats a token|{conditions}"),
        Score("perplexity per token", exponential(nats / tokens), f"tokens:{tokens}|{conditions}", 2),
    ]
    if words:
        found.append(Score("perplexity per word", exponential(nats / words), f"words:{words}|{conditions}", 2))
    if characters:
        bits = nats / math.log(2) / characters
        found.append(Score("bits per character", bits, f"characters:{characters}|{conditions}"))
    return found


def exponential(value: float) -> float:
    """Euler's number to a power, infinite where it is beyond all numbers."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def distance_bands(longest: int) -> list[tuple[int, int]]:
    """How many tokens stood before, from and to: 1, 2, 3-4, 5-8, 9-16 and on, up to the longest."""
    bands, first = [], 1
    while first <= longest:
        last = first if first < 3 else 2 * (first - 1)
        bands.append((first, min(last, longest)))
        first = last + 1
    return bands


def by_distance(nats: Sequence[float], counts: Sequence[int]) -> list[Score]:
    """The mean loss by how many tokens could be looked back over; place p has sums for p + 1 tokens."""
    found = []
    for first, last in distance_bands(len(nats)):
        count = sum(counts[first - 1 : last])
        if count:
            tokens = "1 token" if last == 1 else f"{first} tokens" if first == last else f"{first}-{last} tokens"
            found.append(Score(f"loss after {tokens}", sum(nats[first - 1 : last]) / count, f"targets:{count}"))
    return found
