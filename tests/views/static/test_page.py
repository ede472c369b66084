import numpy as np
import pytest

from regard.views.attention_map import AttentionMap
from tests.views.static.maps import small

HOSTILE = (
    "<script>alert(1)</script>",
    "</script>",
    "<!--",
    "]]>",
    "<img src=x onerror=alert(1)>",
    "\"'`",
    "&lt;",
    "${alert(1)}",
    "\x00\x1b",
    "\u2028",
    "\\u003c",
)


def hostile(words):
    count = len(words)
    return AttentionMap(
        words, words, np.full((1, 1, count, count), 1 / count), title="</title></script><script>alert(2)"
    )


@pytest.mark.parametrize("view", ["matrix", "lines", "heads", "words"])
def test_tokens_are_text_and_never_markup(opened, view):
    watched = opened(hostile((*HOSTILE, "\ud800")), f"#view={view}")
    assert watched.page.locator("script").count() == 2  # the record, and ours
    assert watched.page.locator("img").count() == 0
    assert watched.page.get_by_role("heading").first.text_content() == "</title></script><script>alert(2)"
    if view in ("lines", "words"):
        shown = watched.page.get_by_role("option").all_text_contents()[: len(HOSTILE) + 1]
        assert shown == [*HOSTILE[:8], "␀␛", "\ufffd", "\\u003c", "\ufffd"]


def test_the_record_comes_through_as_it_was(opened):
    picture = hostile(HOSTILE)
    watched = opened(picture)
    record = watched.page.evaluate("JSON.parse(document.getElementById('record').textContent)")
    assert AttentionMap.from_record(record) == picture


def test_the_page_asks_for_nothing(opened):
    watched = opened(small())
    for name in ("Lines", "Heads", "Words"):
        watched.page.get_by_role("tab", name=name).click()
        watched.drawn()
    assert [address.split(":")[0] for address in watched.requested] == ["file"]


def test_the_policy_lets_nothing_else_run(opened):
    watched = opened(small())
    program = """() => {
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<p id='p' style='color: red' onclick='window.ran = true'>a</p>");
        document.getElementById("p").click();
        return [window.ran ?? false, getComputedStyle(document.getElementById("p")).color];
    }"""
    ran, color = watched.page.evaluate(program)
    assert ran is False
    assert color != "rgb(255, 0, 0)"
    assert watched.wrong  # the browser says what it refused
    assert all("Content Security Policy" in text for text in watched.wrong)
    watched.wrong.clear()


def test_the_address_restores_what_was_shown(opened):
    watched = opened(small())
    watched.page.get_by_role("tab", name="Lines").click()
    watched.page.get_by_label("Layer").select_option("1")
    assert watched.page.url.endswith("#view=lines&layer=1&head=mean")
    watched.page.reload()
    assert watched.page.get_by_role("tab", selected=True).text_content() == "Lines"
    assert watched.page.get_by_label("Layer").input_value() == "1"


def test_the_page_opens_where_it_is_told_to(opened):
    watched = opened(small(), first={"view": "lines", "layer": -1, "head": 2})
    assert watched.page.get_by_role("tab", selected=True).text_content() == "Lines"
    assert watched.page.get_by_label("Layer").input_value() == "1"
    assert watched.page.get_by_label("Head").input_value() == "2"
    watched = opened(small(), "#view=words&head=mean", first={"view": "lines", "layer": 1, "head": 2})
    assert watched.page.get_by_role("tab", selected=True).text_content() == "Words"  # the address is later
    assert watched.page.get_by_label("Layer").input_value() == "1"
    assert watched.page.get_by_label("Head").input_value() == "mean"


@pytest.mark.parametrize("shown", ["#view=nothing", "#layer=99&head=-1", "#layer=x", "#%"])
def test_an_address_that_means_nothing_shows_the_matrix_of_the_mean(opened, shown):
    watched = opened(small(), shown)
    assert watched.page.get_by_role("tab", selected=True).text_content() == "Matrix"
    assert (watched.page.get_by_label("Layer").input_value(), watched.page.get_by_label("Head").input_value()) == (
        "mean",
        "mean",
    )


def test_a_notebook_shows_the_page_in_a_frame(browser):
    page = browser.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.set_content(f"<!doctype html>{hostile(HOSTILE)._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.get_by_role("tab", name="Words").click()
    assert frame.get_by_role("option").first.text_content() == HOSTILE[0]
    assert wrong == []
    page.close()
