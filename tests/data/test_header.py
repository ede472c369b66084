import pytest

from regard.data.example import Example
from regard.data.header import format_header_note, is_header

DATES = [Example(f"{day} May 2024", f"2024-05-{day}") for day in range(10, 20)]
WORDS = [Example(f"der {a}{b}", f"the {b}{a}") for a in "abc" for b in "xyz"]


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (Example("date", "iso"), DATES),  # no digit where all have one
        (Example("english", "digits"), [Example(word.source, str(n)) for n, word in enumerate(WORDS)]),
        (Example("kana", "romaji"), [Example(text, "ka") for text in ("か", "かか", "き", "く", "け")]),
        (Example("German", "English"), WORDS),  # names that columns often have
        (Example("src", "tgt"), []),
    ],
)
def test_what_looks_like_a_header(first, others):
    assert is_header(first, others)


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (DATES[0], DATES[1:]),
        (WORDS[0], WORDS[1:]),
        (Example("date", "iso"), DATES[:4]),  # too few to tell
        (Example("May 2024", "2024-05"), DATES),
        (Example("der zug", "the train"), WORDS),
        (Example("german", "german"), WORDS),
        (Example("", ""), DATES),
    ],
)
def test_what_does_not(first, others):
    assert not is_header(first, others)


def test_columns_as_a_shell_takes_them():
    assert format_header_note(Example("the date", "iso")) == (
        'pair 1, "the date" -> "iso", looks like a header; to skip it, pass --columns \'the date,iso\''
    )
