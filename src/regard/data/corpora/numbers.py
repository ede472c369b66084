"""Number words in 16 languages -> digits, or the words of another language."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from regard.data.corpora.drawing import Corpus, Drawn, between, check_names, extra, pick
from regard.data.example import Example
from regard.errors import RegardError

LANGUAGES = ("ca", "de", "en", "fi", "fr", "hu", "id", "it", "ja", "ko", "lt", "pl", "pt", "ru", "tr", "uk")
"""In all of them together, no words name two numbers."""

DIGITS = "digits"
GREATEST = 999_999_999


@dataclass(frozen=True, kw_only=True)
class Numbers(Corpus):
    """Whole numbers in words: `zweiundvierzig` -> `42`.

    With `into` a language the target is in words too: `languages=("en",), into="de"`
    has `forty-two` -> `zweiundvierzig`; `digits` may also stand among the languages, so
    that numbers are read out. How many digits a number has is drawn first, so small and
    large ones both occur. Valid has other numbers than train.
    """

    languages: tuple[str, ...] = LANGUAGES  # of the source
    into: str = DIGITS  # or a language: that of the target
    highest: int = 999_999

    def __post_init__(self) -> None:
        check_names("languages", self.languages, (*LANGUAGES, DIGITS))
        check_names("into", (self.into,), (*LANGUAGES, DIGITS))
        if self.into in self.languages:
            raise RegardError(f'into is "{self.into}", which is among languages too; source and target must differ')
        if not 0 <= self.highest <= GREATEST:
            raise RegardError(f"highest is {self.highest}; a number from 0 to {GREATEST} is needed")

    def draw(self, random: Random) -> Drawn:
        digits = between(random, 1, len(str(self.highest)))
        lowest = 0 if digits == 1 else 10 ** (digits - 1)
        number = between(random, lowest, min(10**digits - 1, self.highest))
        source = write(number, pick(random, self.languages))
        return Drawn(str(number), Example(source, write(number, self.into)))


def write(number: int, language: str) -> str:
    """A number in the words of a language, or in digits."""
    return str(number) if language == DIGITS else " ".join(writer(language).to_cardinal(number).split())


@cache
def writer(language: str) -> Any:
    """What writes the numbers of a language."""
    return extra("numbers", "num2words", "num2words").CONVERTER_CLASSES[language]
