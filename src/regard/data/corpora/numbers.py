"""Number words in 16 languages -> digits, or the words of another language."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Annotated, Any

from regard.bounds import Bounds, check_bounds
from regard.data.corpora.base import SampledExample, SyntheticCorpus, check_names, import_extra, sample_int, sample_item
from regard.data.example import Example
from regard.errors import RegardError

LANGUAGES = ("ca", "de", "en", "fi", "fr", "hu", "id", "it", "ja", "ko", "lt", "pl", "pt", "ru", "tr", "uk")
"""Languages in which no number word is ambiguous across languages."""

DIGITS = "digits"
MAX_NUMBER = 999_999_999


@dataclass(frozen=True, kw_only=True)
class Numbers(SyntheticCorpus):
    """Integers in words: `zweiundvierzig` -> `42`.

    If `into` is a language, the target is in words too: `languages=("en",), into="de"` gives
    `forty-two` -> `zweiundvierzig`. `digits` is also allowed in `languages`, for numbers to be
    read out. The number of digits is drawn first, so small and large numbers both occur. The
    validation split has different numbers.
    """

    languages: tuple[str, ...] = LANGUAGES  # languages of the source
    into: str = DIGITS  # language of the target, or digits
    highest: Annotated[int, Bounds(0, MAX_NUMBER)] = 999_999  # largest number

    def __post_init__(self) -> None:
        check_bounds(self)
        check_names("languages", self.languages, (*LANGUAGES, DIGITS))
        check_names("into", (self.into,), (*LANGUAGES, DIGITS))
        if self.into in self.languages:
            raise RegardError(f'into must not be one of languages, got "{self.into}"')

    def sample(self, random: Random) -> SampledExample:
        digits = sample_int(random, 1, len(str(self.highest)))
        lowest = 0 if digits == 1 else 10 ** (digits - 1)
        number = sample_int(random, lowest, min(10**digits - 1, self.highest))
        source = number_to_words(number, sample_item(random, self.languages))
        return SampledExample(str(number), Example(source, number_to_words(number, self.into)))


def number_to_words(number: int, language: str) -> str:
    """Write a number in the words of a language, or in digits."""
    return str(number) if language == DIGITS else " ".join(get_converter(language).to_cardinal(number).split())


@cache
def get_converter(language: str) -> Any:
    """Return the num2words converter of a language."""
    return import_extra("numbers", "num2words", "num2words").CONVERTER_CLASSES[language]
