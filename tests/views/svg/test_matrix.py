import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.views.attention_map import AttentionMap
from regard.views.shades import RAMP, ceiling
from regard.views.svg.matrix import draw_matrix_svg
from tests.views.svg.reading import color, every, parsed, pixels, texts, tooltip

ROWS, COLUMNS = ("katzen", "schlafen", "<nie>"), ("cats", "never", "sleep", "&")
WEIGHTS = np.random.default_rng(1).dirichlet(np.ones(4), (2, 2, 3)).astype(np.float32)


def interpolated(shade):
    place = shade * (len(RAMP) - 1)
    return [np.interp(place, range(len(RAMP)), channel) for channel in zip(*RAMP, strict=True)]


def test_every_cell_holds_its_weight():
    root = parsed(draw_matrix_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS), layer=1, head=0))
    cells = [rect for rect in every(root, "rect") if rect.get("data-weight")]
    assert len(cells) == 12
    most = ceiling(WEIGHTS[1, 0])
    for place, cell in enumerate(cells):
        row, column = divmod(place, 4)
        weight = WEIGHTS[1, 0, row, column]
        assert np.float32(cell.get("data-weight")) == weight  # to the bit
        assert (float(cell.get("x")), float(cell.get("y"))) == (24 * column, 24 * row)
        assert tooltip(cell) == f"{ROWS[row]} → {COLUMNS[column]}: {weight:.4g}"
        np.testing.assert_allclose(color(cell.get("fill")), interpolated(weight / most), atol=0.51)


def test_words_and_title_are_written():
    root = parsed(draw_matrix_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, title="a < b"), layer=1, head=0))
    assert texts(root) == ["a < b · layer 1, head 0", *ROWS, *COLUMNS, "0", "1"]
    assert tooltip(root) == "a < b · layer 1, head 0"


def test_true_links_are_framed():
    picture = AttentionMap(ROWS, COLUMNS, WEIGHTS, links=frozenset({(3, 1), (0, 2)}))
    frames = [rect for rect in every(parsed(draw_matrix_svg(picture)), "rect") if rect.get("class") == "link"]
    assert [(float(frame.get("x")) // 24, float(frame.get("y")) // 24) for frame in frames] == [(0, 2), (3, 1)]


def test_many_cells_are_one_picture():
    weights = np.random.default_rng(2).random((1, 1, 150, 200)).astype(np.float32)
    picture = AttentionMap(("r",) * 150, ("c",) * 200, weights)
    root = parsed(draw_matrix_svg(picture))
    (image,) = every(root, "image")
    image_pixels = pixels(image)
    assert image_pixels.shape == (150, 200, 3)
    for row, column in ((0, 0), (149, 199), (70, 3)):
        np.testing.assert_allclose(image_pixels[row, column], interpolated(weights[0, 0, row, column]), atol=0.51)
    assert (float(image.get("width")), float(image.get("height"))) == (1600, 1200)
    assert 20 < len(texts(root)) < 350  # words that would overlap are left out


def test_the_strongest_weight_is_seen_among_very_many():
    weights = np.zeros((1, 1, 3000, 10), np.float32)
    weights[0, 0, 1234, 7] = 1
    (image,) = every(parsed(draw_matrix_svg(AttentionMap(("r",) * 3000, ("c",) * 10, weights))), "image")
    image_pixels = pixels(image)
    assert image_pixels.shape == (1600, 10, 3)
    assert np.argwhere((image_pixels == RAMP[-1]).all(2)).tolist() == [[1234 * 1600 // 3000, 7]]


@given(st.lists(st.text(st.characters(), max_size=4), min_size=1, max_size=3), st.text(st.characters(), max_size=5))
def test_any_token_can_be_written(words, title):
    picture = AttentionMap(tuple(words), tuple(words), np.zeros((1, 1, len(words), len(words))), title=title)
    text = draw_matrix_svg(picture)
    assert text.encode("utf-8")
    assert len(texts(parsed(text))) == 1 + 2 * len(words) + 2


def test_noncharacters_are_replaced():
    root = parsed(draw_matrix_svg(AttentionMap(("\uffff",), ("\ufffe", "\ud800"), np.zeros((1, 1, 1, 2)))))
    assert texts(root)[1:4] == ["\ufffd"] * 3
