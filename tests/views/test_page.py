import inspect
import json
import re

import numpy as np
import pytest

from regard import RegardError
from regard.views.attention_map import AttentionMap
from regard.views.page import build_iframe, build_map_page, bundle_modules, limit_weights


def even(layers, heads, rows, columns):
    weights = np.full((layers, heads, rows, columns), 0.01)
    return AttentionMap(("</script>",) * rows, ("\ud800",) * columns, weights, title="look")


def test_no_token_ends_the_element_that_holds_it():
    page = build_map_page(even(1, 1, 2, 3))
    assert page.encode("utf-8")
    assert page.count("</script>") == 2
    (record,) = re.findall('<script type="application/json" id="record">(.*)</script>', page)
    assert not set("<>&") & set(record)
    assert json.loads(record) == even(1, 1, 2, 3).record()


def test_what_is_shown_first_stands_in_the_page():
    picture = even(2, 3, 2, 3)
    assert '<main id="view" data-view="matrix" data-layer="mean" data-head="mean">' in build_map_page(picture)
    page = build_map_page(picture, view="lines", layer=-1, head=0)
    assert '<main id="view" data-view="lines" data-layer="1" data-head="0">' in page
    for first, line in (
        ({"view": "time"}, 'unknown view "time"; choose from heads, lines, matrix, words'),
        ({"layer": 2}, 'layer must be from 0 to 1 or "mean", got 2'),
    ):
        with pytest.raises(RegardError) as caught:
            build_map_page(picture, **first)
        assert str(caught.value) == line


def test_the_joined_script_imports_nothing():
    script = bundle_modules("page")
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert "</script" not in script


def test_a_page_holds_a_million_weights_or_the_largest():
    assert limit_weights(even(1, 1, 1000, 1000)).top_k is None
    assert limit_weights(even(1, 1, 1001, 1000)).top_k == 64
    assert limit_weights(even(4, 10, 1000, 30)).top_k == 25
    assert limit_weights(even(20, 20, 1000, 5)).top_k == 4
    small = even(1, 1, 1001, 1000).keep_top(3)
    assert limit_weights(small) is small


def test_a_frame_is_one_element():
    text = build_iframe(even(1, 1, 2, 3))
    assert re.fullmatch(r'<iframe [^<>]*srcdoc="[^"<>]*"></iframe>', text)
    assert 'sandbox="allow-scripts"' in text


def test_what_is_no_map_is_named():
    with pytest.raises(RegardError) as caught:
        inspect.unwrap(build_map_page)("a b")
    assert str(caught.value) == "build_map_page: expected an AttentionMap, got str; call model.attention_map(...)"
