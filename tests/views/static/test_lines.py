import numpy as np
import pytest

from regard.views.attention_map import AttentionMap
from regard.views.shades import ceiling
from tests.views.static.conftest import shade_color
from tests.views.static.maps import COLUMNS, ROWS, WEIGHTS, long, small

PITCH = 24  # pixels from one token to the next
HERE = "#view=lines&layer=1&head=0"
BACKGROUND = "element => getComputedStyle(element).backgroundColor"


def crossing(watched, row, column, part=0.05):
    """How strongly the canvas is covered on the way from a row to a column, near the row (where lines are apart)."""
    width = watched.page.evaluate("document.querySelector('.lines canvas').clientWidth")
    y = PITCH * (row + 0.5 + part * (column - row))
    return max(color[3] for color in watched.pixels([(part * width, y + shift) for shift in (-1, 0, 1)]))


def token(watched, side, place):
    return watched.page.locator(f".side.{side} .token[data-index='{place}']")


def channels(text):
    return [int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(", ")]


def shades(watched, side, weights):
    for place, weight in enumerate(weights):
        color = channels(token(watched, side, place).evaluate(BACKGROUND))
        np.testing.assert_allclose(color, shade_color(weight / ceiling(WEIGHTS[1, 0])), atol=0.51)


def test_both_sides_stand_there_in_order(opened):
    watched = opened(small(), HERE)
    for side, words in (("row", ROWS), ("column", COLUMNS)):
        assert tuple(watched.page.locator(f".side.{side} .token").all_text_contents()) == words


def test_a_line_is_as_strong_as_its_weight(opened):
    weights = np.zeros((1, 1, 2, 3), np.float32)
    weights[0, 0, 0] = [1, 0.5, 0]
    weights[0, 0, 1] = [0, 0, 0.25]
    watched = opened(AttentionMap(("a", "b"), ("x", "y", "z"), weights), "#view=lines")
    strengths = {(row, column): crossing(watched, row, column, 0.5) / 255 for row, column in np.ndindex(2, 3)}
    assert strengths[0, 0] == 1
    assert strengths[0, 1] == pytest.approx(0.5, abs=0.08)
    assert strengths[1, 2] == pytest.approx(0.25, abs=0.08)
    assert strengths[0, 2] == strengths[1, 1] == 0


def test_pointing_at_a_token_isolates_it(opened):
    weights = np.zeros((1, 1, 2, 2), np.float32)
    weights[0, 0] = [[1, 0], [0, 1]]
    watched = opened(AttentionMap(("a", "b"), ("x", "y"), weights), "#view=lines")
    assert crossing(watched, 0, 0) == crossing(watched, 1, 1) == 255
    token(watched, "row", 1).hover()
    assert watched.status() == "b → y 1"
    assert (crossing(watched, 0, 0), crossing(watched, 1, 1)) == (0, 255)
    token(watched, "column", 0).hover()
    assert watched.status() == "x ← a 1"
    assert (crossing(watched, 0, 0), crossing(watched, 1, 1)) == (255, 0)
    watched.page.get_by_role("heading").hover()
    assert crossing(watched, 0, 0) == crossing(watched, 1, 1) == 255


def test_only_the_lines_of_its_own_side_stay(opened):
    weights = np.ones((1, 1, 2, 2), np.float32) / 2
    watched = opened(AttentionMap(("a", "b"), ("x", "y"), weights), "#view=lines")
    token(watched, "row", 1).hover()
    assert [crossing(watched, row, column, 0.1) for row, column in np.ndindex(2, 2)] == [0, 0, 255, 255]
    token(watched, "column", 0).hover()
    assert [crossing(watched, row, column, 0.9) for row, column in np.ndindex(2, 2)] == [255, 0, 255, 0]


def test_the_other_side_is_shaded_by_the_weights(opened):
    watched = opened(small(), HERE)
    token(watched, "row", 2).hover()
    watched.drawn()
    shades(watched, "column", WEIGHTS[1, 0, 2])
    token(watched, "column", 4).hover()
    watched.drawn()
    shades(watched, "row", WEIGHTS[1, 0, :, 4])


def test_a_click_keeps_the_token_and_another_lets_it_go(opened):
    watched = opened(small(), HERE)
    token(watched, "row", 2).click()
    watched.page.get_by_role("heading").hover()
    watched.drawn()
    shades(watched, "column", WEIGHTS[1, 0, 2])
    assert token(watched, "row", 2).get_attribute("aria-selected") == "true"
    token(watched, "row", 2).click()
    watched.drawn()
    assert token(watched, "row", 2).get_attribute("aria-selected") == "false"


def test_the_keys_go_through_the_tokens(opened):
    watched = opened(small(), HERE)
    rows = watched.page.get_by_role("listbox", name="Queries")
    rows.focus()
    watched.page.keyboard.press("End")
    strongest = np.argsort(-WEIGHTS[1, 0, 3])
    weights = ", ".join(f"{COLUMNS[place]} {round(float(WEIGHTS[1, 0, 3, place]), 3):g}" for place in strongest)
    assert watched.status() == f"nicht → {weights}"
    active = rows.get_attribute("aria-activedescendant")
    assert watched.page.locator(f"#{active}").text_content() == "nicht"
    watched.page.keyboard.press("ArrowUp")
    assert watched.status().startswith("hunde → ")
    watched.page.keyboard.press("Enter")
    watched.page.keyboard.press("Home")
    assert watched.status().startswith("cats ← ")
    watched.page.keyboard.press("Escape")
    assert watched.status() == "Hover over a token to show only its lines; click to pin it."


def test_another_head_has_other_lines(opened):
    watched = opened(small(), HERE)
    token(watched, "row", 0).click()
    first = watched.status()
    watched.page.get_by_label("Head").select_option("2")
    token(watched, "row", 1).click()
    token(watched, "row", 0).click()
    assert watched.status() != first
    place = int(np.argmax(WEIGHTS[1, 2, 0]))
    assert watched.status().startswith(f"katzen → {COLUMNS[place]} {round(float(WEIGHTS[1, 2, 0, place]), 3):g}")


def test_of_two_thousand_tokens_only_those_in_sight_are_set(opened):
    watched = opened(long(2000), "#view=lines")
    assert 20 < watched.page.locator(".side.row .token").count() < 60
    watched.page.get_by_role("listbox", name="Queries").focus()
    watched.page.keyboard.press("End")
    assert watched.status() == "w1999 → w1999 1"
    assert token(watched, "row", 1999).is_visible()
    assert 10 < watched.page.locator(".side.row .token").count() < 60
    watched.page.locator(".lines").evaluate("element => { element.scrollTop = 1500 * 24; }")
    watched.drawn()
    token(watched, "row", 1501).hover()
    assert watched.status() == "w1501 → w1501 1"
    token(watched, "row", 1500).hover()
    assert sorted(watched.status().removeprefix("w1500 → ").split(", ")) == ["w0 0.5", "w1500 0.5"]
