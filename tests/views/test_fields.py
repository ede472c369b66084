import numpy as np
import pytest

from regard import RegardError
from regard.views.attention_map import AttentionMap

ROWS, COLUMNS, WEIGHTS = ("a", "b"), ("x",), np.ones((1, 1, 2, 1))
BEAM = ((("a", 0.75), ("c", 0.25)), (("a b", 0.5),))


def test_alternatives_are_saved(tmp_path):
    picture = AttentionMap(ROWS, COLUMNS, WEIGHTS, alternatives=BEAM)
    picture.save(tmp_path / "look.json")
    again = AttentionMap.load(tmp_path / "look.json")
    assert again == picture
    assert again.alternatives == BEAM
    assert again.keep_top(1).alternatives == BEAM
    assert picture != AttentionMap(ROWS, COLUMNS, WEIGHTS)
    assert AttentionMap(ROWS, COLUMNS, WEIGHTS).alternatives is None


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([[]], "alternatives are [[]]; give a sequence for each of 2 rows"),
        (2, "alternatives are 2; give a sequence for each of 2 rows"),
        (
            [[], [["c", 1.5]]],
            "an alternative of row 1 is ['c', 1.5]; give a text and a probability between 0 and 1",
        ),
        ([["c"], []], "an alternative of row 0 is 'c'; give a text and a probability between 0 and 1"),
        ([[[1, 0.5]], []], "an alternative of row 0 is [1, 0.5]; give a text and a probability between 0 and 1"),
        (
            [[["c", float("nan")]], []],
            "an alternative of row 0 is ['c', nan]; give a text and a probability between 0 and 1",
        ),
    ],
)
def test_what_is_no_alternative_is_refused(found, message):
    record = AttentionMap(ROWS, COLUMNS, WEIGHTS).record()
    with pytest.raises(RegardError) as caught:
        AttentionMap.from_record(record | {"alternatives": found})
    assert str(caught.value) == f"attention map: {message}"
