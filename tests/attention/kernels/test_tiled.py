"""The tiled path, with tiles small enough to test all of their edges."""

import pytest
import torch

from regard import attend, causal, window
from regard.attention.call import Call
from regard.attention.gradients import GradientSums

from ..cases import FINITE, NAMES, STEPS, make_score, tensors


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(Call, "tile_size", lambda self: (2, 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", [None, causal(), window(1, 1)], ids=["all", "causal", "window"])
@pytest.mark.parametrize("normalizer", ["softmax", "entmax15", "none"])
def test_tiles_equal_the_reference_gradients_included(name, rule, normalizer):
    if (normalizer == "entmax15" and name in [*FINITE, "hard"]) or (normalizer == "none" and name == "hard"):
        pytest.skip("not offered")
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, n=7, m=7))
    score = make_score(name)
    expected = [query, keys, values, *(p for p in score.parameters() if p.requires_grad)]
    results = []
    for path in ("reference", "tiled"):
        out, weights = attend(
            query, keys, values, score, visible=rule, normalizer=normalizer, path=path, return_weights=True
        )
        loss = out.square().sum() + weights[..., 1:4, 2:].square().sum()
        gradients = torch.autograd.grad(loss, expected, allow_unused=name in STEPS, materialize_grads=name in STEPS)
        answers = (
            weights.reduce("received") if normalizer == "none" else weights.reduce("received", "entropy", "argmax")
        )
        results.append((out, weights.dense(), *gradients, *answers))
    torch.testing.assert_close(results[1], results[0])


def test_only_tiles_within_reach_are_computed(monkeypatch):
    met = []
    plain = Call.tile
    monkeypatch.setattr(Call, "tile", lambda self, rows, cols: met.append((rows, cols)) or plain(self, rows, cols))
    query, keys, values = tensors(n=60, m=60)
    attend(query, keys, values, make_score("additive"), visible=window(2, 0), path="tiled")
    assert len(met) == 59  # 30 blocks of two rows, each reaching four keys (the first two): two tiles, the first one
    assert all(cols.start >= rows.start - 2 and cols.stop <= rows.stop for rows, cols in met)


def test_parameters_swapped_for_a_call_are_those_of_its_backward():
    query, keys, values = tensors()
    score = make_score("additive")
    other = {name: torch.randn_like(value, requires_grad=True) for name, value in score.named_parameters()}

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.score = score

        def forward(self, path):
            return attend(query, keys, values, self.score, path=path)

    gradients = []
    for path in ("reference", "tiled"):
        out = torch.func.functional_call(Layer(), {f"score.{name}": value for name, value in other.items()}, (path,))
        gradients.append(torch.autograd.grad(out.square().sum(), list(other.values())))
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("name", ["boxcar", "exact", "hard"])
def test_backward_does_no_work_for_what_learns_nothing(name, monkeypatch):
    query, keys, values = tensors(2)
    score = make_score(name)
    walked = []
    plain = GradientSums.tile
    monkeypatch.setattr(GradientSums, "tile", lambda self, *where: walked.append(plain(self, *where)) or walked[-1])
    out, weights = attend(query.requires_grad_(), keys, values, score, path="tiled", return_weights=True)
    assert not torch.autograd.grad(out.sum() + weights.dense().square().sum(), query)[0].any()
    assert walked == []  # no tile is recomputed
    out = attend(query, keys, values.requires_grad_(), score, path="tiled")
    (gradient,) = torch.autograd.grad(out.square().sum(), values)
    assert [pull for _, pull in walked] == [None] * len(walked)  # only the weights, for the gradient of the values
    again = attend(query, keys, values, score, path="reference")
    torch.testing.assert_close(gradient, torch.autograd.grad(again.square().sum(), values)[0])
