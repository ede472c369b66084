import numpy as np

from regard.views.attention_map import AttentionMap
from regard.views.shades import RAMP, ceiling
from tests.views.static.conftest import shade_color
from tests.views.static.maps import WEIGHTS, small


def test_every_head_is_drawn_on_one_scale(opened):
    watched = opened(small(), "#view=heads")
    boxes = [canvas.bounding_box() for canvas in watched.page.locator(".panel canvas").all()]
    assert len(boxes) == 6
    for place, box in enumerate(boxes):
        layer, head = divmod(place, 3)
        for row, column in ((0, 0), (3, 4), (1, 3)):
            x, y = box["width"] * (column + 0.5) / 5, box["height"] * (row + 0.5) / 4
            expected = shade_color(WEIGHTS[layer, head, row, column] / ceiling(WEIGHTS))
            np.testing.assert_allclose(watched.pixel(x, y, place=place)[:3], expected, atol=1)


def test_faint_heads_are_seen(opened):
    weights = np.zeros((1, 2, 1, 2), np.float32)
    weights[0, :, 0, 0] = [0.1, 0.05]
    watched = opened(AttentionMap(("a",), ("x", "y"), weights), "#view=heads")
    assert watched.pixel(5, 5, place=0)[:3] == RAMP[10]
    assert watched.pixel(5, 5, place=1)[:3] == RAMP[5]
    assert watched.page.locator(".scale").text_content() == "0 to 0.1"


def test_maps_shrink_to_the_room_there_is_and_scroll_when_they_would_be_too_small(opened):
    def fits(heads, width):
        weights = np.full((1, heads, 2, 2), 0.5, np.float32)
        picture = AttentionMap(("a", "b"), ("x", "y"), weights)
        watched = opened(picture, "#view=heads", viewport={"width": width, "height": 700})
        box = watched.page.locator(".panel canvas").first.bounding_box()
        whole = watched.page.locator(".scroll").evaluate("each => each.scrollWidth <= each.clientWidth")
        return round(box["width"]), whole, watched.page.evaluate("document.documentElement.scrollWidth") == width

    assert fits(4, 1000) == (84, True, True)
    side, whole, inside = fits(4, 380)
    assert 48 < side < 84
    assert whole
    assert inside
    assert fits(12, 380) == (48, False, True)


def test_a_click_enlarges_a_head(opened):
    watched = opened(small(), "#view=heads")
    watched.page.get_by_role("button", name="Enlarge layer 1, head 2").click()
    watched.drawn()
    assert watched.page.get_by_role("tab", name="Matrix").get_attribute("aria-selected") == "true"
    assert (watched.page.get_by_label("Layer").input_value(), watched.page.get_by_label("Head").input_value()) == (
        "1",
        "2",
    )
    assert watched.page.url.endswith("#view=matrix&layer=1&head=2")


def test_layers_and_heads_are_named(opened):
    watched = opened(small(), "#view=heads")
    assert watched.page.get_by_role("columnheader").all_text_contents() == ["head 0", "head 1", "head 2"]
    assert watched.page.get_by_role("rowheader").all_text_contents() == ["layer 0", "layer 1"]
