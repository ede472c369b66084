import io

import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as arrays
from matplotlib.image import imread

from regard.views.svg.pixels import encode_png, max_pool


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=2, max_side=7).map(lambda side: (*side, 3))))
def test_another_reader_finds_the_same_pixels(pixels):
    decoded = np.round(imread(io.BytesIO(encode_png(pixels)))[:, :, :3] * 255)
    np.testing.assert_array_equal(decoded, pixels)


def test_blocks_keep_their_largest():
    weights = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert max_pool(weights, 6) is weights
    assert max_pool(weights, 3).tolist() == [[1, 3, 5], [7, 9, 11]]
    assert max_pool(weights, 4).tolist() == [[0, 2, 3, 5], [6, 8, 9, 11]]  # blocks begin at 0, 1, 3, 4
    assert max_pool(weights, 1).tolist() == [[11]]
