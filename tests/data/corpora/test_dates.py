import re
import sys
from datetime import date, datetime, timedelta

import pytest

from regard.data.corpora import generate_examples
from regard.data.corpora.dates import LANGUAGES, Dates, format_date, get_locale, is_clear, list_patterns
from regard.errors import RegardError

KNOWN = [  # written by hand
    ("en", "March 5, 2024"),
    ("en", "Tuesday, March 5, 2024"),
    ("en", "5 March 2024"),
    ("de", "Dienstag, 5. März 2024"),
    ("de", "Dienstag, den 5. März 2024"),
    ("fr", "mardi 5 mars 2024"),
    ("fr", "le 5 mars 2024"),
    ("es", "5 de marzo de 2024"),
    ("it", "5 marzo 2024"),
    ("nl", "5 maart 2024"),
    ("pl", "5 marca 2024"),
    ("cs", "5. března 2024"),
    ("fi", "5. maaliskuuta 2024"),
    ("hu", "2024. március 5."),
    ("tr", "5 Mart 2024"),
    ("ru", "5 марта 2024 г."),  # noqa: RUF001
    ("uk", "5 березня 2024 р."),  # noqa: RUF001
    ("el", "5 Μαρτίου 2024"),
    ("ja", "2024年3月5日"),
    ("zh", "2024年3月5日"),
    ("ko", "2024년 3월 5일"),
]


def test_languages_and_ways_to_write():
    assert len(set(LANGUAGES)) == 32
    for language in LANGUAGES:
        assert len(list_patterns(language)) >= 3, language
        assert all(is_clear(pattern) for pattern in list_patterns(language))


@pytest.mark.parametrize(("language", "written"), KNOWN)
def test_known_dates(language, written):
    assert written in {format_date(date(2024, 3, 5), language, pattern) for pattern in list_patterns(language)}


def test_no_written_form_is_two_days():
    meaning: dict[str, date] = {}
    days = [date(year, 1, 1) + timedelta(days) for year in (1911, 2012) for days in range(365)]
    for language in LANGUAGES:
        for pattern in list_patterns(language):
            for day in days:
                assert meaning.setdefault(format_date(day, language, pattern), day) == day, (language, pattern)
    assert len(meaning) > 60_000


def test_english_reads_back():
    formats = ["%b %d, %Y", "%B %d, %Y", "%A, %B %d, %Y", "%a, %b %d, %Y", "%d %B %Y", "%d %b %Y", "%A, %d %B %Y"]
    seen = set()
    for example in generate_examples("dates", 300, languages=("en",)):
        read = {day for form in formats if (day := read_as(example.source, form))}
        assert read == {example.target}
        seen.add(re.sub(r"[a-z]+", "x", re.sub(r"\d+", "9", example.source.lower())))
    assert seen == {"x 9, 9", "x, x 9, 9", "9 x 9", "x, 9 x 9"}


def read_as(text, form):
    try:
        return datetime.strptime(text, form).date().isoformat()
    except ValueError:
        return None


def test_numbers_of_the_date_are_in_every_form():
    for example in generate_examples("dates", 1000, seed=3):
        year, month, day = (int(number) for number in example.target.split("-"))
        numbers = [int(number) for number in re.findall(r"\d+", example.source)]
        assert {year, day} <= set(numbers), example
        assert len(numbers) == 2 or month in numbers, example
        assert 1900 <= year <= 2100
        assert "\xa0" not in example.source
        assert "\u202f" not in example.source


def test_years_are_those_asked_for():
    assert {e.target[:4] for e in generate_examples("dates", 200, first_year=1999, last_year=2000)} == {"1999", "2000"}


def test_which_patterns_are_clear():
    for pattern in ("d MMMM y", "y/MM/dd", "dd.MM.y", "d. M. y", "E d.M.y", "EEEE, MMMM d, yyyy"):
        assert is_clear(pattern), pattern
    for pattern in ("M/d/y", "dd/MM/y", "d-M-y", "d.M.yy", "d MMM yy", "MM.dd.y"):
        assert not is_clear(pattern), pattern


def test_settings_are_checked():
    for settings, message in [
        ({"languages": ("tlh",)}, f'unknown languages "tlh"; choose from {", ".join(sorted(LANGUAGES))}'),
        ({"languages": ()}, f"languages is empty; choose from {', '.join(sorted(LANGUAGES))}"),
        ({"first_year": 2100, "last_year": 1900}, "last_year must be at least first_year (2100), got 1900"),
        ({"first_year": 999}, "first_year must be at least 1,000, got 999"),
    ]:
        with pytest.raises(RegardError) as caught:
            Dates(**settings)
        assert str(caught.value) == message


def test_without_babel_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    get_locale.cache_clear()
    list_patterns.cache_clear()
    with pytest.raises(RegardError) as caught:
        generate_examples("dates", 1)
    assert str(caught.value) == "dates: Babel is not installed; pip install Babel"
