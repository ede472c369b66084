"""Learning rates worked out by hand."""

import pytest

from regard.training.schedule import compute_learning_rate
from regard.training.settings import TrainingSettings


def rates(updates, **settings):
    chosen = TrainingSettings(**{"learning_rate": 0.8, "warmup_steps": 4, "steps": 104} | settings)
    return [compute_learning_rate(step, chosen) for step in updates]


@pytest.mark.parametrize("schedule", ["cosine", "inverse-sqrt", "constant"])
def test_the_rate_rises_in_a_line(schedule):
    assert rates([1, 2, 3, 4], schedule=schedule) == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_half_a_cosine_down_to_a_hundredth():
    # after a third of the way the cosine is 1/2, at the half 0, after two thirds -1/2
    actual = rates([4 + 30, 4 + 45, 4 + 60, 94], steps=94)
    assert actual == pytest.approx([0.8 * (0.01 + 0.99 * share) for share in (0.75, 0.5, 0.25, 0)])
    assert actual[-1] == pytest.approx(0.008)


def test_it_stays_at_the_hundredth_after_the_end():
    assert rates([104, 105, 500]) == pytest.approx([0.008] * 3)


def test_the_inverse_root_halves_when_steps_are_four_times_as_many():
    assert rates([4, 16, 64, 100], schedule="inverse-sqrt") == pytest.approx([0.8, 0.4, 0.2, 0.16])


def test_constant_is_constant():
    assert rates([5, 50, 5000], schedule="constant") == [0.8] * 3


def test_without_warmup_the_first_update_has_the_peak():
    assert rates([1], warmup_steps=0) == [0.8]
    assert rates([1, 4, 9], warmup_steps=0, schedule="inverse-sqrt") == pytest.approx([0.8, 0.4, 0.8 / 3])


def test_a_warmup_longer_than_training():
    assert rates([1, 5], warmup_steps=10, steps=5) == pytest.approx([0.08, 0.4])
