import numpy as np

from regard.views.shades import CEILINGS, DARK_RAMP, RAMP, ceiling, choose_text_color
from tests.views.static.conftest import shade_color


def test_the_ramps_are_those_of_paper_and_terminal(modules):
    light, dark = modules.evaluate(
        "async () => { const s = await import('/shades.js'); return [s.LIGHT_RAMP, s.DARK_RAMP]; }"
    )
    assert [tuple(color) for color in light] == list(RAMP)
    assert [tuple(color) for color in dark] == list(DARK_RAMP)


def test_colors_lie_between_those_of_the_ramp(modules):
    program = """async (dark) => {
        const { colorOf } = await import('/shades.js');
        return Array.from({length: 101}, (_, step) => colorOf(step / 100, dark));
    }"""
    for dark in (False, True):
        expected = [shade_color(step / 100, dark=dark) for step in range(101)]
        np.testing.assert_allclose(modules.evaluate(program, dark), expected, atol=0.501)


def test_ink_and_ceiling_are_the_same_as_in_python(modules):
    program = "async (ramp) => { const s = await import('/shades.js'); return ramp.map(s.inkOn); }"
    for ramp in (RAMP, DARK_RAMP):
        black = [choose_text_color(color) == (0, 0, 0) for color in ramp]
        assert [text == "#000000" for text in modules.evaluate(program, ramp)] == black
    numbers = np.float32([0, *CEILINGS, *(top * 1.001 for top in CEILINGS), 0.3])
    ceilings = modules.evaluate(
        "async (all) => { const s = await import('/shades.js'); return all.map(s.ceiling); }", numbers.tolist()
    )
    assert ceilings == [ceiling(number[None]) for number in numbers]
