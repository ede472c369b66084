"""Written dates in 32 languages -> ISO 8601."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from random import Random
from typing import Any

from regard.data.corpora.drawing import Corpus, Drawn, between, check_names, extra, pick
from regard.data.example import Example
from regard.errors import RegardError

LANGUAGES = (
    "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hu", "id", "is", "it", "ja",
    "ko", "lt", "lv", "nb", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "vi", "zh",
)  # fmt: skip
"""Of one calendar and of digits 0 to 9, and no month of one is another month of another: Croatian, whose
listopad is October, would contradict Polish and Czech, where it is November."""

STYLES = ("medium", "long", "full")
SKELETONS = ("yMMMd", "yMMMEd")
OWN = {  # ways to write a date that CLDR does not list for the language
    "de": ("d.M.y", "EEEE, 'den' d. MMMM y"),
    "en": ("d MMMM y", "d MMM y", "EEEE, d MMMM y"),
    "fr": ("'le' d MMMM y",),
    "ja": ("y年MM月dd日",),
    "ru": ("dd.MM.y",),
    "zh": ("y年MM月dd日", "y/M/d"),
}

DOTTED = re.compile(r"[Ec, ]*d+\. ?M+\. ?y")


@dataclass(frozen=True, kw_only=True)
class Dates(Corpus):
    """Dates as people write them: `Dienstag, 5. März 2024` -> `2024-03-05`.

    Days, languages and the ways a language writes dates (CLDR's, through Babel, and a
    few more) are drawn evenly. Upper and lower case are Babel's; every space is a plain
    one. The words may differ a little between versions of Babel, the days drawn do not.
    Valid has other days than train: a date held out is unseen in every language.
    """

    languages: tuple[str, ...] = LANGUAGES  # as CLDR calls them
    first_year: int = 1900
    last_year: int = 2100

    def __post_init__(self) -> None:
        check_names("languages", self.languages, LANGUAGES)
        if not 1000 <= self.first_year <= self.last_year <= 9999:
            raise RegardError(
                f"first_year is {self.first_year}, last_year {self.last_year}; "
                "both must have four digits, and the last not be before the first"
            )

    def draw(self, random: Random) -> Drawn:
        first, last = date(self.first_year, 1, 1), date(self.last_year, 12, 31)
        day = date.fromordinal(between(random, first.toordinal(), last.toordinal()))
        language = pick(random, self.languages)
        written = write(day, language, pick(random, patterns(language)))
        return Drawn(day.isoformat(), Example(written, day.isoformat()))


def write(day: date, language: str, pattern: str) -> str:
    """A day as a pattern of CLDR writes it, with plain spaces."""
    text: str = dates_of_babel().format_date(day, pattern, locale(language))
    return " ".join(text.split())


@cache
def patterns(language: str) -> tuple[str, ...]:
    """The ways to write a date in a language, each once, without those that could mean two days."""
    known = locale(language)
    listed = [known.date_formats[style].pattern for style in STYLES]
    listed += [known.datetime_skeletons[skeleton].pattern for skeleton in SKELETONS]
    return tuple(dict.fromkeys(pattern for pattern in (*listed, *OWN.get(language, ())) if is_clear(pattern)))


def is_clear(pattern: str) -> bool:
    """Whether what it writes is one day to a reader who does not know the language.

    The year is whole, and the month is in letters, or the order of the numbers is one
    that all languages share: year first, or day first with dots. With slashes, 3/5/2024
    is in March or in May.
    """
    whole = re.search(r"(?<!y)(y|yyyy)(?!y)", pattern) is not None
    return whole and ("MMM" in pattern or pattern.startswith("y") or DOTTED.match(pattern) is not None)


@cache
def locale(language: str) -> Any:
    """Babel's knowledge of a language."""
    return extra("dates", "babel", "Babel").Locale.parse(language)


@cache
def dates_of_babel() -> Any:
    """Babel's module of dates."""
    return extra("dates", "babel.dates", "Babel")
