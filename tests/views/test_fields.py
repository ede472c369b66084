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


def test_what_alternatives_are_for_is_saved(tmp_path):
    picture = AttentionMap(ROWS, COLUMNS, WEIGHTS, alternatives=BEAM, alternatives_for="next")
    picture.save(tmp_path / "map.json")
    again = AttentionMap.load(tmp_path / "map.json")
    assert (again, again.alternatives_for) == (picture, "next")
    assert again != AttentionMap(ROWS, COLUMNS, WEIGHTS, alternatives=BEAM)
    record = AttentionMap(ROWS, COLUMNS, WEIGHTS, alternatives_for="next").record()
    assert "alternatives_for" not in record
    with pytest.raises(RegardError) as raised:
        AttentionMap(ROWS, COLUMNS, WEIGHTS, alternatives_for="last")
    assert str(raised.value) == 'attention map: unknown alternatives_for "last"; choose from next, row'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[]], "alternatives: expected one sequence for each of 2 rows, got [[]]"),
        (2, "alternatives: expected one sequence for each of 2 rows, got 2"),
        (
            [[], [["c", 1.5]]],
            "alternatives of row 1: expected a string and a probability between 0 and 1, got ['c', 1.5]",
        ),
        ([["c"], []], "alternatives of row 0: expected a string and a probability between 0 and 1, got 'c'"),
        ([[[1, 0.5]], []], "alternatives of row 0: expected a string and a probability between 0 and 1, got [1, 0.5]"),
        (
            [[["c", float("nan")]], []],
            "alternatives of row 0: expected a string and a probability between 0 and 1, got ['c', nan]",
        ),
    ],
)
def test_what_is_no_alternative_is_refused(value, message):
    record = AttentionMap(ROWS, COLUMNS, WEIGHTS).record()
    with pytest.raises(RegardError) as caught:
        AttentionMap.from_record(record | {"alternatives": value})
    assert str(caught.value) == f"attention map: {message}"
