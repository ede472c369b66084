"""Letters to copy, reverse or sort: the smallest tasks that need attention, with exact alignments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Annotated

from regard.bounds import Bounds, check_bounds
from regard.data.corpora.base import SampledExample, SyntheticCorpus, sample_int, sample_item
from regard.data.example import Example
from regard.errors import RegardError


@dataclass(frozen=True, kw_only=True)
class Letters(SyntheticCorpus):
    """Random letters separated by spaces, so each is a word with an exact alignment.

    The length is drawn first, then each letter, both uniformly.
    """

    min_length: Annotated[int, Bounds(1, 10_000)] = 3  # minimum number of letters
    max_length: Annotated[int, Bounds(1, 10_000)] = 9  # maximum number of letters
    alphabet: str = ascii_lowercase  # letters to draw from, in sorting order

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.max_length < self.min_length:
            raise RegardError(f"max_length must be at least min_length ({self.min_length}), got {self.max_length}")
        if not self.alphabet:
            raise RegardError("alphabet is empty")
        if any(letter.isspace() for letter in self.alphabet):
            raise RegardError(f'alphabet must not contain spaces, got "{self.alphabet}"')
        if len(set(self.alphabet)) < len(self.alphabet):
            raise RegardError(f'alphabet must not repeat a letter, got "{self.alphabet}"')

    @abstractmethod
    def order_indices(self, letters: Sequence[str]) -> Iterable[int]:
        """Return the source indices of the letters in the order of the target."""

    def sample(self, random: Random) -> SampledExample:
        letters = [
            sample_item(random, self.alphabet) for _ in range(sample_int(random, self.min_length, self.max_length))
        ]
        order = list(self.order_indices(letters))
        source, target = " ".join(letters), " ".join(letters[index] for index in order)
        links = frozenset((index, position) for position, index in enumerate(order))
        return SampledExample(source, Example(source, target, links))


class Copy(Letters):
    """Letters to copy: `c a t` -> `c a t`."""

    def order_indices(self, letters: Sequence[str]) -> Iterable[int]:
        return range(len(letters))


class Reverse(Letters):
    """Letters to reverse: `c a t` -> `t a c`."""

    def order_indices(self, letters: Sequence[str]) -> Iterable[int]:
        return reversed(range(len(letters)))


class Sort(Letters):
    """Letters to sort by the alphabet: `c a t` -> `a c t`. Equal letters keep their order."""

    def order_indices(self, letters: Sequence[str]) -> Iterable[int]:
        return sorted(range(len(letters)), key=lambda index: self.alphabet.index(letters[index]))
