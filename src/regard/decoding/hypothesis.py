"""Hypothesis: a decoded target with its log-probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.batch import EOS, PAD


@dataclass(frozen=True)
class Hypothesis:
    """A decoded target.

    Attributes:
        tokens: The token ids without <bos>; the last one is <eos> if the target ended.
        log_probability: The log-probability of the tokens.
        ended: Whether the target ended with <eos>, rather than being cut off at the maximum length.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool

    @property
    def target(self) -> tuple[int, ...]:
        """The tokens without <eos>, as in a `Pair`."""
        return self.tokens[:-1] if self.ended else self.tokens


def from_padded(tokens: Sequence[int], log_probability: float) -> Hypothesis:
    """Build a hypothesis from tokens padded with PAD."""
    length = len(tokens) - list(reversed(tokens)).count(PAD)
    return Hypothesis(tuple(tokens[:length]), log_probability, ended=length > 0 and tokens[length - 1] == EOS)
