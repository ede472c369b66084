import numpy as np
import pytest

from regard.views.attention_map import AttentionMap
from tests.views.static.conftest import shade_color

BOARD = """async ([record, part, most, dark]) => {
    const { shadeBoard } = await import('/board.js');
    const { Attention } = await import('/record.js');
    return [...shadeBoard(new Attention(record).sheet(0, 0), part, most, dark).data];
}"""


def pixel_range(place, size, limit):
    """The pixels of a cell, at least one of them."""
    begin = int(np.floor(place * size))
    return range(max(0, begin), min(limit, max(begin + 1, int(np.floor((place + 1) * size)))))


@pytest.mark.parametrize(
    ("left", "top", "across", "down"),
    [(0, 0, 4, 3), (2.5, 1.25, 7, 5), (0, 0, 0.6, 0.3), (3, 0, 0.25, 6), (-1, -2, 2, 2)],
)
def test_a_pixel_shows_the_strongest_cell_upon_it(modules, left, top, across, down):
    weights = np.random.default_rng(5).random((1, 1, 20, 30)).astype(np.float32)
    weights *= np.random.default_rng(6).random(weights.shape) < 0.5
    record = AttentionMap(("r",) * 20, ("c",) * 30, weights).record()
    part = {"left": left, "top": top, "across": across, "down": down, "width": 18, "height": 12}
    expected = np.zeros((12, 18))
    for row, column in np.ndindex(20, 30):
        for y in pixel_range(row - top, down, 12):
            for x in pixel_range(column - left, across, 18):
                expected[y, x] = max(expected[y, x], weights[0, 0, row, column] / 0.9)
    for dark in (False, True):
        pixels = np.reshape(modules.evaluate(BOARD, [record, part, 0.9, dark]), (12, 18, 4))
        colors = np.stack(shade_color(np.minimum(1, expected), dark=dark), 2)
        np.testing.assert_allclose(pixels[..., :3], colors, atol=1)
        assert (pixels[..., 3] == 255).all()
