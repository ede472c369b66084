import numpy as np
import pytest

from regard import RegardError
from regard.views.attention_map import AttentionMap
from regard.views.svg.heads import heads_svg
from regard.views.svg.lines import lines_svg
from regard.views.svg.matrix import matrix_svg

PICTURE = AttentionMap(("a",), ("x", "y"), np.array([[[[0.5, 0.5]]], [[[1.0, 0.0]]]]))


def test_each_view_has_its_name():
    assert PICTURE.svg("matrix", layer=1) == PICTURE.svg(layer=1) == matrix_svg(PICTURE, layer=1)
    assert PICTURE.svg("lines", layer=1) == lines_svg(PICTURE, layer=1)
    assert PICTURE.svg("heads") == heads_svg(PICTURE)


def test_a_view_is_saved(tmp_path):
    path = PICTURE.picture(tmp_path / "new" / "look.SVG", view="heads")
    assert path.read_text(encoding="utf-8") == PICTURE.svg("heads")


@pytest.mark.parametrize(
    ("view", "name", "message"),
    [
        ("line", "look.svg", 'view: there is no "line"; did you mean "lines"?'),
        ("lines", "look.png", 'look.png: lines are written as .svg; found ".png"'),
    ],
)
def test_what_cannot_be_drawn_is_said(view, name, message):
    with pytest.raises(RegardError) as caught:
        PICTURE.picture(name, view=view)
    assert str(caught.value) == message
