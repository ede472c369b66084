import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard import RegardError
from regard.views.weights import TopWeights, as_indices, keep_largest, mean_matrix


def top(values, indices, columns=3):
    values = np.array(values, np.float32)
    return TopWeights(values, np.array(indices), np.zeros((*values.shape[:2], columns), np.float32))


@given(arrays.arrays(np.float32, (2, 2, 3, 7), elements=st.floats(0, 1, width=32)), st.integers(1, 9))
def test_the_largest_of_each_row_are_kept(weights, count):
    kept = keep_largest(weights, count)
    assert kept.shape == weights.shape
    assert kept.top_k == min(count, 7)
    for place in np.ndindex(2, 2, 3):
        row = weights[place]
        assert kept.values[place].tolist() == sorted(row.tolist(), reverse=True)[:count]  # the greatest first
        for value, index in zip(kept.values[place], kept.indices[place], strict=True):
            assert row[index] == value if value else index == -1
    np.testing.assert_array_equal(kept.received, weights.astype(np.float64).sum(2).astype(np.float32))


def test_of_the_largest_fewer_can_be_kept():
    kept = keep_largest(top([[[[0.25, 0.5, 0.125]]]], [[[[2, 0, 1]]]]), 2)
    assert kept.values.tolist() == [[[[0.5, 0.25]]]]
    assert kept.indices.tolist() == [[[[0, 2]]]]


@given(arrays.arrays(np.float32, (2, 3, 4, 5), elements=st.floats(0, 1, width=32)))
def test_the_mean_is_that_of_all_where_all_are_kept(weights):
    expected = weights[:, 1:].astype(np.float64).mean((0, 1))
    np.testing.assert_allclose(mean_matrix(weights, slice(0, 2), slice(1, 3)), expected, rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(
        mean_matrix(keep_largest(weights, 5), slice(0, 2), slice(1, 3)), expected, rtol=1e-6, atol=1e-30
    )


def test_layers_and_heads_have_their_places():
    weights = top([[[[1.0]], [[0.5]]]], [[[[0]], [[2]]]])  # two heads
    assert mean_matrix(weights, slice(0, 1), slice(0, 1)).tolist() == [[1, 0, 0]]
    assert mean_matrix(weights, slice(0, 1), slice(1, 2)).tolist() == [[0, 0, 0.5]]
    assert mean_matrix(weights, slice(0, 1), slice(0, 2)).tolist() == [[0.5, 0, 0.25]]


def test_nothing_can_be_changed_from_outside():
    values = np.ones((1, 1, 1, 1), np.float32)
    weights = TopWeights(values, np.zeros((1, 1, 1, 1), int), np.ones((1, 1, 3)))
    values[:] = 0
    assert weights.values.max() == 1
    with pytest.raises(ValueError, match="read-only"):
        weights.indices[0] = 1


@pytest.mark.parametrize(
    ("values", "indices", "message"),
    [
        (
            [[[[1.5]]]],
            [[[[0]]]],
            "weight at layer, head, row, index (0, 0, 0, 0) must be between 0 and 1, got 1.5",
        ),
        ([[[[0.5]]]], [[[[3]]]], "index at layer, head, row (0, 0, 0) must be -1 or from 0 to 2, got 3"),
        ([[[[0.5]]]], [[[[-2]]]], "index at layer, head, row (0, 0, 0) must be -1 or from 0 to 2, got -2"),
        (
            [[[[0.5]]]],
            [[[[-1]]]],
            "index at layer, head, row (0, 0, 0) must be a column where the weight is above 0, got -1",
        ),
        (
            [[[[0.5, 0.5]]]],
            [[[[1, 1]]]],
            "index at layer, head, row (0, 0, 0) must be unique in its row, got 1",
        ),
        (
            [[[[0.5, 0.5]]]],
            [[[[1]]]],
            "values and indices must have shape (layers, heads, rows, kept) and received (layers, heads, columns), "
            "got (1, 1, 1, 2), (1, 1, 1, 1) and (1, 1, 3)",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(values, indices, message):
    with pytest.raises(RegardError) as caught:
        top(values, indices)
    assert str(caught.value) == f"attention map: {message}"


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_received_sums_weights(wrong):
    with pytest.raises(RegardError) as caught:
        TopWeights(np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1, 1), int), np.full((1, 1, 3), wrong))
    assert str(caught.value) == "attention map: received must hold finite numbers of at least 0"


def test_a_matrix_has_a_limit():
    kept = TopWeights(np.ones((1, 1, 20_000, 1)), np.zeros((1, 1, 20_000, 1), int), np.ones((1, 1, 20_000)))
    with pytest.raises(RegardError) as caught:
        kept.to_matrix(slice(0, 1), slice(0, 1))
    assert str(caught.value) == (
        "attention map: 20000 rows and 20000 columns are too many for a matrix; use the HTML page"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [([0.5], ": expected integers, got float64"), ([[1], 2], " cannot be converted to an array: ")],
)
def test_indices_are_whole_numbers(value, message):
    with pytest.raises(RegardError) as caught:
        as_indices(value)
    assert str(caught.value).startswith(f"attention map: indices{message}")
