import sys

import pytest

from regard.data.corpora import generate_built_in, generate_examples
from regard.data.corpora.numbers import LANGUAGES, Numbers, get_converter, number_to_words
from regard.errors import RegardError

SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def read_english(words):
    """The number that English words name."""
    total = group = 0
    for word in words.replace("-", " ").replace(",", "").split():
        if word == "thousand":
            total, group = group * 1000, 0
        elif word == "hundred":
            group *= 100
        elif word in SMALL:
            group += SMALL.index(word)
        elif word != "and":
            group += 10 * (TENS.index(word) + 2)
    return total + group


def test_english_reads_back():
    for example in generate_examples("numbers", 400, languages=("en",)):
        assert str(read_english(example.source)) == example.target


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", "zweiundvierzigtausenddreihundertsiebzehn"),
        ("en", "forty-two thousand, three hundred and seventeen"),
        ("fr", "quarante-deux mille trois cent dix-sept"),
        ("it", "quarantaduemilatrecentodiciassette"),
        ("ja", "四万二千三百十七"),
        ("ko", "사만 이천삼백십칠"),
        ("pl", "czterdzieści dwa tysiące trzysta siedemnaście"),
        ("pt", "quarenta e dois mil trezentos e dezassete"),
        ("ru", "сорок две тысячи триста семнадцать"),
        ("tr", "kırkikibinüçyüzonyedi"),  # noqa: RUF001
        ("digits", "42317"),
    ],
)
def test_known_numbers(language, words):
    assert number_to_words(42317, language) == words


def test_no_words_name_two_numbers():
    meaning: dict[str, int] = {}
    for language in LANGUAGES:
        for number in (*range(1200), *range(2000, 10**6, 3001)):
            assert meaning.setdefault(number_to_words(number, language), number) == number, language
    assert len(meaning) > 20_000


def test_small_and_large_both_occur():
    lengths = [len(example.target) for example in generate_examples("numbers", 600)]
    assert min(lengths.count(digits) for digits in range(2, 7)) > 60


def test_the_highest_is_the_highest():
    numbers = {int(example.target) for example in generate_examples("numbers", 131, highest=130, languages=("de",))}
    assert numbers == set(range(131))


def test_between_two_languages():
    train, valid = generate_built_in("numbers", train=200, valid=30, languages=("en",), into="de")
    for example in train + valid:
        assert number_to_words(read_english(example.source), "de") == example.target
    read_out = generate_examples("numbers", 20, languages=("digits",), into="en")
    assert all(read_english(example.target) == int(example.source) for example in read_out)


def test_settings_are_checked():
    known = ", ".join(sorted((*LANGUAGES, "digits")))
    for settings, message in [
        ({"languages": ()}, f"languages is empty; choose from {known}"),
        ({"languages": ("xx",)}, f'unknown languages "xx"; choose from {known}'),
        ({"into": "digit"}, 'unknown into "digit"; did you mean "digits"?'),
        ({"into": "de"}, 'into must not be one of languages, got "de"'),
        ({"highest": -1}, "highest must be at least 0, got -1"),
    ]:
        with pytest.raises(RegardError) as caught:
            Numbers(**settings)
        assert str(caught.value) == message


def test_without_num2words_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "num2words", None)
    get_converter.cache_clear()
    with pytest.raises(RegardError) as caught:
        generate_examples("numbers", 1)
    assert str(caught.value) == "numbers: num2words is not installed; pip install num2words"
