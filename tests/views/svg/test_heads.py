import numpy as np

from regard.views.attention_map import AttentionMap
from regard.views.shades import RAMP, ceiling
from regard.views.svg.heads import draw_heads_svg
from tests.views.svg.reading import every, parsed, pixels, texts, tooltip

WEIGHTS = np.random.default_rng(3).dirichlet(np.ones(5), (2, 3, 4)).astype(np.float32)


def test_every_head_is_drawn_in_its_place():
    root = parsed(draw_heads_svg(AttentionMap(tuple("abcd"), tuple("vwxyz"), WEIGHTS, title="look")))
    images = every(root, "image")
    assert len(images) == 6
    most = ceiling(WEIGHTS)
    for place, image in enumerate(images):
        layer, head = divmod(place, 3)
        assert (image.get("data-layer"), image.get("data-head")) == (str(layer), str(head))
        assert tooltip(image) == f"layer {layer}, head {head}"
        shades = WEIGHTS[layer, head] / most * (len(RAMP) - 1)
        expected = [np.interp(shades, range(len(RAMP)), channel) for channel in zip(*RAMP, strict=True)]
        np.testing.assert_allclose(pixels(image), np.stack(expected, 2), atol=0.51)
    lefts = [float(image.get("x")) for image in images]
    tops = [float(image.get("y")) for image in images]
    assert lefts[:3] == lefts[3:] == sorted(set(lefts))
    assert tops[0] == tops[2] < tops[3] == tops[5]
    assert texts(root) == ["look", "head 0", "head 1", "head 2", "layer 0", "layer 1", "0", f"{most:g}"]


def test_a_long_map_is_pooled():
    weights = np.zeros((1, 1, 1000, 500), np.float32)
    weights[0, 0, 999, 0] = 1
    (image,) = every(parsed(draw_heads_svg(AttentionMap(("r",) * 1000, ("c",) * 500, weights))), "image")
    assert np.argwhere((pixels(image) == RAMP[-1]).all(2)).tolist() == [[191, 0]]
    assert (float(image.get("width")), float(image.get("height"))) == (48, 96)
