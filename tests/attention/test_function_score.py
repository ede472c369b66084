"""Functions as scores, against the built-in scores that compute the same."""

from functools import partial

import jaxtyping
import pytest
import torch

from regard import RegardError, attend
from regard.attention import build_score, causal
from regard.attention.kernels import reference
from regard.layers import MultiHeadAttention
from tests.gradients import gradcheck

from .cases import WIDTH, tensors

PATHS = ["tiled", "reference"]


def dot(query, keys):
    return query @ keys.mT


@pytest.fixture
def in_tiles(monkeypatch):
    """No matrix is small enough to be computed at once by default."""
    monkeypatch.setattr(reference, "SMALL", 0)


@pytest.mark.parametrize("path", [*PATHS, None])
@pytest.mark.parametrize("score", [lambda q, k: q @ k.mT, dot, partial(torch.einsum, "...nd,...md->...nm")])
def test_a_function_is_a_score(score, path):
    query, keys, values = tensors(2)
    expected, weights = attend(query, keys, values, "dot", visible=causal(), return_weights=True)
    out, own = attend(query, keys, values, score, visible=causal(), path=path, return_weights=True)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(own.dense(), weights.dense())
    torch.testing.assert_close(own.top(2), weights.top(2))
    torch.testing.assert_close(own[..., 1:3, :], weights[..., 1:3, :])


def test_its_weights_are_computed_on_demand_in_parts(in_tiles, monkeypatch):
    monkeypatch.setitem(__import__("regard.attention.call", fromlist=["x"]).TILE_NUMBERS, "cpu", 2**10)
    query, keys, values = tensors(n=600, m=700)
    shapes = []

    def watched(q, k):
        shapes.append((q.shape[-2], k.shape[-2]))
        return q @ k.mT

    _, weights = attend(query, keys, values, watched, return_weights=True)
    assert len(shapes) > 2
    assert max(n * m for n, m in shapes) < 600 * 700
    shapes.clear()
    torch.testing.assert_close(weights[5:6].sum(-1), torch.ones(1, dtype=torch.float64))
    assert {n for n, _ in shapes} == {1}


@pytest.mark.parametrize("path", PATHS)
def test_gradients_are_those_of_differences(path):
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, n=3, m=4))

    def run(*inputs):
        out, weights = attend(*inputs, lambda q, k: (q @ k.mT).tanh(), path=path, return_weights=True)
        return out, weights[..., :2]

    assert gradcheck(run, (query, keys, values))


def test_closed_over_tensors_get_their_gradients(in_tiles):
    query, keys, values = tensors(2, n=3, m=4)
    matrix = torch.randn(WIDTH, WIDTH, dtype=torch.float64, requires_grad=True)

    def run(matrix, query):
        doubled = 2 * matrix  # not a leaf
        out, weights = attend(query, keys, values, lambda q, k: q @ doubled @ k.mT, return_weights=True)
        return out, weights.dense()

    assert gradcheck(run, (matrix, query.requires_grad_()))


def test_closed_over_modules_learn_as_parameters_of_a_score_do(in_tiles):
    query, keys, values = tensors(2)
    score = build_score("bilinear", WIDTH, WIDTH).double()
    attend(query, keys, values, score).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in score.parameters()]
    score.zero_grad()
    attend(query, keys, values, lambda q, k: score(q, k)).square().sum().backward()
    assert expected
    for parameter, gradient in zip(score.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


class Scaled(torch.nn.Module):
    """A module of another kind than `Score`."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, query, keys):
        return self.scale * query @ keys.mT


def test_a_module_runs_in_tiles_with_the_gradients_of_its_parameters():
    query, keys, values = tensors(2)
    gradients = []
    for path in PATHS:
        module = Scaled()
        out = attend(query, keys, values, module, path=path)
        torch.testing.assert_close(out, attend(query * 0.3, keys, values, "dot"))
        out.square().sum().backward()
        gradients.append(module.scale.grad)
    torch.testing.assert_close(*gradients)


def test_weights_are_refused_after_a_change_of_what_a_function_closes_over():
    query, keys, values = tensors()
    scale = torch.tensor(2.0, dtype=torch.float64)
    _, weights = attend(query, keys, values, lambda q, k: scale * q @ k.mT, path="tiled", return_weights=True)
    scale.mul_(2)
    with pytest.raises(RegardError, match=r"^weights: query, keys, visible, bias, sink or parameters were"):
        weights.dense()


def test_a_layer_takes_a_function():
    torch.manual_seed(0)
    plain, own = MultiHeadAttention(8, 2, score="dot"), MultiHeadAttention(8, 2, score=dot)
    own.load_state_dict(plain.state_dict())
    states = torch.randn(2, 5, 8)
    torch.testing.assert_close(own(states, states, states), plain(states, states, states))


@pytest.mark.parametrize(
    ("score", "path", "message"),
    [
        (lambda q, k: q, None, "score function <lambda>: scores must have shape (*batch, queries, keys) = (2, 4, 7), "
         "got (2, 4, 6)"),
        (lambda q, k: (q @ k.mT).mT, None,
         "score function <lambda>: scores must have shape (*batch, queries, keys) = (2, 4, 7), got (2, 7, 4)"),
        (lambda q, k: 1.0, None, "score function <lambda>: scores must be a float tensor, got float"),
        (lambda q, k: (q @ k.mT) > 0, None, "score function <lambda>: scores must be a float tensor, got bool"),
        (lambda: 1, None, "score function <lambda>: expected a function of (query, keys), got ()"),
        (lambda q, k, mask: q, None,
         "score function <lambda>: expected a function of (query, keys), got (q, k, mask)"),
    ],
)  # fmt: skip
def test_what_a_function_must_return_is_one_line(score, path, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    query, keys, values = tensors(2)
    with pytest.raises(RegardError) as error:
        attend(query, keys, values, score, path=path)
    assert str(error.value) == message


def test_tiles_are_refused_where_they_would_lose_a_gradient():
    query, keys, values = tensors(2)
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RegardError) as error:
        attend(query, keys, values, lambda q, k: scale * q @ k.mT, path="tiled")
    assert "score function <lambda> closes over tensors that need a gradient" in str(error.value)
    with torch.no_grad():
        attend(query, keys, values, lambda q, k: scale * q @ k.mT, path="tiled")
