import json
import math

import numpy as np
import pytest

from regard import RegardError
from regard.views.head_scores import HeadScores

SCORES = HeadScores(
    "tiny",
    ("first", "second"),
    ({"entropy": (1.5, 2.0), "induction": (0.25, None)}, {"entropy": (2345.6,), "induction": (0.75,)}),
    1200,
    100,
    {"entropy": "spread", "induction": "copies"},
)


def test_a_table_has_a_line_for_each_head():
    assert str(SCORES).splitlines() == [
        "tiny: 1,200 tokens, 100 queries measured",
        "",
        "layer  head    entropy  induction",
        "    0     0      1.500      0.250",
        "    0     1      2.000          -",
        "    1     0       2346      0.750",
    ]


def test_a_table_can_be_sorted():
    lines = SCORES.draw(sort="induction").splitlines()[3:]
    assert [line.split()[:2] for line in lines] == [["1", "0"], ["0", "0"], ["0", "1"]]
    with pytest.raises(RegardError) as error:
        SCORES.draw(sort="inducton")
    assert str(error.value) == 'heads: unknown measure "inducton"; did you mean "induction"?'


def test_select_fills_what_is_not_there():
    np.testing.assert_array_equal(SCORES.select("induction"), [[0.25, math.nan], [0.75, math.nan]])


def test_json_and_pictures(tmp_path):
    SCORES.save(tmp_path / "heads.json")
    assert json.loads((tmp_path / "heads.json").read_text()) == {
        "format": "regard.heads/1",
        "title": "tiny",
        "tokens": 1200,
        "queries": 100,
        "definitions": {"entropy": "spread", "induction": "copies"},
        "layers": [
            {"path": "first", "entropy": [1.5, 2.0], "induction": [0.25, None]},
            {"path": "second", "entropy": [2345.6], "induction": [0.75]},
        ],
    }
    assert SCORES.save_picture(tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert SCORES.save_picture(tmp_path / "heads.svg").read_text().count("<image") >= 2
