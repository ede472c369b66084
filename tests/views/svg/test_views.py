import numpy as np
import pytest

from regard import RegardError
from regard.views.attention_map import AttentionMap
from regard.views.svg.heads import draw_heads_svg
from regard.views.svg.lines import draw_lines_svg
from regard.views.svg.matrix import draw_matrix_svg

PICTURE = AttentionMap(("a",), ("x", "y"), np.array([[[[0.5, 0.5]]], [[[1.0, 0.0]]]]))


def test_each_view_has_its_name():
    assert PICTURE.to_svg("matrix", layer=1) == PICTURE.to_svg(layer=1) == draw_matrix_svg(PICTURE, layer=1)
    assert PICTURE.to_svg("lines", layer=1) == draw_lines_svg(PICTURE, layer=1)
    assert PICTURE.to_svg("heads") == draw_heads_svg(PICTURE)


def test_a_view_is_saved(tmp_path):
    path = PICTURE.save_picture(tmp_path / "new" / "look.SVG", view="heads")
    assert path.read_text(encoding="utf-8") == PICTURE.to_svg("heads")


@pytest.mark.parametrize(
    ("view", "name", "message"),
    [
        ("line", "look.svg", 'unknown view "line"; did you mean "lines"?'),
        ("lines", "look.png", 'look.png: the lines view requires .svg, got ".png"'),
    ],
)
def test_what_cannot_be_drawn_is_said(view, name, message):
    with pytest.raises(RegardError) as caught:
        PICTURE.save_picture(name, view=view)
    assert str(caught.value) == message
