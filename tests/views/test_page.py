import inspect
import json
import re

import numpy as np
import pytest

from regard import RegardError
from regard.views.attention_map import AttentionMap
from regard.views.page import frame, joined_modules, map_page, slim


def even(layers, heads, rows, columns):
    weights = np.full((layers, heads, rows, columns), 0.01)
    return AttentionMap(("</script>",) * rows, ("\ud800",) * columns, weights, title="look")


def test_no_token_ends_the_element_that_holds_it():
    page = map_page(even(1, 1, 2, 3))
    assert page.encode("utf-8")
    assert page.count("</script>") == 2
    (record,) = re.findall('<script type="application/json" id="record">(.*)</script>', page)
    assert not set("<>&") & set(record)
    assert json.loads(record) == even(1, 1, 2, 3).record()


def test_what_is_shown_first_stands_in_the_page():
    picture = even(2, 3, 2, 3)
    assert '<main id="view" data-view="matrix" data-layer="mean" data-head="mean">' in map_page(picture)
    page = map_page(picture, view="lines", layer=-1, head=0)
    assert '<main id="view" data-view="lines" data-layer="1" data-head="0">' in page
    for first, line in (
        ({"view": "time"}, 'view: there is no "time"; there are: heads, lines, matrix, words'),
        ({"layer": 2}, 'layer: there is no "2"; give a number from 0 to 1, or "mean"'),
    ):
        with pytest.raises(RegardError) as caught:
            map_page(picture, **first)
        assert str(caught.value) == line


def test_the_joined_script_imports_nothing():
    script = joined_modules("page")
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert "</script" not in script


def test_a_page_holds_a_million_weights_or_the_largest():
    assert slim(even(1, 1, 1000, 1000)).kept is None
    assert slim(even(1, 1, 1001, 1000)).kept == 64
    assert slim(even(4, 10, 1000, 30)).kept == 25
    assert slim(even(20, 20, 1000, 5)).kept == 4
    small = even(1, 1, 1001, 1000).keep_top(3)
    assert slim(small) is small


def test_a_frame_is_one_element():
    text = frame(even(1, 1, 2, 3))
    assert re.fullmatch(r'<iframe [^<>]*srcdoc="[^"<>]*"></iframe>', text)
    assert 'sandbox="allow-scripts"' in text


def test_what_is_no_map_is_named():
    with pytest.raises(RegardError) as caught:
        inspect.unwrap(map_page)("a b")
    assert (
        str(caught.value) == "map_page: found str; an AttentionMap is needed, as model.attention_map(prediction) gives"
    )
