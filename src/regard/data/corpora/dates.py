"""Written dates in 32 languages -> ISO 8601."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from random import Random
from typing import Annotated, Any

from regard.bounds import Bounds, check_bounds
from regard.data.corpora.base import SampledExample, SyntheticCorpus, check_names, import_extra, sample_int, sample_item
from regard.data.example import Example
from regard.errors import RegardError

LANGUAGES = (
    "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hu", "id", "is", "it", "ja",
    "ko", "lt", "lv", "nb", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "vi", "zh",
)  # fmt: skip
"""Languages with the same calendar, the digits 0 to 9, and no conflicting month names: Croatian is excluded because
its listopad is October, which is November in Polish and Czech."""

STYLES = ("medium", "long", "full")
SKELETONS = ("yMMMd", "yMMMEd")
EXTRA_PATTERNS = {  # date patterns that CLDR does not list for the language
    "de": ("d.M.y", "EEEE, 'den' d. MMMM y"),
    "en": ("d MMMM y", "d MMM y", "EEEE, d MMMM y"),
    "fr": ("'le' d MMMM y",),
    "ja": ("y年MM月dd日",),
    "ru": ("dd.MM.y",),
    "zh": ("y年MM月dd日", "y/M/d"),
}

DOTTED = re.compile(r"[Ec, ]*d+\. ?M+\. ?y")

Year = Annotated[int, Bounds(1000, 9999)]


@dataclass(frozen=True, kw_only=True)
class Dates(SyntheticCorpus):
    """Written dates: `Dienstag, 5. März 2024` -> `2024-03-05`.

    Days, languages and date patterns (from CLDR through Babel, and a few more) are drawn
    uniformly. Upper and lower case follow Babel; all spaces are plain spaces. The words may
    differ slightly between versions of Babel, the days do not. The validation split has
    different days, so its dates are unseen in every language.
    """

    languages: tuple[str, ...] = LANGUAGES  # CLDR codes of the source languages
    first_year: Year = 1900
    last_year: Year = 2100

    def __post_init__(self) -> None:
        check_bounds(self)
        check_names("languages", self.languages, LANGUAGES)
        if self.last_year < self.first_year:
            raise RegardError(f"last_year must be at least first_year ({self.first_year}), got {self.last_year}")

    def sample(self, random: Random) -> SampledExample:
        first, last = date(self.first_year, 1, 1), date(self.last_year, 12, 31)
        day = date.fromordinal(sample_int(random, first.toordinal(), last.toordinal()))
        language = sample_item(random, self.languages)
        written = format_date(day, language, sample_item(random, list_patterns(language)))
        return SampledExample(day.isoformat(), Example(written, day.isoformat()))


def format_date(day: date, language: str, pattern: str) -> str:
    """Format a day with a CLDR pattern, with plain spaces."""
    text: str = import_babel_dates().format_date(day, pattern, get_locale(language))
    return " ".join(text.split())


@cache
def list_patterns(language: str) -> tuple[str, ...]:
    """Return the distinct, unambiguous date patterns of a language."""
    babel_locale = get_locale(language)
    listed = [babel_locale.date_formats[style].pattern for style in STYLES]
    listed += [babel_locale.datetime_skeletons[skeleton].pattern for skeleton in SKELETONS]
    return tuple(
        dict.fromkeys(pattern for pattern in (*listed, *EXTRA_PATTERNS.get(language, ())) if is_clear(pattern))
    )


def is_clear(pattern: str) -> bool:
    """Return whether a pattern is unambiguous without knowing the language.

    The year must be complete, and the month in letters or the order of the numbers one that
    all languages share: year first, or day first with dots. With slashes, 3/5/2024 can be in
    March or May.
    """
    whole = re.search(r"(?<!y)(y|yyyy)(?!y)", pattern) is not None
    return whole and ("MMM" in pattern or pattern.startswith("y") or DOTTED.match(pattern) is not None)


@cache
def get_locale(language: str) -> Any:
    """Return the Babel locale of a language."""
    return import_extra("dates", "babel", "Babel").Locale.parse(language)


@cache
def import_babel_dates() -> Any:
    """Import `babel.dates`."""
    return import_extra("dates", "babel.dates", "Babel")
