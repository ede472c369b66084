import numpy as np
import pytest

from tests.views.static.conftest import shade_color
from tests.views.static.maps import WEIGHTS, small

BEAM = (
    (("katzen", 0.75), ("hunde", 0.125)),
    (("katzen mögen", 0.5), ("katzen <b>", 0.0004)),
    (("katzen mögen hunde", 0.5),),
    (),
)
HERE = "#view=time&layer=0&head=0"


def shown(watched):
    watched.drawn()
    written = watched.page.locator(".written .token").all_text_contents()
    table = watched.page.locator(".time tr").all()
    considered = [(row.locator("th").text_content(), row.locator("td").first.text_content()) for row in table]
    return written, considered


def test_the_target_is_written_step_by_step(opened):
    watched = opened(small(alternatives=BEAM), HERE)
    assert shown(watched) == (["katzen"], [("katzen", "0.75"), ("hunde", "0.125")])
    watched.page.get_by_role("slider", name="Step").focus()
    watched.page.keyboard.press("ArrowRight")
    assert shown(watched) == (["katzen", "mögen"], [("katzen mögen", "0.5"), ("katzen <b>", "4.0e-4")])
    watched.page.keyboard.press("End")
    assert shown(watched) == (["katzen", "mögen", "hunde", "nicht"], [])
    assert watched.status().startswith("nicht → ")


def test_a_text_is_read_and_its_next_token_written(opened):
    watched = opened(small(alternatives=BEAM, alternatives_for="next"), HERE)
    assert shown(watched) == (["katzen", "mögen"], [("katzen", "0.75"), ("hunde", "0.125")])
    assert watched.page.locator(".written .alone").text_content() == "mögen"
    watched.page.get_by_role("slider", name="Step").focus()
    watched.page.keyboard.press("End")
    assert shown(watched) == (["katzen", "mögen", "hunde", "nicht", "?"], [])
    assert watched.page.locator(".written .alone").text_content() == "?"
    assert watched.status().startswith("nicht → ")  # the row whose attention is shown


def test_the_source_is_shaded_by_where_the_step_looks(opened):
    watched = opened(small(alternatives=BEAM), HERE)
    watched.page.get_by_role("slider", name="Step").fill("2")
    watched.drawn()
    program = "all => all.map((element) => getComputedStyle(element).backgroundColor)"
    colors = watched.page.locator(".source .token").evaluate_all(program)
    for text, weight in zip(colors, WEIGHTS[0, 0, 2], strict=True):
        channels = [int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(", ")]
        np.testing.assert_allclose(channels, shade_color(weight), atol=0.51)


def test_a_bar_is_as_long_as_its_probability(opened):
    watched = opened(small(alternatives=BEAM), HERE)
    widths = [bar.bounding_box()["width"] for bar in watched.page.locator(".probability").all()]
    assert widths[0] / widths[1] == pytest.approx(6, rel=0.02)


def test_it_plays_to_the_end_and_then_from_the_start(opened):
    watched = opened(small(alternatives=BEAM), HERE)
    watched.page.clock.install()
    play = watched.page.get_by_role("button", name="Play")
    play.click()
    pause = watched.page.get_by_role("button", name="Pause")
    assert pause.is_visible()
    watched.page.clock.run_for(1500)
    assert watched.page.locator(".written .token").count() == 3
    watched.page.clock.run_for(5000)
    assert watched.page.locator(".written .token").count() == 4
    assert play.is_visible()
    play.click()
    watched.page.clock.run_for(100)
    assert watched.page.locator(".written .token").count() == 1
    pause.click()
    watched.page.clock.run_for(5000)
    assert watched.page.locator(".written .token").count() == 1


def test_it_stops_when_another_view_is_shown(opened):
    watched = opened(small(alternatives=BEAM), HERE)
    watched.page.clock.install()
    watched.page.get_by_role("button", name="Play").click()
    watched.page.get_by_role("tab", name="Lines").click()
    watched.page.clock.run_for(5000)
    watched.page.get_by_role("tab", name="Time").click()
    assert watched.page.get_by_role("button", name="Play").is_visible()


def test_without_alternatives_there_is_no_time(opened):
    watched = opened(small(), HERE)
    assert watched.page.get_by_role("tab").all_text_contents() == ["Matrix", "Lines", "Heads", "Words"]
    assert watched.page.get_by_role("tab", selected=True).text_content() == "Matrix"
