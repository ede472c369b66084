import math

import numpy as np
import pytest
import torch

from regard import RegardError, attend, causal, window
from regard.attention import DenseWeights
from regard.attention.analysis import MEASURES, measure_heads

from .cases import tensors

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
