import base64
import re

import numpy as np
import pytest

from regard import RegardError
from regard.views.image_map import ImageMap, PatchImage
from regard.views.shades import RAMP

BLACK = PatchImage(np.zeros((4, 6, 3), np.uint8), (2, 3))
WHITE = PatchImage(np.full((300, 300, 3), 255, np.uint8), (1, 1))
WEIGHTS = np.zeros((1, 2, 2, 7), np.float32)
WEIGHTS[0, 0, 1, 5] = 1  # the second word: the last patch of the first image; by the other head, the second image
WEIGHTS[0, 1, 1, 6] = 1
MAP = ImageMap(("<a>", "dog"), (BLACK, WHITE), WEIGHTS, "tiny")


def test_weights_lie_on_their_patches():
    assert MAP.select("dog", head=0).tolist() == [[0, 0, 0], [0, 0, 1]]
    assert MAP.select(1, 1).tolist() == [[0.5]]


def test_heat_is_drawn_over_the_image():
    drawn = MAP.draw("dog", head=0)
    assert drawn.shape == (4 * 38, 6 * 38, 3)  # at least 224 pixels wide
    np.testing.assert_allclose(drawn[-1, -1], 0.65 * np.array(RAMP[-1]), atol=0.5)
    np.testing.assert_allclose(drawn[-1, 0], 0.65 * np.array(RAMP[0]), atol=0.5)
    np.testing.assert_allclose(MAP.draw("dog", 1)[0, 0], 0.65 * np.array(RAMP[-1]) + 0.35 * 255, atol=0.5)


def test_a_page_holds_every_word_and_image(tmp_path):
    page = MAP.save_html(tmp_path / "look.html").read_text()
    assert re.findall("<figcaption>(.*?)</figcaption>", page) == ["&lt;a&gt;", "dog"]
    pictures = re.findall('src="data:image/png;base64,(.*?)"', page)
    assert len(pictures) == 4
    assert base64.b64decode(pictures[2]) == MAP.save_picture(tmp_path / "dog.png", "dog").read_bytes()
    assert MAP._repr_html_().startswith("<iframe sandbox")


def test_what_does_not_fit_is_said(tmp_path):
    for ask, message in (
        (lambda: MAP.select("dgo"), 'image map: unknown row "dgo"; did you mean "dog"?'),
        (lambda: MAP.select(2), "row must be from 0 to 1, got 2"),
        (lambda: MAP.select(0, 2), "image must be from 0 to 1, got 2"),
        (lambda: MAP.save_picture("a.jpg", 0), 'a.jpg: expected .png, got ".jpg"'),
        (
            lambda: ImageMap(("a",), (BLACK,), WEIGHTS),
            "image map: expected weights of shape (layers, heads, 1, 6), got (1, 2, 2, 7)",
        ),
    ):
        with pytest.raises(RegardError) as error:
            ask()
        assert str(error.value) == message
