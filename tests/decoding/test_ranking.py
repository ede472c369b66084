import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.ranking import greatest


@given(st.data())
def test_it_is_the_beginning_of_a_stable_sort(data):
    rows, places = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 60))
    count = data.draw(st.integers(1, places))
    few = st.sampled_from([-torch.inf, -2.0, -1.0, 0.0])  # many are equal
    numbers = [data.draw(st.lists(few, min_size=places, max_size=places)) for _ in range(rows)]
    values, indices = greatest(torch.tensor(numbers), count)
    for row, found, which in zip(numbers, values.tolist(), indices.tolist(), strict=True):
        assert which == sorted(range(places), key=lambda place: -row[place])[:count]
        assert found == [row[place] for place in which]


def test_equals_come_in_the_order_of_their_places():
    values, indices = greatest(torch.zeros(2, 1000), 3)
    assert (values.tolist(), indices.tolist()) == ([[0.0] * 3] * 2, [[0, 1, 2]] * 2)


def test_no_number_comes_first():  # where it is noticed
    values, _ = greatest(torch.tensor([[0.0, torch.nan, 5.0, 1.0, 2.0]]), 2)
    assert values[0].isnan().tolist() == [True, False]
