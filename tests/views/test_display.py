import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from regard.views.display import (
    align_center,
    align_right,
    display_width,
    isolate_direction,
    sanitize_text,
    split_graphemes,
    truncate,
    wrap_text,
)


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("\x1b[31mred", "␛[31mred"),
        ("\n\t\0\x7f", "␊␉␀␡"),
        ("\x9b31m", "\ufffd31m"),  # the one-byte form of an escape sequence
        ("\u202eabc", "\ufffdabc"),  # would write everything after it backwards
        ("\u2028", "\ufffd"),
        ("\ud800", "\ufffd"),
        ("  ", "␣␣"),
        ("a b", "a b"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "é"),
        ("\u1112\u1161\u11ab", "한"),
        ("\u1112", "ㅎ"),  # parts of a syllable, each a letter of its own
        ("\u1161", "ㅏ"),
        ("\u11ab", "ㄴ"),
        ("👍🏽", "👍"),
        ("❤\ufe0f", "❤"),
        ("🇩🇪", "DE"),
        ("بی\u200cتی", "بیتی"),
        ("", ""),
    ],
)
def test_what_steers_the_display_becomes_a_sign(token, shown):
    assert sanitize_text(token) == shown


@given(st.text())
def test_nothing_that_steers_is_left(token):
    categories = {unicodedata.category(char) for char in sanitize_text(token)}
    assert not categories & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("日本", 4), ("ｱ", 1), ("\uff31", 2), ("x\u0301", 1), ("👍", 2), ("שלמ", 3), ("…", 1)],
)
def test_widths_are_those_of_terminals(text, width):
    assert display_width(text) == width == cell_len(text)


@given(st.text(st.sampled_from("aé日本x\u0301한ש👍ц"), max_size=8), st.integers(1, 9))
def test_a_cut_text_fits(text, limit):
    shown = truncate(sanitize_text(text), limit)
    assert cell_len(shown) <= limit
    assert shown == sanitize_text(text) or shown[-1] == "…"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a   b", ["a   b"]),
        ("one two three", ["one two", "three"]),
        ("one two three four five six", ["one two", "three", "four fi…"]),
        ("日本 語語語", ["日本", "語語語"]),
        ("incredible me", ["incredi…", "me"]),
    ],
)
def test_a_text_is_broken_at_blanks_and_cut_behind_the_last_line(text, lines):
    assert wrap_text(text, limit=8, max_lines=3) == lines


def test_a_text_may_take_any_number_of_lines():
    assert wrap_text("one two three four five six", limit=8) == ["one two", "three", "four", "five six"]


def test_marks_stay_with_their_letters():
    assert split_graphemes("ax\u0301\u0302日") == ["a", "x\u0301\u0302", "日"]
    assert split_graphemes("कि") == ["कि"]
    assert truncate("x\u0301yz", 2) == "x\u0301…"


def test_only_what_runs_to_the_left_is_isolated():
    assert isolate_direction("abc日") == "abc日"
    assert isolate_direction("שלמ") == "\u2068שלמ\u2069"
    assert isolate_direction("٣") == "\u2068٣\u2069"


def test_padding_counts_columns():
    assert align_right("日", 4) == "  日"
    assert align_center("a", 3) == " a "
    assert align_center("日", 3) == "日 "
    assert cell_len(align_right("שלמ", 6)) == 6
