import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.metrics import exact_match, score_by_length

SOURCES = ["a", "a b", "a b c", "a b c d", "a b c d e f"]
PREDICTIONS = ["x", "x", "y", "x", "y"]
REFERENCES = ["x", "x", "x", ["z", "x"], "x"]


def table(rows):
    return [(row.lengths, row.sentences, row.score.value) for row in rows]


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


def test_by_hand():
    rows = score_by_length(SOURCES, PREDICTIONS, REFERENCES, exact_match, edges=(2, 4))
    assert table(rows) == [("0-2", 2, 1.0), ("3-4", 2, 0.5), ("5+", 1, 0.0)]
    assert rows[1].to_json() == {
        "least": 3, "most": 4, "sentences": 2, "score": rows[1].score.to_json()
    }  # fmt: skip


def test_empty_rows_are_left_out():
    rows = score_by_length(SOURCES, PREDICTIONS, REFERENCES, exact_match, edges=(0, 4, 5))
    assert table(rows) == [("1-4", 4, 0.75), ("6+", 1, 0.0)]


def test_length_in_characters():
    rows = score_by_length(SOURCES, PREDICTIONS, REFERENCES, exact_match, edges=(5,), unit="character")
    assert table(rows) == [("0-5", 3, 2 / 3), ("6+", 2, 0.5)]


def test_some_sentences_only():
    rows = score_by_length(SOURCES, PREDICTIONS, REFERENCES, exact_match, keep=[True, False, True, True, False])
    assert table(rows) == [("0-10", 3, 2 / 3)]
    assert score_by_length(SOURCES, PREDICTIONS, REFERENCES, exact_match, keep=[False] * 5) == []


@given(st.lists(st.integers(0, 30), min_size=1), st.sets(st.integers(0, 30)))
def test_each_sentence_is_in_the_one_row_of_its_length(lengths, edges):
    sources = ["a " * length for length in lengths]
    rows = score_by_length(sources, sources, sources, exact_match, sorted(edges))
    for row in rows:
        most = 99 if row.max_length is None else row.max_length
        assert row.sentences == sum(row.min_length <= length <= most for length in lengths)
    assert sum(row.sentences for row in rows) == len(lengths)


def test_what_is_refused():
    with refused("by_length: expected one per prediction, got 2 sources and 1 predictions"):
        score_by_length(["a", "b"], ["a"], ["a"], exact_match)
    with refused("by_length: expected one per prediction, got 2 entries in keep and 1 predictions"):
        score_by_length(["a"], ["a"], ["a"], exact_match, keep=[True, True])
    with refused("by_length: expected at least one prediction, got none"):
        score_by_length([], [], [], exact_match)
    for edges in ((10, 10), (-1, 4), (5, 3)):
        with refused(f"by_length: edges must increase, starting from at least 0, got {edges[0]}, {edges[1]}"):
            score_by_length(["a"], ["a"], ["a"], exact_match, edges)
