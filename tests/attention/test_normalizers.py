"""Sparsemax and entmax, compared with a search for the threshold that defines them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import attend
from regard.attention.normalizers import Entmax15, Softmax, Sparsemax

scores = st.lists(st.floats(-1e4, 1e4) | st.floats(-3, 3), min_size=1, max_size=12)


def by_bisection(scores: np.ndarray, power: float) -> np.ndarray:
    """The weights max(0, s - t)^power that sum to one (for entmax15, s = score / 2)."""
    low, high = scores.max() - 1, scores.max()
    for _ in range(200):
        middle = (low + high) / 2
        total = (np.maximum(scores - middle, 0) ** power).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return np.maximum(scores - low, 0) ** power


@given(scores)
def test_sparsemax_is_the_threshold_that_makes_the_sum_one(values):
    row = torch.tensor([values], dtype=torch.float64)
    everything = slice(0, len(values))
    weights = Sparsemax().weights(row, Sparsemax().statistic(row, everything), everything)
    np.testing.assert_allclose(weights[0].numpy(), by_bisection(row[0].numpy(), 1), atol=1e-10)


@given(scores)
def test_entmax_is_the_threshold_that_makes_the_sum_one(values):
    row = torch.tensor([values], dtype=torch.float64)
    everything = slice(0, len(values))
    weights = Entmax15().weights(row, Entmax15().statistic(row, everything), everything)
    np.testing.assert_allclose(weights[0].numpy(), by_bisection(row[0].numpy() / 2, 2), atol=1e-7)


def test_sparsemax_by_hand():
    row = torch.tensor([[1.0, 0.8, 0.1]])  # threshold (1.8 - 1) / 2
    weights = Sparsemax().weights(row, Sparsemax().statistic(row, slice(0, 3)), slice(0, 3))
    torch.testing.assert_close(weights, torch.tensor([[0.6, 0.4, 0.0]]))


@pytest.mark.parametrize("kind", [Softmax, Sparsemax, Entmax15])
def test_a_constant_added_to_a_row_changes_nothing(kind):
    row = torch.randn(3, 9, dtype=torch.float64)
    everything = slice(0, 9)
    plain = kind().weights(row, kind().statistic(row, everything), everything)
    moved = kind().weights(row + 5, kind().statistic(row + 5, everything), everything)
    torch.testing.assert_close(plain, moved)


def test_a_row_that_sees_nothing_gets_nothing():
    row = torch.full((1, 4), -torch.inf)
    for kind in (Softmax, Sparsemax, Entmax15):
        weights = kind().weights(row, kind().statistic(row, slice(0, 4)), slice(0, 4))
        assert weights.tolist() == [[0, 0, 0, 0]]


def test_hidden_keys_do_not_count():
    row = torch.tensor([[0.3, -torch.inf, 0.1, -torch.inf]])
    for kind in (Softmax, Sparsemax, Entmax15):
        weights = kind().weights(row, kind().statistic(row, slice(0, 4)), slice(0, 4))
        alone = kind().weights(row[:, [0, 2]], kind().statistic(row[:, [0, 2]], slice(0, 2)), slice(0, 2))
        torch.testing.assert_close(weights[:, [0, 2]], alone)
        assert weights[0, 1] == weights[0, 3] == 0


def test_none_is_the_plain_weighted_sum():
    query, keys, values = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 2)
    for path in ("reference", "tiled"):
        torch.testing.assert_close(
            attend(query, keys, values, "dot", normalizer="none", path=path), query @ keys.T @ values
        )
        kernel = torch.exp(-torch.cdist(query, keys).square() / 2)
        torch.testing.assert_close(
            attend(query, keys, values, "gaussian", normalizer="none", path=path), kernel @ values
        )
        near = (torch.cdist(query, keys) <= 1).float()
        torch.testing.assert_close(attend(query, keys, values, "boxcar", normalizer="none", path=path), near @ values)
