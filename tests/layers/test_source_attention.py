import math
from dataclasses import replace

import pytest
import torch

from regard import RegardError, causal, watch
from regard.attention.scores import SCORES
from regard.layers import source_attention
from regard.layers.source_attention import COMPOSITIONS, Composition, SourceAttention


def test_the_plain_dot_product_is_what_it_was_taught_to_be():
    attention = SourceAttention(2, 2)
    assert not list(attention.parameters())
    states = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    memory = attention.remember(states, torch.tensor([2]))  # the third is padding
    output = attention(torch.tensor([[[math.log(3), 0.0]]]), memory)
    torch.testing.assert_close(output, torch.tensor([[[0.75, 0.25]]]))  # softmax of log 3 and 0


def test_heads_are_attentions_of_their_own():
    torch.manual_seed(1)
    both, one = SourceAttention(6, 4, "bilinear", 2), SourceAttention(3, 2, "bilinear")
    query, states = torch.randn(2, 5, 6), torch.randn(2, 7, 4)
    output = both(query, both.remember(states))
    for head in range(2):
        one.score.weight.data = both.score.weight.data[head]
        head_query, head_states = query[..., 3 * head :][..., :3], states[..., 2 * head :][..., :2]
        torch.testing.assert_close(output[..., 2 * head :][..., :2], one(head_query, one.remember(head_states)))


@pytest.mark.parametrize(
    ("project", "score", "shapes", "width"),
    [
        ((), "additive", {}, 8),
        ((), "dot", {"keys": (4, 8)}, 8),  # dot requires equal widths
        (("query",), "dot", {"query": (8, 4)}, 8),
        (("keys",), "bilinear", {"keys": (4, 8)}, 8),
        (("keys", "values"), "dot", {"keys": (4, 8), "values": (4, 8)}, 4),
        (("query", "keys", "values"), "dot", {"query": (4, 4), "keys": (4, 8), "values": (4, 8)}, 4),
    ],
)
def test_what_is_projected(project, score, shapes, width):
    attention = SourceAttention(4, 8, score, 2, project=project)
    assert attention.width == width
    shapes_by_name = {name: tuple(p.shape) for name, p in attention.named_parameters() if "score" not in name}
    assert shapes_by_name == {f"{name}.weight": shape for name, shape in shapes.items()}
    query, states = torch.randn(2, 3, 4), torch.randn(2, 5, 8)
    projected = {
        name: x @ getattr(attention, name).weight.mT if name in shapes else x
        for name, x in (("query", query), ("keys", states), ("values", states))
    }
    if score == "dot":
        q, k, v = (x.unflatten(-1, (2, -1)).transpose(1, 2) for x in projected.values())
        expected = ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)
        torch.testing.assert_close(attention(query, attention.remember(states)), expected)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("score", SCORES)
def test_many_looks_are_as_one(score, heads, monkeypatch):
    torch.manual_seed(2)
    attention = SourceAttention(4, 4, score, heads).double()
    query, states = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 4, dtype=torch.float64)
    states[:, 1] = query[:, 0]
    lengths = torch.tensor([5, 2])
    with watch(attention, "dense") as seen:
        expected = attention(query, attention.remember(states, lengths))
        for room in (2**26, 0):  # saved for backward, or recomputed
            monkeypatch.setattr(source_attention, "MAX_SAVED", room)
            memory = attention.remember(states, lengths, looks=3)
            output = torch.cat([attention(each, memory) for each in query.split(1, 1)], 1)
            torch.testing.assert_close(output, expected)
    (once, *steps) = seen[""]
    assert once.shape == (2, heads, 3, 5)
    assert not once[1, ..., 2:].any()
    torch.testing.assert_close(torch.cat(steps[:3], 2), once)


def test_small_looks_keep_what_large_ones_compute_again():
    attention = SourceAttention(4, 4, "additive")
    query, states = torch.randn(1, 1, 1, 4), torch.randn(1, 2**13, 4)
    assert attention.remember(states).choose_path(query) is None  # attend chooses
    assert (
        attention.remember(states, looks=2**13).choose_path(query) == "reference"
    )  # 2^13 calls on 2^13 keys of width 4
    assert attention.remember(states, looks=2**13 + 1).choose_path(query) is None
    with torch.no_grad():
        assert attention.remember(states, looks=2**13 + 1).choose_path(query) == "reference"


def test_a_rule_tells_what_each_query_sees_of_the_source():
    attention = SourceAttention(1, 1, "uniform")
    states = torch.tensor([[[2.0], [4.0], [9.0]], [[2.0], [4.0], [9.0]]])
    query = torch.zeros(2, 3, 1)
    output = attention(query, attention.remember(states), causal())
    assert output[0, :, 0].tolist() == [2, 3, 5]
    output = attention(query, attention.remember(states, torch.tensor([3, 1])), causal(strict=True))
    assert output[..., 0].tolist() == [[0, 2, 3], [0, 2, 2]]  # the second has one state, and two of padding


def test_weights_of_memory_that_is_written_again_are_made_at_once():
    torch.manual_seed(3)
    attention = SourceAttention(4, 4)
    query, states = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    expected = (query @ states.mT).softmax(-1)
    with watch(attention) as seen, torch.no_grad():
        attention(query, replace(attention.remember(states), lasts=False))
    states.zero_()
    torch.testing.assert_close(seen[""][0].dense()[0], expected)


def test_state_and_summary_are_composed():
    state, summary, embedded = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]), torch.tensor([7.0])
    assert Composition("join", 2, 2, 1)(state, summary, embedded).tolist() == [1, 2, 3, 5]
    assert Composition("sum", 2, 2, 1)(state, summary, embedded).tolist() == [4, 7]
    gate = Composition("gate", 2, 2, 1)
    gate.mix.weight.data.zero_()
    gate.mix.bias.data = torch.tensor([math.log(3), 0.0])  # gates of 3/4 and 1/2
    torch.testing.assert_close(gate(state, summary, embedded), torch.tensor([0.75 * 1 + 0.25 * 3, 0.5 * 2 + 0.5 * 5]))
    concat = Composition("concat", 2, 2, 1)
    concat.mix.weight.data = torch.tensor([[1.0, 0, -1, 0], [0, 0.1, 0, 0.2]])
    torch.testing.assert_close(concat(state, summary, embedded), torch.tensor([2.0, 0.9]).tanh())
    maxout = Composition("maxout", 2, 2, 1)
    maxout.mix.weight.data = torch.tensor([[0.0, 0, 0, 0, 1], [1, 1, 0, 0, 0]])  # the embedding, or both of the summary
    assert maxout(state, summary, embedded).tolist() == [8]


@pytest.mark.parametrize("how", sorted(COMPOSITIONS))
def test_state_and_summary_may_be_of_two_types_as_autocast_of_a_gpu_leaves_them(how):
    torch.manual_seed(4)
    compose = Composition(how, 4, 4, 2)
    state, summary, embedded = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 2)
    expected = compose(state, summary, embedded)
    output = compose(state.half(), summary.bfloat16(), embedded.bfloat16())
    torch.testing.assert_close(output.float(), expected, atol=0.03, rtol=0.03)


@pytest.mark.parametrize("how", ["sum", "gate"])
def test_a_wider_summary_is_projected(how):
    compose = Composition(how, 2, 4, 1)
    assert compose.project.weight.shape == (2, 4)
    assert compose(torch.zeros(3, 2), torch.ones(3, 4), torch.zeros(3, 1)).shape == (3, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SourceAttention(4, 4, heads=0), "SourceAttention: heads must be at least 1, got 0"),
        (
            lambda: SourceAttention(4, 4, heads=3),
            "SourceAttention: the width of query must be divisible by heads, got 4 and 3",
        ),
        (
            lambda: SourceAttention(4, 4, project=("key",)),
            'SourceAttention: unknown "key" in project; choose from query, keys, values',
        ),
        (lambda: Composition("gat", 2, 2, 1), 'unknown composition "gat"; did you mean "gate"?'),
    ],
)
def test_what_cannot_be_is_said(make, message):
    with pytest.raises(RegardError) as raised:
        make()
    assert str(raised.value) == message
