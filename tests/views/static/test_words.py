import numpy as np

from regard.views.shades import ceiling
from tests.views.static.conftest import shade_color
from tests.views.static.maps import COLUMNS, ROWS, WEIGHTS, long, small

HERE = "#view=words&layer=0&head=1"
BACKGROUNDS = "all => all.map((element) => getComputedStyle(element).backgroundColor)"


def shades(watched, side, weights):
    """Compare the shades of a side with weights that may be its."""
    watched.drawn()
    colors = watched.page.locator(".words .text").nth(side).locator(".token").evaluate_all(BACKGROUNDS)
    for text, weight in zip(colors, weights, strict=True):
        channels = [int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(", ")]
        np.testing.assert_allclose(channels, shade_color(weight), atol=0.51)


def test_a_chosen_row_shades_the_columns(opened):
    watched = opened(small(), HERE)
    watched.page.get_by_role("option", name=ROWS[1]).click()
    shades(watched, 1, WEIGHTS[0, 1, 1] / ceiling(WEIGHTS[0, 1]))
    place = int(np.argmax(WEIGHTS[0, 1, 1]))
    assert watched.status().startswith(f"mögen → {COLUMNS[place]} {round(float(WEIGHTS[0, 1, 1, place]), 3):g}")


def test_a_chosen_column_shades_the_rows(opened):
    watched = opened(small(), HERE)
    watched.page.get_by_role("option", name=COLUMNS[3]).click()
    shades(watched, 0, WEIGHTS[0, 1, :, 3] / ceiling(WEIGHTS[0, 1]))


def test_without_a_choice_columns_are_shaded_by_what_they_receive(opened):
    watched = opened(small(), HERE)
    received = WEIGHTS[0, 1].mean(0)
    shades(watched, 1, received / ceiling(received))
    assert watched.page.locator(".scale").text_content() == f"0 to {ceiling(received):g}"


def test_the_keys_choose(opened):
    watched = opened(small(), HERE)
    watched.page.get_by_role("listbox", name="Keys").focus()
    watched.page.keyboard.press("ArrowRight")
    watched.page.keyboard.press("ArrowRight")
    shades(watched, 0, WEIGHTS[0, 1, :, 1] / ceiling(WEIGHTS[0, 1]))
    assert watched.status().startswith("do ← ")
    watched.page.keyboard.press("Escape")
    received = WEIGHTS[0, 1].mean(0)
    shades(watched, 1, received / ceiling(received))


def test_a_choice_is_kept_from_view_to_view(opened):
    watched = opened(small(), HERE)
    watched.page.get_by_role("option", name=ROWS[1]).click()
    watched.page.get_by_role("tab", name="Lines").click()
    watched.drawn()
    assert watched.page.locator(".side.row .token[aria-selected='true']").all_text_contents() == ["mögen"]


def test_twenty_thousand_tokens_can_be_read(opened):
    watched = opened(long(20_000), "#view=words")
    tokens = watched.page.locator(".words .text").first.locator(".token")
    assert tokens.count() == 20_000
    watched.page.get_by_role("listbox", name="Queries").focus()
    watched.page.keyboard.press("End")
    assert watched.status() == "w19999 → w19999 1"
    watched.page.get_by_role("tab", name="Matrix").click()
    watched.page.locator(".panel canvas").focus()
    watched.page.keyboard.press("ArrowDown")
    assert watched.status() == "w0 → w0: 1"
