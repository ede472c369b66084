import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.topk import stable_topk


@given(st.data())
def test_it_is_the_beginning_of_a_stable_sort(data):
    rows, positions = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 60))
    count = data.draw(st.integers(1, positions))
    few = st.sampled_from([-torch.inf, -2.0, -1.0, 0.0])  # many are equal
    ids = [data.draw(st.lists(few, min_size=positions, max_size=positions)) for _ in range(rows)]
    values, indices = stable_topk(torch.tensor(ids), count)
    for row, actual, which in zip(ids, values.tolist(), indices.tolist(), strict=True):
        assert which == sorted(range(positions), key=lambda position: -row[position])[:count]
        assert actual == [row[position] for position in which]


def test_equals_come_in_the_order_of_their_places():
    values, indices = stable_topk(torch.zeros(2, 1000), 3)
    assert (values.tolist(), indices.tolist()) == ([[0.0] * 3] * 2, [[0, 1, 2]] * 2)


def test_no_number_comes_first():  # NaN sorts first, where it is noticed
    values, _ = stable_topk(torch.tensor([[0.0, torch.nan, 5.0, 1.0, 2.0]]), 2)
    assert values[0].isnan().tolist() == [True, False]
