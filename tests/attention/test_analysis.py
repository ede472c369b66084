import math

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard import RegardError, attend, causal, watch, window
from regard.attention import DenseWeights
from regard.attention.analysis import MEASURES, induction, measure_heads, previous, rollout, sink, span
from regard.attribution.explanation import rollout as dense_rollout
from regard.layers import MultiHeadAttention

from .cases import make_score, tensors

TOKENS = [[3, 1, 2, 3, 1, 1, 2, 3, 9], [5, 5, 5, 5, 6, 7, 8, 6, 7]]


def measure_by_loops(matrix, tokens, rows):
    """The measures of one head by their definitions, pair by pair."""
    values = {name: [] for name in MEASURES}
    for i in rows:
        row, keys = matrix[i], range(len(tokens))
        values["entropy"].append(-sum(w * math.log(w) for w in row if w > 0))
        values["distance"].append(sum(row[j] * abs(i - j) for j in keys) / sum(row))
        if i > 0:
            values["first"].append(row[0])
            values["previous"].append(row[i - 1])
        if tokens[i] in tokens[:i]:
            values["induction"].append(sum(row[j] for j in range(1, i + 1) if tokens[j - 1] == tokens[i]))
        if i + 1 < len(tokens) and tokens[i + 1] in tokens[: i + 1]:
            best = int(np.argmax(row))
            values["retrieval"].append(float(best <= i and tokens[best] == tokens[i + 1]))
    return {name: np.mean(numbers) for name, numbers in values.items()}


@pytest.mark.parametrize("rule", [causal(), window(2, 2), None])
@pytest.mark.parametrize("queries", [None, 4])
def test_measures_follow_their_definitions(rule, queries, monkeypatch):
    monkeypatch.setattr("regard.attention.analysis.AT_ONCE", {"cpu": 100, "cuda": 100})  # blocks of one or two rows
    query, keys, values = tensors(2, 3, n=9, m=9, spread=3.0)
    weights = attend(query, keys, values, visible=rule, path="sdpa", return_weights=True)[1]
    measured = measure_heads(weights, torch.tensor(TOKENS), queries=queries)
    assert list(measured) == list(MEASURES)
    dense = torch.softmax(
        torch.where(torch.ones(9, 9).bool() if rule is None else rule.tile(slice(0, 9), slice(0, 9), weights.shape,
                    query.device), query @ keys.mT / 6**0.5, -math.inf), -1).numpy()  # fmt: skip
    rows = range(9) if queries is None else [0, 3, 5, 8]
    for text, head in np.ndindex(2, 3):
        expected = measure_by_loops(dense[text, head], TOKENS[text], rows)
        for name, number in expected.items():
            assert measured[name][text, head].item() == pytest.approx(number), name


def test_heads_that_do_one_thing_by_hand():
    tokens, n = torch.tensor([7, 8, 9, 7, 8, 9]), 6
    previous = torch.zeros(n, n).index_put((torch.arange(n), torch.tensor([0, 0, 1, 2, 3, 4])), torch.tensor(1.0))
    induction = torch.zeros(n, n).index_put((torch.arange(n), torch.tensor([0, 0, 0, 1, 2, 3])), torch.tensor(1.0))
    measured = measure_heads(DenseWeights(torch.stack([previous, induction])), tokens)
    assert measured["previous"].tolist() == [1, pytest.approx(0.2)]  # only the second row of five
    assert measured["induction"].tolist() == [0, 1]
    assert measured["retrieval"].tolist() == [0, 1]  # rows 2 to 4 know what comes next
    assert measured["first"].tolist() == [pytest.approx(0.2), pytest.approx(0.4)]
    assert measured["entropy"].tolist() == [0, 0]
    assert measured["distance"].tolist() == [pytest.approx(5 / 6), pytest.approx((1 + 2 + 2 + 2 + 2) / 6)]


def test_what_is_undefined_is_not_a_number():
    weights = DenseWeights(torch.full((1, 4, 4), 0.25))
    assert measure_heads(weights, torch.arange(4))["induction"].isnan().all()  # no token occurs twice
    assert list(measure_heads(weights)) == ["entropy", "first", "previous", "distance"]
    last = measure_heads(
        DenseWeights(torch.full((1, 1, 4), 0.25)), torch.tensor([1, 2, 1, 1])
    )  # one query, with a cache
    assert last["distance"].item() == pytest.approx((3 + 2 + 1) / 4)
    assert (last["induction"].item(), last["retrieval"].isnan().item()) == (pytest.approx(0.5), True)


def test_what_does_not_fit_is_said():
    for shape, tokens, message in (
        ((2, 3, 2), None, "measure_heads: expected weights of self-attention, got shape (2, 3, 2)"),
        ((2, 3, 3), torch.arange(4), "measure_heads: expected one token for each of 3 keys, got 4"),
    ):
        with pytest.raises(RegardError) as error:
            measure_heads(DenseWeights(torch.ones(shape)), tokens)
        assert str(error.value) == message


@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_the_attention_to_a_span_is_its_sum(name):
    query, keys, values = tensors(2, 3, n=70, m=90)
    weights = attend(query, keys, values, make_score(name), visible=causal(), path="tiled", return_weights=True)[1]
    matrix = weights.dense().detach()
    for start, stop in ((3, 9), (-4, None), (0, 0), (80, 200)):
        torch.testing.assert_close(span(start, stop)(weights).detach(), matrix[..., start:stop].sum(-1))
    torch.testing.assert_close(sink()(weights).detach(), matrix[..., 0])
    torch.testing.assert_close(sink(4)(weights).detach(), matrix[..., :4].sum(-1))


@given(st.integers(1, 200), st.integers(0, 100))
def test_the_attention_to_the_token_before_is_next_to_the_diagonal(n, more):
    torch.manual_seed(n)
    matrix = torch.rand(2, n, n + more)
    measured = previous()(DenseWeights(matrix))
    assert measured.shape == (2, n)
    for row in range(n):
        before = row + more - 1
        assert measured[:, row].isnan().all() if before < 0 else torch.equal(measured[:, row], matrix[:, row, before])


def test_measures_of_queries_have_the_measures_of_heads_as_means():
    query, keys, values = tensors(2, 3, n=9, m=9, spread=3.0)
    weights = attend(query, keys, values, visible=causal(), path="sdpa", return_weights=True)[1]
    measured = measure_heads(weights, torch.tensor(TOKENS))
    torch.testing.assert_close(previous()(weights).nanmean(-1), measured["previous"])
    torch.testing.assert_close(induction(torch.tensor(TOKENS))(weights).nanmean(-1), measured["induction"])
    torch.testing.assert_close(sink()(weights)[..., 1:].mean(-1), measured["first"])
    assert repr([sink(3), previous(), span(2, 5)]) == "[sink:3, previous, span(2, 5)]"


def test_rollout_by_hand():
    first, second = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    layers = [DenseWeights(first), DenseWeights(second)]
    # of token 1, half stays and half goes 1/4 and 3/4: (1/8, 7/8); then 7/8 keeps 3/4 of itself and gives 1/4
    torch.testing.assert_close(rollout(layers), torch.tensor([1 / 8 + 7 / 32, 21 / 32]))
    torch.testing.assert_close(rollout(layers, 0), torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(rollout(layers, residual=0.0), torch.tensor([0.25 + 0.375, 0.375]))
    torch.testing.assert_close(rollout(layers, residual=1.0), torch.tensor([0.0, 1.0]))


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.data())
def test_rollout_is_a_row_of_the_dense_one(layers, tokens, batch, heads, is_causal, data):
    torch.manual_seed(layers + 10 * tokens)
    visible = causal() if is_causal else None
    weights = []
    for _ in range(layers):
        query, keys = torch.randn(2, batch, heads, tokens, 4, dtype=torch.float64)
        weights.append(attend(query, keys, keys, visible=visible, path="sdpa", return_weights=True)[1])
    position = data.draw(st.integers(-tokens, tokens - 1))
    rolled = rollout(weights, position)
    assert rolled.shape == (batch, tokens)
    torch.testing.assert_close(rolled.sum(-1), torch.ones(batch, dtype=torch.float64))
    for text in range(batch):
        dense = np.stack([layer.dense()[text].mean(0).numpy() for layer in weights])
        np.testing.assert_allclose(rolled[text], dense_rollout(dense)[position], atol=1e-12)


class Reader(nn.Module):
    """Two layers of causal self-attention: one of regard, one of torch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = MultiHeadAttention(8, 2), nn.MultiheadAttention(8, 4, batch_first=True)

    def forward(self, x):
        x = x + self.first(x, visible=causal())
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return x + self.second(x, x, x, attn_mask=hidden, need_weights=False)[0]


def test_rollout_of_a_watched_model():
    torch.manual_seed(0)
    model, x = Reader().eval(), torch.randn(3, 20, 8)
    with watch(model) as recording:
        model(x)
    first, second = (calls[0].dense().mean(1) for calls in recording.values())
    assert list(recording) == ["first", "second"]
    expected = (second[:, -1:] + torch.eye(20)[-1:]) / 2 @ (first + torch.eye(20)) / 2
    torch.testing.assert_close(rollout(recording), expected[:, 0])
    with watch(model, grad=True) as recording:
        model(x)
    rollout(recording)[:, 3].sum().backward()
    assert model.first.query.weight.grad.any()


def test_what_cannot_be_rolled_out_is_said(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    square, wide = DenseWeights(torch.ones(2, 4, 4) / 4), DenseWeights(torch.ones(2, 3, 4) / 4)
    shapes = "(2, 4, 4), (2, 3, 4)"
    for layers, position, message in (
        ([], -1, "rollout: expected the weights of at least one layer, got none"),
        ([square, wide], -1, f"rollout: expected self-attention over the same tokens in all layers, got {shapes}"),
        ([square], 4, "rollout: position must be that of one of 4 tokens, got 4"),
        (
            {"a": [square, square]},
            -1,
            "rollout: 'a' has 2 calls; watch one pass, or pass the weights of each layer",
        ),
        ({"a": [torch.ones(4, 4)]}, -1, 'rollout: expected Weights, got Tensor; watch with keep="all"'),
    ):
        with pytest.raises(RegardError) as error:
            rollout(layers, position)
        assert str(error.value) == message


def test_a_share_of_the_residual_connection_is_at_most_one():
    with pytest.raises(RegardError) as error:
        rollout([DenseWeights(torch.eye(2))], residual=1.5)
    assert str(error.value) == "rollout: residual must be at least 0 and at most 1, got 1.5"


def test_a_span_that_is_none_is_said(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for ask, message in (
        (lambda: span("a"), "span: start must be an integer, got 'a'"),
        (lambda: span(1, 2.5), "span: stop must be an integer, got 2.5"),
        (lambda: sink(True), "sink: expected a positive number of tokens, got True"),
    ):
        with pytest.raises(RegardError) as error:
            ask()
        assert str(error.value) == message
