import sys

import numpy as np
import pytest

from regard import RegardError
from regard.views.attention_map import AttentionMap
from regard.views.widget import build_widget, get_widget_class

PICTURE = AttentionMap(("a",), ("x", "y"), np.full((2, 3, 1, 2), 0.5), title="look")


def test_the_widget_holds_the_record():
    pytest.importorskip("anywidget")
    widget = build_widget(PICTURE, view="lines", layer=-1)
    assert widget.record == PICTURE.record()
    assert (widget.view, widget.layer, widget.head) == ("lines", 1, "mean")
    widget.layer = 0
    assert widget.get_state()["layer"] == 0


def test_what_is_not_there_is_said():
    with pytest.raises(RegardError) as caught:
        build_widget(PICTURE, view="line")
    assert str(caught.value) == 'unknown view "line"; did you mean "lines"?'
    with pytest.raises(RegardError) as caught:
        build_widget(PICTURE, view="time")
    assert str(caught.value) == 'unknown view "time"; choose from heads, lines, matrix, words'
    with pytest.raises(RegardError) as caught:
        build_widget(PICTURE, head=3)
    assert str(caught.value) == 'head must be from 0 to 2 or "mean", got 3'


def test_without_anywidget_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    get_widget_class.cache_clear()
    with pytest.raises(RegardError) as caught:
        build_widget(PICTURE)
    assert str(caught.value) == "the widget requires anywidget: pip install anywidget"
