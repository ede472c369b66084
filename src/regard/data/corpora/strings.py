"""Letters to copy, to reverse and to sort: the smallest tasks that need attention, with their exact links."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase

from regard.data.corpora.drawing import Corpus, Drawn, between, pick
from regard.data.example import Example
from regard.errors import RegardError


@dataclass(frozen=True, kw_only=True)
class Letters(Corpus):
    """Random letters with spaces between them, so that each is a word and its link is exact.

    The length is drawn first, then each letter, all equally likely.
    """

    shortest: int = 3  # letters
    longest: int = 9
    alphabet: str = ascii_lowercase  # in the order in which letters are sorted

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise RegardError(
                f"shortest is {self.shortest}, longest {self.longest}; "
                "shortest must be at least 1 and longest no less than it"
            )
        if not self.alphabet:
            raise RegardError("alphabet is empty; give its letters in one text, without spaces")
        if any(letter.isspace() for letter in self.alphabet):
            raise RegardError(f'alphabet is "{self.alphabet}", with a space in it; give its letters without spaces')
        if len(set(self.alphabet)) < len(self.alphabet):
            raise RegardError(f'alphabet is "{self.alphabet}", with a letter twice; give each letter once')

    @abstractmethod
    def places(self, letters: Sequence[str]) -> Iterable[int]:
        """The places of the letters, in the order in which the target has them."""

    def draw(self, random: Random) -> Drawn:
        letters = [pick(random, self.alphabet) for _ in range(between(random, self.shortest, self.longest))]
        places = list(self.places(letters))
        source, target = " ".join(letters), " ".join(letters[place] for place in places)
        links = frozenset((place, position) for position, place in enumerate(places))
        return Drawn(source, Example(source, target, links))


class Copy(Letters):
    """The same again: `c a t` -> `c a t`."""

    def places(self, letters: Sequence[str]) -> Iterable[int]:
        return range(len(letters))


class Reverse(Letters):
    """The last letter first: `c a t` -> `t a c`."""

    def places(self, letters: Sequence[str]) -> Iterable[int]:
        return reversed(range(len(letters)))


class Sort(Letters):
    """In the order of the alphabet: `c a t` -> `a c t`. Equal letters keep their order."""

    def places(self, letters: Sequence[str]) -> Iterable[int]:
        return sorted(range(len(letters)), key=lambda place: self.alphabet.index(letters[place]))
