import numpy as np
import pytest

from regard.views.page import MODULES
from tests.views.static.conftest import STATIC
from tests.views.static.maps import COLUMNS, WEIGHTS, small

NAMES = ["Matrix", "Lines", "Heads", "Words"]


def test_the_arrow_keys_go_through_the_tabs(opened):
    watched = opened(small())
    tabs = watched.page.get_by_role("tab")
    assert tabs.all_text_contents() == NAMES
    tabs.first.focus()
    for key, name in (
        ("ArrowRight", "Lines"),
        ("ArrowLeft", "Matrix"),
        ("ArrowLeft", "Words"),
        ("ArrowRight", "Matrix"),
    ):
        watched.page.keyboard.press(key)
        watched.drawn()
        chosen = watched.page.get_by_role("tab", selected=True)
        assert chosen.all_text_contents() == [name]
        assert chosen.evaluate("element => element === document.activeElement")
        assert watched.page.get_by_role("tabpanel", name=name).is_visible()


def test_everything_is_reached_with_the_tab_key(opened):
    watched = opened(small())
    program = """() => {
        const {ariaLabel, labels, textContent} = document.activeElement;
        return ariaLabel || labels?.[0]?.firstChild.data || textContent;
    }"""
    reached = []
    for _ in range(8):
        watched.page.keyboard.press("Tab")
        reached.append(watched.page.evaluate(program))
    assert [name.split(".")[0].strip() for name in reached] == [
        "Matrix",
        "Layer",
        "Head",
        "Theme: auto",
        "Zoom in",
        "Zoom out",
        "Show all cells",
        "4 rows and 5 columns",
    ]


@pytest.mark.parametrize("view", ["matrix", "lines", "heads", "words"])
def test_nothing_is_cut_off_on_a_telephone(opened, view):
    watched = opened(small(), f"#view={view}", viewport={"width": 380, "height": 700})
    assert watched.page.evaluate("document.documentElement.scrollWidth") == 380


def test_without_a_choice_there_is_no_menu(opened):
    picture = small()
    watched = opened(type(picture)(picture.rows, picture.columns, picture.weights[:1, :1]))
    assert not watched.page.get_by_label("Layer").is_visible()
    assert not watched.page.get_by_label("Head").is_visible()


@pytest.mark.parametrize("view", ["lines", "words"])
def test_of_another_head_the_kept_token_is_told_anew(opened, view):
    watched = opened(small(), f"#view={view}&layer=1&head=0")
    watched.page.locator(".panel .token", has_text="katzen").click()
    watched.page.get_by_label("Head").select_option("2")
    place = int(np.argmax(WEIGHTS[1, 2, 0]))
    assert watched.status().startswith(f"katzen → {COLUMNS[place]} {round(float(WEIGHTS[1, 2, 0, place]), 3):g}")


def test_of_another_layer_nothing_is_told_of_the_one_before(opened):
    watched = opened(small(), "#view=lines&layer=1&head=0")
    watched.page.locator(".panel .token", has_text="katzen").hover()
    assert watched.status().startswith("katzen → ")
    watched.page.get_by_label("Layer").select_option("0")
    assert watched.status() == "Hover over a token to show only its lines; click to pin it."


def test_a_map_of_the_largest_weights_says_so(opened):
    watched = opened(small().keep_top(2), "#layer=0&head=0")
    assert watched.page.locator(".scale").text_content() == "0 to 1; top 2 weights per row"


def test_the_modules_can_be_imported_as_they_are(modules):
    names = sorted(path.name.removesuffix(".js") for path in STATIC.iterdir() if path.name.endswith(".js"))
    assert names == sorted([*MODULES, "page", "widget"])
    program = """async (record) => {
        const { Viewer } = await import('/viewer.js');
        const states = [];
        const viewer = new Viewer(document.body, record, {view: 'words', layer: 1}, (state) => states.push({...state}));
        viewer.choose({view: 'lines', head: 9});  // there is no such head
        viewer.choose({head: 2});
        viewer.destroy();
        return [states, document.body.childElementCount];
    }"""
    states, left = modules.evaluate(program, small().record())
    assert [(state["view"], state["layer"], state["head"]) for state in states] == [
        ("words", 1, "mean"),
        ("lines", 1, "mean"),
        ("lines", 1, 2),
    ]
    assert left == 0
