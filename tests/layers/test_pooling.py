"""Pooling, compared with values computed by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.attention.scores import SCORES
from regard.attention.watch import watch
from regard.errors import RegardError
from regard.layers.pooling import POOLINGS, Pooling

STATES = torch.tensor([
    [[1.0, -2.0, 3.0, 4.0], [5.0, 0.0, -1.0, 8.0], [0.0, -4.0, 1.0, 0.0]],
    [[-1.0, -2.0, -3.0, -4.0], [9.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]],
    [[9.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]],
])  # fmt: skip
LENGTHS = torch.tensor([3, 1, 0])  # values of 9 are padding


@pytest.mark.parametrize(
    ("how", "bidirectional", "expected"),
    [
        ("sum", False, [6.0, -6.0, 3.0, 12.0]),
        ("mean", False, [2.0, -2.0, 1.0, 4.0]),
        ("max", False, [5.0, 0.0, 3.0, 8.0]),
        ("last", False, [0.0, -4.0, 1.0, 0.0]),
        ("last", True, [0.0, -4.0, 3.0, 4.0]),  # the second half read from the end, so is done at the first word
    ],
)
def test_plain_ways_by_hand(how, bidirectional, expected):
    pooled = Pooling(how, 4, bidirectional=bidirectional)(STATES, LENGTHS)
    assert pooled.tolist() == [expected, [-1.0, -2.0, -3.0, -4.0], [0.0] * 4]


def test_attention_is_the_mean_by_how_well_each_state_answers():
    torch.manual_seed(0)
    pool = Pooling("attention", 4, queries=2, score="dot")
    with torch.no_grad():
        pool.attention.values.weight.copy_(2 * torch.eye(4))  # so that a value is twice its state
        pool.queries.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]))
    assert pool.width == 8
    pooled = pool(STATES, LENGTHS)
    answers = torch.tensor([1.0, 5.0, 0.0]).exp()
    by_second = (answers / answers.sum()) @ (2 * STATES[0])
    assert_close(pooled[0], torch.cat([torch.tensor([4.0, -4.0, 2.0, 8.0]), by_second]))
    assert_close(pooled[1], torch.tensor([-2.0, -4.0, -6.0, -8.0] * 2))
    assert pooled[2].tolist() == [0.0] * 8


@pytest.mark.parametrize("project", [(), ("query", "keys", "values"), ("keys",)])
def test_query_keys_and_values_are_projected_as_told(project):
    torch.manual_seed(0)
    pool = Pooling("attention", 4, score="dot", project=project)
    maps = {
        name: getattr(pool.attention, name).weight if name in project else torch.eye(4)
        for name in ("query", "keys", "values")
    }
    scores = (STATES[0] @ maps["keys"].T) @ (maps["query"] @ pool.queries[0])
    assert_close(pool(STATES, LENGTHS)[0], scores.softmax(0) @ (STATES[0] @ maps["values"].T))
    assert len(list(pool.parameters())) == 1 + len(project)


def test_heads_look_each_at_a_part_of_its_own():
    pool = Pooling("attention", 4, heads=2, score="dot")
    with torch.no_grad():
        pool.attention.values.weight.copy_(torch.eye(4))
        pool.queries.copy_(torch.tensor([[10.0, 0.0, 0.0, 10.0]]))  # both halves: the second word answers best
    assert_close(pool(STATES[:1], LENGTHS[:1]), torch.tensor([[5.0, 0.0, -1.0, 8.0]]), atol=1e-6, rtol=0)


@given(
    st.sampled_from([(how, "additive", False) for how in POOLINGS] + [("attention", score, True) for score in SCORES]),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 99),
)
def test_padding_and_neighbors_change_nothing(way, lengths, more, seed):
    how, score, both = way
    torch.manual_seed(seed)
    pool = Pooling(how, 4, score=score, bidirectional=both).double().requires_grad_(False)
    states = torch.randn(len(lengths), max(lengths) + more, 4, dtype=torch.float64)
    together = pool(states, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        alone = pool(states[row : row + 1, :length], torch.tensor([length]))
        assert_close(together[row], alone[0])


@pytest.mark.parametrize("score", ["additive", "scaled_dot", "gaussian"])
def test_weights_sum_to_one_and_leave_padding_out(score):
    pool = Pooling("attention", 4, queries=2, heads=2, score=score)
    with watch(pool) as seen:
        pool(STATES, torch.tensor([3, 1, 2]))
    weights = seen["attention"][0].dense()
    assert weights.shape == (3, 2, 2, 3)  # texts, heads, queries, words
    assert_close(weights.sum(-1), torch.ones(3, 2, 2))
    assert weights[1, :, :, 1:].abs().max() == weights[2, :, :, 2].abs().max() == 0


@pytest.mark.parametrize("how", POOLINGS)
def test_gradients(how):
    torch.manual_seed(1)
    pool = Pooling(how, 2, queries=2).double()
    states = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 1, 0])
    assert torch.autograd.gradcheck(lambda x: pool(x, lengths), states)
    pool(states, lengths).pow(2).sum().backward()
    assert states.grad is not None
    assert states.grad[1, 1:].abs().max() == states.grad[2].abs().max() == 0
    for name, parameter in pool.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_what_is_refused():
    with pytest.raises(RegardError, match=r'^unknown pooling "men"; did you mean "mean"\?$'):
        Pooling("men", 4)
    with pytest.raises(RegardError, match=r"^Pooling: queries must be at least 1, got 0$"):
        Pooling("attention", 4, queries=0)
    with pytest.raises(
        RegardError, match=r"^SourceAttention: the width of query must be divisible by heads, got 4 and 3$"
    ):
        Pooling("attention", 4, heads=3)
