import pytest
import torch

from regard import RegardError
from regard.attention.join_steps import Extent, check_steps, join_calls

PROMPT, STEP = torch.tensor([[1.0, 0.0], [0.25, 0.75]]), torch.tensor([[0.5, 0.5]])
EXTENTS = [Extent(torch.Size((2, 2)), 0), Extent(torch.Size((1, 2)), 1)]  # of the second step, the cache dropped key 0


@pytest.mark.parametrize(
    ("name", "calls", "expected"),
    [
        ("dense", [PROMPT, STEP], [[1, 0, 0], [0.25, 0.75, 0], [0, 0.5, 0.5]]),
        ("received", [PROMPT.sum(0), STEP.sum(0)], [1.25, 1.25, 0.5]),
        ("entropy", [torch.tensor([0.0, 0.5]), torch.tensor([0.7])], [0.0, 0.5, 0.7]),
        ("argmax", [torch.tensor([0, 1]), torch.tensor([1])], [0, 1, 2]),
        ("argmax", [torch.tensor([0, -1]), torch.tensor([-1])], [0, -1, -1]),
    ],
)
def test_columns_are_positions_of_all_keys(name, calls, expected):
    torch.testing.assert_close(join_calls(name, calls, EXTENTS), torch.tensor(expected))


def test_the_top_ones_are_filled_up_where_a_call_has_fewer():
    first = torch.tensor([[1.0], [0.75]]), torch.tensor([[0], [1]])
    second = torch.tensor([[0.6, 0.4]]), torch.tensor([[1, 0]])
    values, indices = join_calls("top:2", [first, second], EXTENTS)
    torch.testing.assert_close(values, torch.tensor([[1.0, 0.0], [0.75, 0.0], [0.6, 0.4]]))
    assert indices.tolist() == [[0, -1], [1, -1], [2, 1]]


def test_one_call_is_what_it_was():
    assert join_calls("dense", [PROMPT], EXTENTS[:1]) is PROMPT


@pytest.mark.parametrize(
    "calls",
    [
        [((3, 3), 0), ((1, 4), 0), ((1, 5), 0)],  # a prompt, then tokens
        [((3, 3), 0), ((2, 5), 0)],  # a prompt in two parts
        [((3, 3), 0), ((1, 2), 2), ((1, 2), 3)],  # with a window of two
        [((1, 7), 0), ((1, 7), 0)],  # over a source
    ],
)
def test_steps_continue_each_other(calls):
    check_steps("here", [Extent(torch.Size(shape), first) for shape, first in calls])


@pytest.mark.parametrize(
    "calls",
    [
        [((3, 3), 0), ((4, 4), 0)],  # without a cache
        [((1, 7), 0), ((2, 7), 0)],  # the same, over a source
        [((1, 4), 0), ((1, 1), 0)],  # another text
        [((1, 4), 0), ((1, 6), 0)],  # a step is missing
    ],
)
def test_other_calls_do_not(calls):
    extents = [Extent(torch.Size(shape), first) for shape, first in calls]
    with pytest.raises(RegardError, match=r"^here: call 2 does not continue the previous one: . queries and keys"):
        check_steps("here", extents)
