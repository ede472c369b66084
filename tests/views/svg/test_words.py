import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.views.shades import RAMP
from regard.views.svg.words import draw_words_svg
from tests.views.svg.reading import SVG, color, every, parsed, texts, tooltip

WORDS, WEIGHTS = ("a", "<b>", "film"), (0.0, 1.0, 0.2)


def test_every_word_stands_upon_its_shade():
    root = parsed(draw_words_svg(WORDS, WEIGHTS, title="negative"))
    groups = every(root, "g")
    assert [np.float32(group.get("data-weight")) for group in groups] == list(np.float32(WEIGHTS))
    assert [group.find(f"{SVG}text").text for group in groups] == list(WORDS)
    assert [color(group.find(f"{SVG}rect").get("fill")) for group in groups] == [RAMP[0], RAMP[10], RAMP[2]]
    assert [tooltip(group) for group in groups] == ["a: 0", "<b>: 1", "film: 0.2"]
    assert texts(root) == ["negative", *WORDS, "0", "1"]


def test_words_do_not_overlap():
    root = parsed(draw_words_svg(["日本語"] * 30, [0.5] * 30))
    boxes = {(float(box.get("x")), float(box.get("y"))) for box in every(root, "rect") if box.get("rx")}
    widths = {float(box.get("width")) for box in every(root, "rect") if box.get("rx")}
    assert len(boxes) == 30
    lefts = sorted(x for x, y in boxes if y == min(y for _, y in boxes))
    assert 1 < len(lefts) < 30  # they go on in a second line
    assert min(np.diff(lefts)) >= max(widths)
    assert max(x for x, _ in boxes) + max(widths) <= float(root.get("width"))


@given(st.lists(st.text(st.characters(), max_size=4), max_size=5))
def test_any_word_can_be_written(words):
    text = draw_words_svg(words, [0.5] * len(words))
    assert text.encode("utf-8")
    assert len(every(parsed(text), "g")) == len(words)
