import math

import jaxtyping
import pytest
import torch

from regard import RegardError, attend, causal
from regard.attention.inputs import prepare_bias, prepare_inputs
from regard.attention.normalizers import Softmax

from .cases import tensors


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 6), (7, 6), (6, 3)), "attend: keys and values must have the same length, got 7 and 6"),
        (
            ((2, 4, 6), (3, 7, 6), (3, 7, 3)),
            "attend: the leading axes of query, keys and values do not broadcast: (2,), (3,), (3,)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_said(shapes, message):
    with pytest.raises(RegardError) as error:
        prepare_inputs(*(torch.zeros(shape) for shape in shapes), None)
    assert str(error.value) == message


def test_types_that_differ_are_said():
    query, keys, values = tensors()
    with pytest.raises(RegardError) as error:
        attend(query.float(), keys, values)
    assert str(error.value) == "attend: query, keys and values must have the same type, got float32, float64, float64"


def test_a_bias_of_true_and_false_is_said():
    with pytest.raises(RegardError) as error:
        prepare_bias(torch.ones(4, 7, dtype=torch.bool), Softmax(), None, torch.zeros(4, 6), torch.Size((4, 7)))
    assert str(error.value) == "bias must have a float type, got bool; use visible to choose which keys may be seen"


def test_a_bias_that_is_no_tensor_is_said(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        attend(*tensors(), bias=1.0)
    assert str(error.value) == "bias must be a tensor, got float"


@pytest.mark.parametrize("path", ["sdpa", "tiled", "reference"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("hidden", [-1e9, -1e4, torch.finfo(torch.float32).min, 1e9])
def test_a_row_that_a_large_bias_moves_is_as_exact_as_the_others(path, normalizer, hidden):
    if path == "sdpa" and normalizer != "softmax":
        pytest.skip("the fused operators know softmax alone")
    inputs = [tensor.float() for tensor in tensors(2, n=5, m=300, spread=1.0)]
    bias = torch.zeros(5, 300)
    bias[3] = hidden
    bias[4, :100] = -1e9

    def answer(*tensors, **options):
        leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
        output, weights = attend(*leaves, normalizer=normalizer, return_weights=True, **options)
        gradients = torch.autograd.grad(output.sin().sum(), leaves)
        return output, weights.dense(), weights.received(), *gradients

    results = answer(*inputs, bias=bias, path=path)
    shifted = bias.double()  # by hand: a constant added to all scores of a row changes nothing
    shifted[3] -= hidden
    exact = answer(*(tensor.double() for tensor in inputs), bias=shifted, path="reference")
    torch.testing.assert_close([tensor.double() for tensor in results], list(exact), rtol=1e-4, atol=1e-5)


def test_a_bias_that_is_moved_has_its_own_gradient():
    query, keys, values = tensors(n=3, m=5)
    deep = torch.randn(3, 5, dtype=torch.float64) - torch.tensor([[0.0], [500.0], [0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda bias: attend(query, keys, values, bias=bias, path="tiled"), deep.requires_grad_()
    )


def test_without_a_normalizer_a_large_bias_counts_as_it_is():
    query, keys, values = tensors(n=3, m=5)
    output = attend(query, keys, values, "dot", bias=torch.full((3, 5), -1e3), normalizer="none")
    torch.testing.assert_close(output, (query @ keys.mT - 1e3) @ values)


@pytest.mark.parametrize("path", ["sdpa", "tiled", "reference"])
@pytest.mark.parametrize("beyond", [math.nan, math.inf, -math.inf, 1e9])
def test_a_bias_of_a_key_that_may_not_be_seen_counts_for_nothing(path, beyond):
    query, keys, values = (tensor.float() for tensor in tensors(n=5, m=5))
    bias = torch.randn(5, 5)
    expected = attend(query, keys, values, visible=causal(), bias=bias, path=path)
    bias[:2, 4] = beyond
    torch.testing.assert_close(attend(query, keys, values, visible=causal(), bias=bias, path=path), expected)


@pytest.mark.parametrize("axes", [(2, 3, 5, 5), (2, 3, -1, 5), (2, 3, 5, -1)])
def test_an_expanded_bias_is_not_copied_out(axes):
    small = torch.randn(*(1 if size in (2, 3) else 5 for size in axes))
    if -1 in axes:
        small = small.narrow(axes.index(-1), 0, 1)
    wide = (small - 1e9).expand(2, 3, 5, 5)
    prepared = prepare_bias(wide, Softmax(), None, torch.zeros(2, 3, 5, 6), torch.Size((2, 3, 5, 5)))
    assert prepared is not None
    assert prepared.shape == small.shape
