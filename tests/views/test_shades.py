import numpy as np
import pytest

from regard.views.shades import DARK_RAMP, RAMP, ceiling, shade_to_rgb, to_hex


def lightness(color):
    """CIE L* of an sRGB color, by its definition."""
    parts = np.array(color) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return 116 * np.cbrt(luminance) - 16 if luminance > 216 / 24389 else luminance * 24389 / 27


def test_each_step_is_darker_by_as_much():
    steps = np.diff([lightness(shade_to_rgb(shade)) for shade in np.linspace(0, 1, 21)])
    np.testing.assert_allclose(steps, -4.08, atol=0.25)


def test_on_a_dark_page_each_step_is_lighter_by_as_much():
    steps = np.diff([lightness(shade_to_rgb(shade, DARK_RAMP)) for shade in np.linspace(0, 1, 11)])
    np.testing.assert_allclose(steps, 8, atol=0.4)


def test_a_color_is_written_with_two_digits_a_channel():
    assert to_hex((0, 10, 255)) == "#000aff"


def test_the_ends_are_those_of_the_ramp():
    assert (shade_to_rgb(0), shade_to_rgb(0.5), shade_to_rgb(1)) == (RAMP[0], RAMP[5], RAMP[10])


@pytest.mark.parametrize(
    ("strongest", "top"), [(1.005, 1), (1, 1), (0.51, 1), (0.5, 0.5), (0.3, 0.5), (0.06, 0.1), (0.001, 0.01), (0, 0.01)]
)
def test_the_darkest_shade_is_a_round_number(strongest, top):
    assert ceiling(np.array([[0.0, strongest]])) == top
