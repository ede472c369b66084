"""Hypothesis: one target that a model proposes for a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.batch import EOS, PAD


@dataclass(frozen=True)
class Hypothesis:
    """The tokens of a target without <bos>, with <eos> if it ended, and the log of their probability.

    One that had not ended when it reached the greatest length is as long as that, and
    the log of its probability is that of a beginning.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool

    @property
    def target(self) -> tuple[int, ...]:
        """The tokens without <eos>, as a `Pair` has them."""
        return self.tokens[:-1] if self.ended else self.tokens


def from_padded(tokens: Sequence[int], log_probability: float) -> Hypothesis:
    """A hypothesis of tokens that are filled up with PAD at the end."""
    length = len(tokens) - list(reversed(tokens)).count(PAD)
    return Hypothesis(tuple(tokens[:length]), log_probability, ended=length > 0 and tokens[length - 1] == EOS)
