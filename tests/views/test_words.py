import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from regard import RegardError
from regard.views.shades import DARK_RAMP, RAMP, choose_text_color
from regard.views.words import build_words_page, shade_steps, shade_words

WORDS, WEIGHTS = ("a", "dull", "film"), (0.0, 1.0, 1 / 3)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_shades_stand_below_the_words():
    assert shade_words(WORDS, WEIGHTS, title="negative", width=30, color="ascii").splitlines() == [
        "negative",
        "a dull film",
        "  @@@@ ----",
        "0  .:-=+*#%@ 1",
    ]


def test_faint_weights_are_seen_on_a_scale_of_their_own():
    lines = shade_words(("x", "y"), (0.125, 0.5), width=30, color="ascii").splitlines()
    assert lines == ["x y", ": @", "0  .:-=+*#%@ 0.5"]  # a quarter of nine steps is two


def test_words_stand_upon_their_colors():
    lines = shade_words(WORDS, WEIGHTS, width=30, color="truecolor").splitlines()
    paper, deepest = "\x1b[38;2;0;0;0;48;2;242;248;252m", "\x1b[38;2;255;255;255;48;2;18;36;81m"
    assert lines[0].startswith(f"{paper}a\x1b[0m {deepest}dull\x1b[0m \x1b[38;2;0;0;0;48;2;")
    lines = shade_words(WORDS, WEIGHTS, width=30, color="256").splitlines()
    assert lines[0].startswith("\x1b[38;5;16;48;5;231ma\x1b[0m \x1b[38;5;231;48;5;18mdull\x1b[0m ")


def test_lines_are_wrapped_at_the_width():
    lines = shade_words(["abcde"] * 7, [1.0] * 7, width=30, color="ascii").splitlines()
    assert lines[0::2][:2] == ["abcde abcde abcde abcde abcde", "abcde abcde"]  # the first is 29 columns
    assert lines[1::2][:2] == ["@@@@@ @@@@@ @@@@@ @@@@@ @@@@@", "@@@@@ @@@@@"]


def test_a_title_goes_on_in_further_lines():
    line = " ".join(["word"] * 6)  # 29 columns
    for words, titles in ((7, [line, "word"]), (19, [line, line, f"{line}…"])):
        title = " ".join(["word"] * words)
        lines = shade_words(WORDS, WEIGHTS, title=title, width=30, color="ascii").splitlines()
        assert lines[:-2] == [*titles, "a dull film"]


def test_steps_share_one_scale():
    steps = [(", ".join(["some 0.5"] * 8), (0.0, 0.05, 0.2)), ("", (1.0, 0.0, 0.4))]
    assert shade_steps(WORDS, steps, width=30, color="ascii").split("\n") == [
        "some 0.5, some 0.5, some 0.5,",
        "some 0.5, some 0.5, some 0.5,",
        "some 0.5, some 0.5",
        "a dull film",
        "       ::::",
        "",
        "a dull film",
        "@      ====",
        "",
        "0  .:-=+*#%@ 1",
    ]


TOKENS = ["日本語", "x\u0301", "\x1b[2J", "שלום", "", " ", "👩‍👩‍👧", "wort" * 20, "\u0301", "\n", "\ud800", "\u202e"]


@given(
    st.lists(st.sampled_from(TOKENS), max_size=30),
    st.integers(30, 100),
    st.sampled_from(["truecolor", "256", "ascii"]),
)
def test_no_line_is_too_wide_whatever_the_words(words, width, color):
    lines = COLOUR.sub("", shade_words(words, [0.5] * len(words), width=width, color=color)).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e\ud800]", "".join(lines))
    if color == "ascii":
        for text, shades in zip(lines[:-1:2], lines[1:-1:2], strict=True):
            assert len(shades) == cell_len(text.rstrip()) or not shades.strip("+= ")


def test_no_words_are_a_scale_alone():
    assert shade_words((), (), color="ascii") == "0  .:-=+*#%@ 0.01"


@pytest.mark.parametrize(
    ("words", "weights", "message"),
    [
        (("a", "b"), [0.5], "words: expected 2 weights, got shape (1,)"),
        (("a",), [[0.5]], "words: expected 1 weights, got shape (1, 1)"),
        (("a", "b"), [0.5, np.nan], "words: weight 1 must be between 0 and 1, got nan"),
        (("a", "b"), [-0.1, 0.5], "words: weight 0 must be between 0 and 1, got -0.1"),
        ("ab", [0.5, 0.5], "words: expected a sequence of strings, got 'ab'"),
    ],
)
def test_what_does_not_fit_is_refused(words, weights, message):
    with pytest.raises(RegardError) as caught:
        shade_words(words, weights)
    assert str(caught.value) == message


class Reader(HTMLParser):
    """Collects what a browser would see: words with their values and classes, headings, and all tags."""

    def __init__(self, page):
        super().__init__()
        self.words, self.headings, self.tags, self.inside = [], [], set(), None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.inside = tag
        if tag == "data":
            self.words.append([dict(attrs)["class"], float(dict(attrs)["value"]), ""])

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "data":
            self.words[-1][2] += data
        if self.inside == "h2":
            self.headings.append(data)


def test_the_page_holds_every_word_and_number():
    page = Reader(build_words_page([(WORDS, WEIGHTS, "negative"), (("<b>", "&amp;"), (0.25, 0.75), "")]))
    assert page.words == [
        ["s0", 0, "a"],
        ["s20", 1, "dull"],
        ["s7", 0.3333, "film"],
        ["s5", 0.25, "<b>"],
        ["s15", 0.75, "&amp;"],
    ]
    assert page.headings == ["negative"]
    assert "b" not in page.tags
    assert "script" not in page.tags


def test_any_page_can_be_written():
    page = build_words_page([(TOKENS, [0.5] * len(TOKENS), "\ud800</title><script>")])
    assert page.encode("utf-8")
    assert "<script" not in page


@pytest.mark.parametrize("ramp", [RAMP, DARK_RAMP])
def test_words_can_be_read_on_every_shade(ramp):
    def luminance(color):
        parts = np.array(color) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for color in ramp:
        light, dark = sorted((luminance(color), luminance(choose_text_color(color))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2, 1.4.3
