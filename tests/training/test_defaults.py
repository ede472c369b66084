import math

import numpy as np
import pytest

from regard.training.defaults import choose_width, count_bits, fade


def test_the_bits_of_a_text_are_its_tokens_times_their_entropy():
    assert count_bits([5, 5, 5, 5], tokens=20) == pytest.approx(40)
    assert count_bits(np.bincount([3, 3, 7, 9]), tokens=4) == pytest.approx(2 * 1 + 1 * 2 + 1 * 2)
    assert count_bits([1, 1], tokens=1000) == pytest.approx(1000)  # counted in a part of the text
    assert count_bits([9], tokens=9) == count_bits([], tokens=0) == 0


def test_widths_are_multiples_within_bounds():
    assert [choose_width(bits) for bits in (0, 1, 1e6, 1e30)] == [128, 128, 128, 512]
    widths = [choose_width(10**exponent) for exponent in np.arange(5, 9, 0.05)]
    assert sorted({*widths}) == [128, 192, 256, 320, 384, 448, 512]  # none is skipped
    assert widths == sorted(widths)
    assert choose_width((224.5 / 2.38) ** (1 / 0.3)) == 256
    assert choose_width((223.5 / 2.38) ** (1 / 0.3)) == 192


def test_a_share_fades_in_the_logarithm():
    assert [fade(bits, 10, 1000) for bits in (0, 10, 1000, 1e9)] == [1, 1, 0, 0]
    assert fade(100, 10, 1000) == pytest.approx(0.5)
    assert fade(20, 10, 1000) == pytest.approx(1 - math.log(2) / math.log(100))
