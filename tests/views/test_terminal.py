import inspect
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from regard import RegardError
from regard.views.attention_map import AttentionMap
from regard.views.terminal import COLOR_CODES, detect_color, draw
from tests.views.test_shades import lightness

ENGLISH, GERMAN = ("cats", "do", "not", "like", "dogs"), ("katzen", "mögen", "hunde", "nicht")
CROSSING = frozenset({(0, 0), (3, 1), (4, 2), (2, 3)})
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def crossing(**more):
    weights = np.zeros((1, 1, 4, 5))
    for column, row in CROSSING:
        weights[0, 0, row, column] = 1
    return AttentionMap(GERMAN, ENGLISH, weights, **more)


def spread(rows, columns):
    return AttentionMap(tuple(rows), tuple(columns), np.full((1, 1, len(rows), len(columns)), 1 / len(columns)))


def test_words_cross_as_they_do_in_the_sentence():
    assert draw(crossing(title="cats"), width=60, color="ascii").splitlines() == [
        "cats",
        "         c        l  d",
        "         a     n  i  o",
        "         t  d  o  k  g",
        "         s  o  t  e  s",
        "katzen |@@@            |",
        " mögen |         @@@   |",
        " hunde |            @@@|",
        " nicht |      @@@      |",
        "0  .:-=+*#%@ 1",
    ]


def test_true_links_are_marked():
    lines = draw(crossing(links=frozenset({(0, 0), (1, 3)})), width=60, color="ascii").splitlines()
    assert lines[4] == "katzen |@o@            |"
    assert lines[7] == " nicht |    o @@@      |"
    assert lines[8] == "0  .:-=+*#%@ 1  o gold alignment"


def test_shades_grow_with_the_weight():
    weights = np.linspace(0, 1, 10).reshape(1, 1, 1, 10)
    lines = draw(AttentionMap(("a",), tuple("0123456789"), weights), width=30, color="ascii").splitlines()
    assert lines[1] == "a |  ..::--==++**##%%@@|"


def test_layer_and_head_are_chosen():
    weights = np.zeros((2, 1, 1, 2))
    weights[0, 0, 0, 0] = weights[1, 0, 0, 1] = 1
    picture = AttentionMap(("a",), ("x", "y"), weights)
    assert draw(picture, width=30, color="ascii", layer=1).splitlines() == [
        "layer 1",
        "    x  y",
        "a |   @@@|",
        "0  .:-=+*#%@ 1",
    ]
    assert draw(picture, width=30, color="ascii").splitlines()[2:] == ["a |@@@@@@|", "0  .:-=+*#%@ 0.5"]


def test_true_color_shades_the_background():
    lines = draw(crossing(), width=60, color="truecolor").splitlines()
    paper, ink = "\x1b[38;2;0;0;0;48;2;242;248;252m", "\x1b[38;2;255;255;255;48;2;18;36;81m"
    assert lines[5] == f" mögen {paper}         \x1b[0m{ink}   \x1b[0m{paper}   \x1b[0m"


def test_256_colors_get_evenly_darker():
    levels = (0, 95, 135, 175, 215, 255)  # of xterm's color cube
    cube = [[levels[(number - 16) // power % 6] for power in (36, 6, 1)] for number in COLOR_CODES]
    np.testing.assert_allclose(np.diff([lightness(color) for color in cube]), -14.3, atol=2.2)
    lines = draw(crossing(), width=60, color="256").splitlines()
    assert lines[5] == (
        " mögen \x1b[38;5;16;48;5;231m         \x1b[0m\x1b[38;5;231;48;5;18m   \x1b[0m\x1b[38;5;16;48;5;231m   \x1b[0m"
    )


TOKENS = ["日本語", "x\u0301", "\x1b[2J", "שלום", "مرحبا", "", " ", "👩‍👩‍👧", "wort", "\u0301", "\n", "ẞ", "한국"]


@given(
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=6),
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=90),
    st.integers(30, 120),
    st.sampled_from(["truecolor", "256", "ascii"]),
)
def test_columns_stay_straight_whatever_the_tokens(rows, columns, width, color):
    drawn = COLOUR.sub("", draw(spread(rows, columns), width=width, color=color))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", drawn)
    grid, _, legend = drawn.rpartition("\n")
    assert cell_len(legend) <= width
    for panel in grid.split("\n\n"):
        lines = panel.split("\n")
        ends = {cell_len(line) for line in lines[-len(rows) :]}
        assert len(ends) == 1
        assert max(map(cell_len, lines)) <= max(ends) <= width


def test_each_label_stands_over_its_cell():
    columns = ("a", "日", "שב", "x\u0301")
    weights = np.eye(4)[None, None]
    lines = draw(AttentionMap(tuple("abcd"), columns, weights), width=40, color="ascii").splitlines()
    assert lines[0] == "          \u2068ש\u2069"
    assert lines[1] == "    a 日  \u2068ב\u2069  x\u0301"
    starts = [cell_len(line[: line.index("@")]) for line in lines[2:6]]
    assert starts == [3, 6, 9, 12]
    assert [cell_len(lines[1][: lines[1].index(sign)]) for sign in "a日בx"] == [4, 6, 10, 13]


def test_cells_become_narrower_before_the_map_is_split():
    def shape(count):
        lines = draw(spread(["a"], ["x"] * count), width=40, color="ascii").splitlines()
        return [len(line) for line in lines if line.startswith("a |")]

    assert shape(12) == [3 + 36 + 1]
    assert shape(13) == [3 + 26 + 1]
    assert shape(18) == [3 + 36 + 1]
    assert shape(19) == [3 + 19 + 1]
    assert shape(36) == [3 + 36 + 1]
    assert shape(37) == [3 + 26 + 1, 3 + 26 + 1, 3 + 22 + 1]  # 13, 13 and 11 cells of two


def test_panels_hold_every_column_once():
    columns = [chr(ord("a") + place % 26) for place in range(100)]
    lines = draw(spread(["-"], columns), width=40, color="ascii").splitlines()
    heads = [lines[place - 1] for place, line in enumerate(lines) if line.startswith("- |")]
    assert len(heads) > 2
    assert "".join(heads).replace(" ", "") == "".join(columns)


def test_long_labels_are_cut():
    lines = draw(spread(["a" * 99], ["b" * 99]), width=60, color="ascii").splitlines()
    assert [line.strip() for line in lines[:-2]] == ["b"] * 11 + ["…"]
    assert lines[-2].startswith("a" * 19 + "… |")


def test_a_long_title_goes_on_in_the_next_line():
    lines = draw(crossing(title="look " * 9 + "here"), width=30, color="ascii").splitlines()
    assert lines[:2] == ["look look look look look look", "look look look here"]
    assert lines[2:] == draw(crossing(), width=30, color="ascii").splitlines()


def test_a_width_or_color_that_cannot_be():
    with pytest.raises(RegardError) as caught:
        draw(crossing(), width=29)
    assert str(caught.value) == "width must be at least 30, got 29"
    with pytest.raises(RegardError) as caught:
        draw(crossing(), color="true")
    assert str(caught.value) == 'unknown color "true"; did you mean "truecolor"?'


def test_without_a_terminal_it_is_ascii_of_the_given_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "33")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    lines = draw(spread(["a"], ["x"] * 20)).splitlines()
    assert lines[1] == "a |" + "@" * 20 + "|"


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environ", "on_screen", "in_pipe"),
    [
        ({}, "ascii", "ascii"),
        ({"TERM": "xterm"}, "ascii", "ascii"),
        ({"TERM": "xterm-256color"}, "256", "ascii"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "truecolor", "ascii"),
        ({"TERM": "screen-256color", "COLORTERM": "24bit"}, "truecolor", "ascii"),
        ({"TERM": "xterm-direct"}, "truecolor", "ascii"),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, "ascii", "ascii"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1", "FORCE_COLOR": "3"}, "ascii", "ascii"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256", "ascii"),  # as if it were not set
        ({"FORCE_COLOR": "1"}, "256", "256"),
        ({"FORCE_COLOR": "3"}, "truecolor", "truecolor"),
        ({"FORCE_COLOR": "true", "COLORTERM": "truecolor", "TERM": "dumb"}, "truecolor", "truecolor"),
        ({"FORCE_COLOR": "0", "TERM": "xterm-256color"}, "ascii", "ascii"),
    ],
)
def test_colors_are_those_the_stream_can_show(environ, on_screen, in_pipe):
    assert detect_color(Screen(), environ) == on_screen
    assert detect_color(io.StringIO(), environ) == in_pipe


def test_what_is_no_map_is_named():
    with pytest.raises(RegardError) as caught:
        inspect.unwrap(draw)("a b")
    assert str(caught.value) == "draw: expected an AttentionMap, got str; call model.attention_map(...)"
