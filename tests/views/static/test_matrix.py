import numpy as np
import pytest

from regard.views.shades import RAMP, ceiling
from tests.views.static.conftest import shade_color
from tests.views.static.maps import COLUMNS, ROWS, WEIGHTS, long, small

CELL = 28  # pixels, while there is room


def corner(watched, rows, columns):
    """The position of the first cell; all are in the lower right of the canvas."""
    box = watched.page.locator(".panel canvas").bounding_box()
    return box["width"] - 1 - CELL * columns, box["height"] - 1 - CELL * rows


def middle(watched, row, column, *, shape=(4, 5)):
    left, top = corner(watched, *shape)
    return left + CELL * (column + 0.5), top + CELL * (row + 0.5)


def board(watched, *, dark, weights):
    left, top = corner(watched, *weights.shape)
    points = [(left + CELL * (column + 0.5), top + CELL * (row + 0.5)) for row, column in np.ndindex(weights.shape)]
    expected = np.stack(shade_color(weights.ravel() / ceiling(weights), dark=dark), 1)
    np.testing.assert_allclose(np.array(watched.pixels(points))[:, :3], expected, atol=1)


@pytest.mark.parametrize(("scheme", "ratio"), [("light", 1), ("dark", 2)])
def test_every_cell_has_the_color_of_its_weight(opened, scheme, ratio):
    watched = opened(small(), "#layer=1&head=2", color_scheme=scheme, device_scale_factor=ratio)
    board(watched, dark=scheme == "dark", weights=WEIGHTS[1, 2])


def test_another_head_is_drawn_when_it_is_chosen(opened):
    watched = opened(small())
    board(watched, dark=False, weights=WEIGHTS.astype(np.float64).mean((0, 1)))
    watched.page.get_by_label("Layer").select_option("0")
    watched.page.get_by_label("Head").select_option("1")
    board(watched, dark=False, weights=WEIGHTS[0, 1])


def test_pointing_at_a_cell_tells_its_weight(opened):
    watched = opened(small(), "#layer=0&head=0")
    x, y = middle(watched, 3, 2)
    watched.page.locator(".panel canvas").hover(position={"x": x, "y": y})
    assert watched.status() == f"nicht → not: {round(float(WEIGHTS[0, 0, 3, 2]), 3):g}"


def test_the_keys_go_from_cell_to_cell(opened):
    watched = opened(small(), "#layer=0&head=0")
    watched.page.locator(".panel canvas").focus()
    for key, row, column in (
        ("ArrowDown", 0, 0),
        ("ArrowDown", 1, 0),
        ("ArrowRight", 1, 1),
        ("ArrowUp", 0, 1),
        ("ArrowUp", 0, 1),
        ("ArrowLeft", 0, 0),
    ):
        watched.page.keyboard.press(key)
        assert watched.status() == f"{ROWS[row]} → {COLUMNS[column]}: {round(float(WEIGHTS[0, 0, row, column]), 3):g}"


def test_true_links_are_framed(opened):
    watched = opened(small(links=frozenset({(2, 3)})), "#layer=0&head=0")
    x, y = middle(watched, 3, 2)
    assert watched.pixel(x - CELL / 2 + 1.5, y)[:3] == (213, 94, 0)
    assert watched.pixel(x, y)[:3] != (213, 94, 0)
    x, y = middle(watched, 0, 0)
    assert watched.pixel(x - CELL / 2 + 1.5, y)[:3] != (213, 94, 0)


LIKE = """(color) => {
    const canvas = document.querySelector(".panel canvas");
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const points = [];
    for (let at = 0; at < data.length; at += 4) {
        if (color.every((part, place) => Math.abs(data[at + place] - part) <= 1)) {
            points.push([(at / 4) % canvas.width, Math.floor(at / 4 / canvas.width)]);
        }
    }
    return points;
}"""  # the points that have a color


def test_one_weight_in_four_million_is_seen(opened):
    watched = opened(long(2000))
    diagonal = np.array(watched.page.evaluate(LIKE, RAMP[10]))
    first, last = diagonal.min(0), diagonal.max(0) + 1
    side = last - first
    assert side[0] == side[1] >= 400  # all 2000 tokens, each looking at itself
    far = np.array(watched.page.evaluate(LIKE, [round(part) for part in shade_color(0.5)])) - first
    (place,) = far[(far[:, 0] < 3) & (far[:, 1] > 10)]  # row 1500 looks at column 0
    assert place.tolist() == [0, 1500 * side[1] // 2000]


def test_a_part_can_be_enlarged_and_moved(opened):
    watched = opened(long(2000))
    canvas = watched.page.locator(".panel canvas")
    canvas.focus()
    for _ in range(12):
        watched.page.keyboard.press("+")
    watched.page.keyboard.press("ArrowDown")  # the first cell: it is brought into sight
    assert watched.status() == "w0 → w0: 1"
    box = canvas.bounding_box()
    near = {tuple(place) for place in watched.page.evaluate(LIKE, RAMP[10])}
    assert len(near) > 30 * 30 * 5  # cells of 40 pixels a side
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    watched.page.mouse.move(x, y)
    watched.page.mouse.down()
    watched.page.mouse.move(x - 40, y - 40)
    watched.page.mouse.up()
    watched.page.mouse.move(x, y)
    moved = watched.status()
    watched.page.mouse.move(x - 40, y - 40)
    row = int(moved.split(" ")[0][1:])
    assert watched.status().split(" ")[0] == f"w{row - 1}"  # what was dragged by a cell lies a cell further up
    watched.page.get_by_role("button", name="Show all cells").click()
    watched.drawn()
    assert len(watched.page.evaluate(LIKE, RAMP[10])) < 2000


def test_the_wheel_enlarges_only_with_control(opened):
    watched = opened(long(2000))
    watched.page.locator(".panel canvas").hover(position={"x": 200, "y": 200})
    before = len(watched.page.evaluate(LIKE, RAMP[10]))
    watched.page.mouse.wheel(0, -400)
    watched.drawn()
    assert len(watched.page.evaluate(LIKE, RAMP[10])) == before
    watched.page.keyboard.down("Control")
    watched.page.mouse.wheel(0, -800)
    watched.page.keyboard.up("Control")
    watched.drawn()
    assert len(watched.page.evaluate(LIKE, RAMP[10])) > 4 * before


def test_the_theme_can_be_turned(opened):
    watched = opened(small(), "#layer=0&head=0", color_scheme="light")
    button = watched.page.get_by_role("button", name="Theme")
    button.click()
    board(watched, dark=False, weights=WEIGHTS[0, 0])
    button.click()
    board(watched, dark=True, weights=WEIGHTS[0, 0])
    assert button.get_attribute("aria-label") == "Theme: dark"
    assert (
        watched.page.evaluate("getComputedStyle(document.querySelector('.regard')).backgroundColor")
        == "rgb(18, 21, 27)"
    )
