import pytest
import torch

from regard import RegardError
from regard.attention.analysis import previous, span
from regard.attention.join_steps import CallShape, Extent, join_calls, locate_steps

PROMPT, STEP = torch.tensor([[1.0, 0.0], [0.25, 0.75]]), torch.tensor([[0.5, 0.5]])
EXTENTS = [Extent(0, 2), Extent(1, 3)]  # of the second step, the cache dropped key 0


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


def test_measures_are_joined_along_the_queries():
    calls = [(torch.tensor([0.1, 0.2]), PROMPT), (torch.tensor([0.3]), STEP)]
    joined = join_calls((previous(), "dense"), calls, EXTENTS)
    torch.testing.assert_close(joined[0], torch.tensor([0.1, 0.2, 0.3]))
    torch.testing.assert_close(joined[1], join_calls("dense", [PROMPT, STEP], EXTENTS))
    with pytest.raises(RegardError) as error:
        join_calls(span(0, 2), [torch.ones(2), torch.ones(1)], EXTENTS)
    assert str(error.value) == (
        "join_steps: the cache dropped keys, so span(0, 2) is not about the same keys in all calls"
    )


def test_one_call_is_what_it_was():
    assert join_calls("dense", [PROMPT], EXTENTS[:1]) is PROMPT


def shape_calls(*shapes, last_keys=(), seen=()):
    keys = [torch.tensor([float(key)]) for key in last_keys] or [None] * len(shapes)
    masks = [torch.arange(shape[-1]) < count for shape, count in zip(shapes, seen, strict=True)] if seen else keys
    masks = masks if seen else [None] * len(shapes)
    return [CallShape(torch.Size(one), mask, key) for one, mask, key in zip(shapes, masks, keys, strict=True)]


@pytest.mark.parametrize(
    ("calls", "extents"),
    [
        (shape_calls((3, 3), (1, 4), (1, 5)), [(0, 3), (0, 4), (0, 5)]),  # a prompt, then tokens
        (shape_calls((3, 3), (2, 5)), [(0, 3), (0, 5)]),  # a prompt in two parts
        (shape_calls((3, 3), (1, 2), (1, 2), last_keys=(0, 1, 2)), [(0, 3), (2, 4), (3, 5)]),  # with a window of two
        (shape_calls((1, 7), (1, 7), last_keys=(4, 4)), [(0, 7), (0, 7)]),  # over a source
        (shape_calls((1, 7), (1, 7)), [(0, 7), (0, 7)]),
        (shape_calls((3, 9), (1, 9), (1, 9), seen=(3, 4, 5)), [(0, 3), (0, 4), (0, 5)]),  # with unused slots
    ],
)
def test_steps_continue_each_other(calls, extents):
    assert locate_steps("here", calls) == [Extent(*extent) for extent in extents]


@pytest.mark.parametrize(
    "calls",
    [
        shape_calls((3, 3), (4, 4)),  # without a cache
        shape_calls((1, 7), (2, 7)),  # the same, over a source
        shape_calls((1, 4), (1, 1)),  # another text
        shape_calls((1, 4), (1, 6)),  # a step is missing
        shape_calls((5, 5), (5, 5)),  # the same text again
    ],
)
def test_other_calls_do_not(calls):
    with pytest.raises(RegardError, match=r"^here: call 2 does not continue the previous one: . queries and keys"):
        locate_steps("here", calls)
