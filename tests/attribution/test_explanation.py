import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.attribution.explanation import Explanation, rank_correlation, ranks, rollout

EXPLANATION = Explanation(
    ("a", "猫", "x" * 40),
    "label Y, probability 0.5",
    -0.69,
    {"attention": (0.2, 0.3, 0.5), "gradient x input": (-3.0, 2.0, 1.0), "leave one out": (1.0, 1.0, 1.0)},
    ("0.10 of the attention is outside of these words",),
)


def test_a_label_cannot_steer_the_terminal():
    assert replace(EXPLANATION, description="label \x1b[31mY\nZ").format_lines()[0] == "label ␛[31mY␊Z"


def test_equal_numbers_share_their_ranks():
    np.testing.assert_array_equal(ranks(np.array([10.0, 30.0, 20.0, 20.0])), [1, 4, 2.5, 2.5])


def test_rank_correlation_with_ties():
    # ranks 1, 2.5, 2.5, 4 and 1, 4, 2.5, 2.5, from their mean -1.5, 0, 0, 1.5 and -1.5, 1.5, 0, 0: 2.25 / 4.5
    assert rank_correlation(np.array([1.0, 2, 2, 4]), np.array([10.0, 30, 20, 20])) == pytest.approx(0.5)


@given(st.permutations(range(7)))
def test_rank_correlation_without_ties(order):
    apart = sum((place - other) ** 2 for place, other in enumerate(order))
    correlation = rank_correlation(np.arange(7.0), np.exp(np.array(order)))
    assert correlation == pytest.approx(1 - 6 * apart / (7 * (7**2 - 1)))  # Spearman's formula


def test_what_is_the_same_for_all_has_no_rank_correlation():
    assert rank_correlation(np.ones(3), np.arange(3.0)) is None
    assert rank_correlation(np.ones(1), np.ones(1)) is None


def test_magnitudes_are_compared():
    assert EXPLANATION.correlations == {
        ("attention", "gradient x input"): pytest.approx(-1.0),
        ("attention", "leave one out"): None,
        ("gradient x input", "leave one out"): None,
    }


def test_rollout_by_hand():
    first, second = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.5, 0.5], [0.0, 1.0]])
    # halves with the identity are [1 0; 1/4 3/4] and [3/4 1/4; 0 1]; the second times the first
    np.testing.assert_allclose(rollout(np.stack([first, second])), [[13 / 16, 3 / 16], [1 / 4, 3 / 4]])


def test_a_table_has_a_row_for_each_word():
    assert EXPLANATION.format_lines() == [
        "label Y, probability 0.5",
        "   word                            attention  gradient x input  leave one out",
        "0  a                                   0.200            -3.000         +1.000",
        "1  猫                                  0.300            +2.000         +1.000",
        f"2  {'x' * 29}…      0.500            +1.000         +1.000",
        "rank correlation of the magnitudes (Spearman):",
        "  attention, gradient x input: -1.00",
        "  attention, leave one out: undefined (one method has equal scores for all words)",
        "  gradient x input, leave one out: undefined (one method has equal scores for all words)",
        "0.10 of the attention is outside of these words",
    ]


def test_json_has_all_of_it():
    record = json.loads(json.dumps(EXPLANATION.to_json()))
    assert record["words"] == ["a", "猫", "x" * 40]
    assert record["values"]["gradient x input"] == [-3, 2, 1]
    assert record["correlations"][0]["methods"] == ["attention", "gradient x input"]
    assert record["correlations"][1]["spearman"] is None
    assert (record["description"], record["log_probability"], record["notes"]) == (
        EXPLANATION.description,
        -0.69,
        list(EXPLANATION.notes),
    )


def test_shares_are_of_the_magnitudes():
    assert EXPLANATION.compute_shares("gradient x input") == pytest.approx((1 / 2, 1 / 3, 1 / 6))
    assert Explanation(("a", "b"), "", 0.0, {"attention": (0.0, 0.0)}).compute_shares("attention") == (0, 0)
