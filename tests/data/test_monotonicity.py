from itertools import permutations

import numpy as np
import pytest

from regard.data.monotonicity import align, learn_translations, measure_monotonicity

WORDS = [list(word) for word in permutations(range(4, 10), 4)]


def test_a_table_of_one_iteration_counts_which_tokens_occur_together(monkeypatch):
    monkeypatch.setattr("regard.data.monotonicity.ITERATIONS", 1)
    pairs = [(np.array([0]), np.array([0])), (np.array([0, 1]), np.array([0, 1]))]
    # uniform at first: the pair of one token counts 1, those of two tokens a half for each of their sources
    np.testing.assert_allclose(learn_translations(pairs), [[1.5 / 2, 0.5 / 2], [0.5, 0.5]])


def test_equally_likely_positions_are_taken_on_the_diagonal():
    table = np.ones((2, 2))
    assert align(table, np.array([1, 1, 1, 1]), np.array([0, 0, 0, 0])).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "share"),
    [(lambda word: word, 1.0), (lambda word: word[::-1], 0.0), (lambda word: [t for t in word for _ in "ab"], 1.0)],
)
def test_steps_back_are_counted(change, share):
    assert measure_monotonicity([(word, change(word)) for word in WORDS]) == share


def test_halves_in_the_other_order_take_one_step_of_three_back():
    assert measure_monotonicity([(word, word[2:] + word[:2]) for word in WORDS]) == pytest.approx(2 / 3)


def test_nothing_to_align_is_not_monotonic():
    assert measure_monotonicity([]) == measure_monotonicity([([], [3]), ([3], [])]) == 0.0
    assert measure_monotonicity([([3], [4])]) == 0.0
