"""Attention on gold words: means, the best head and the words for it."""

import numpy as np
import pytest

from regard.metrics.gold_attention import score_gold_attention


def test_the_best_head_is_the_one_with_the_most_on_average():
    on_gold = np.array([[[0.9, 0.2], [0.1, 0.4]], [[0.1, 0.6], [0.3, 1.0]]])  # rows, layers, heads
    score = score_gold_attention(on_gold, np.array([0.25, 0.5]))
    assert (score.layer, score.head, score.heads, score.rows) == (1, 1, 4, 2)
    assert (score.weight, score.uniform, score.mean) == pytest.approx((0.7, 0.375, 0.45))
    assert str(score) == (
        "attention on gold words 0.70, layer 1, head 1, the best of 4 (uniform 0.38, mean of all heads 0.45)"
    )


def test_one_head_needs_no_choice():
    score = score_gold_attention(np.array([[[0.81]]]), np.array([0.12]))
    assert str(score) == "attention on gold words 0.81 (uniform 0.12)"
    assert score.to_json() == {
        "weight": 0.81, "uniform": 0.12, "mean": 0.81, "layer": 0, "head": 0, "heads": 1, "rows": 1,
    }  # fmt: skip


def test_without_rows_there_is_nothing_to_score():
    assert score_gold_attention(np.zeros((0, 2, 4)), np.zeros(0)) is None
