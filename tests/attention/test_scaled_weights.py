"""Weights times numbers of query and key, compared with the elementwise products of dense matrices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError, attend, causal
from tests.gradients import gradcheck

from .cases import make_score, tensors


def weights_and_values(name="scaled_dot", *, n=6, m=9, **settings):
    query, keys, values = tensors(2, 3, n=n, m=m)
    path = "sdpa" if name == "scaled_dot" else "tiled"
    return attend(query, keys, values, make_score(name), visible=causal(), path=path, return_weights=True, **settings)[
        1
    ], values


def check_matrix(scaled, matrix):
    """Compare everything that is defined for all scaled weights with their matrix."""
    torch.manual_seed(3)
    right, left = torch.randn(9, 4, dtype=matrix.dtype), torch.randn(2, 1, 6, 2, dtype=matrix.dtype)
    torch.testing.assert_close(scaled.dense(), matrix)
    torch.testing.assert_close(scaled[1, 2, 3:5], matrix[1, 2, 3:5])
    torch.testing.assert_close(scaled[..., 2, torch.tensor([4, 0])], matrix[..., 2, torch.tensor([4, 0])])
    torch.testing.assert_close(scaled @ right, matrix @ right)
    torch.testing.assert_close(scaled.mT @ left, matrix.mT @ left)
    torch.testing.assert_close(scaled @ torch.ones(9).double(), matrix.sum(-1))
    torch.testing.assert_close(scaled.received(), matrix.sum(-2).detach())
    torch.testing.assert_close(scaled.mean().dense(), matrix.mean(1))
    torch.testing.assert_close(scaled.mean().received(), matrix.mean(1).sum(-2).detach())
    for copy in (scaled.detach(), scaled.clone(), scaled.materialize(), scaled.to("cpu")):
        torch.testing.assert_close(copy.dense(), matrix)
        assert type(copy) is type(scaled)


@pytest.mark.parametrize("name", ["scaled_dot", "additive", "epanechnikov"])
def test_weights_times_norms_of_values_are_the_norms_of_weighted_values(name):
    weights, values = weights_and_values(name)
    vectors = weights.dense()[..., None] * values[..., None, :, :]  # (2, 3, queries, keys, width)
    scaled = weights.value_weighted(values)
    check_matrix(scaled, vectors.norm(dim=-1))
    (top, indices), best = scaled.reduce("top:4", "argmax")
    torch.testing.assert_close(top, vectors.norm(dim=-1).topk(4).values.detach())
    assert torch.equal(indices[..., 0][top[..., 0] > 0], best[best >= 0])


@pytest.mark.parametrize("width", [2, 3, 11])
@pytest.mark.parametrize("per_head", [True, False])
def test_an_output_matrix_turns_values_before_their_norm(width, per_head):
    weights, values = weights_and_values()
    matrix = torch.randn(*((3,) if per_head else ()), 3, width, dtype=torch.float64)
    vectors = weights.dense()[..., None] * (values @ matrix)[..., None, :, :]
    check_matrix(weights.value_weighted(values, matrix), vectors.norm(dim=-1))


def test_the_heads_of_a_linear_layer_are_its_columns():
    linear = torch.nn.Linear(3 * 3, 9, bias=False).double()
    weights, values = weights_and_values()
    scaled = weights.value_weighted(values, linear.weight.T.unflatten(0, (3, -1)))
    one_head = torch.zeros(2, 9, 3, 3, dtype=torch.float64)  # a value of the head 1 alone, through the whole layer
    one_head[:, :, 1] = values[:, 1]
    expected = weights.dense()[:, 1] * linear(one_head.flatten(-2)).norm(dim=-1)[:, None]
    torch.testing.assert_close(scaled[:, 1], expected)


@pytest.mark.parametrize("name", ["scaled_dot", "additive", "epanechnikov"])
@pytest.mark.parametrize("shared", [True, False])
def test_weights_times_their_gradient_have_the_gradient_of_autograd(name, shared):
    weights, values = weights_and_values(name)
    values = values[:, :1] if shared else values
    matrix = weights.dense().detach().requires_grad_()
    out = matrix @ values
    (of_out,) = torch.autograd.grad(out.square().sum(), out, retain_graph=True)
    (of_weights,) = torch.autograd.grad(out.square().sum(), matrix)
    check_matrix(weights.times_gradient(of_out, values), (matrix * of_weights).detach())


def test_scaled_weights_are_differentiable():
    query, keys, values = tensors(2, n=3, m=4)
    gradient = torch.randn(2, 3, 3, dtype=torch.float64)
    output_matrix = torch.randn(3, 5, dtype=torch.float64)

    def run(query, keys, values, gradient, output_matrix):
        weights = attend(query, keys, values, visible=causal(), path="sdpa", return_weights=True)[1]
        by_value, by_gradient = weights.value_weighted(values, output_matrix), weights.times_gradient(gradient, values)
        ones = torch.ones(4, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
        products = [(scaled @ ones[0], scaled.mT @ ones[1]) for scaled in (by_value, by_gradient)]
        return *products[0], *products[1], by_value[..., 1:, :2], by_gradient[..., 1, :]

    inputs = [tensor.requires_grad_() for tensor in (query, keys, values, gradient, output_matrix)]
    assert gradcheck(run, inputs, atol=1e-4)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_both_are_elementwise_products_for_all_shapes(n, m, heads, width, is_lazy):
    torch.manual_seed(n + 10 * m)
    query, keys, values = torch.randn(heads, n, 2), torch.randn(heads, m, 2), torch.randn(heads, m, width)
    gradient = torch.randn(n, width)
    path = "sdpa" if is_lazy else "reference"
    weights = attend(query, keys, values, path=path, return_weights=True)[1]
    matrix = torch.softmax(query @ keys.mT / 2**0.5, -1)
    by_value, by_gradient = weights.value_weighted(values), weights.times_gradient(gradient, values)
    torch.testing.assert_close(by_value.received(), (matrix * values.norm(dim=-1)[:, None]).sum(-2))
    torch.testing.assert_close(by_gradient.received(), (matrix * (gradient @ values.mT)).sum(-2))
    torch.testing.assert_close(by_gradient @ torch.ones(m), (matrix * (gradient @ values.mT)).sum(-1))


def test_what_is_undefined_is_said():
    weights, values = weights_and_values()
    scaled, signed = weights.value_weighted(values), weights.times_gradient(torch.randn(6, 3), values)
    for ask, message in (
        (scaled.entropy, "entropy is undefined for weights times norms of values, which do not sum to one"),
        (scaled.mean().entropy, "entropy is undefined for weights times norms of values, which do not sum to one"),
        (signed.argmax, "argmax is undefined for weights times their gradient, which may be negative"),
        (lambda: signed.mean().top(2), "top:2 is undefined for weights times their gradient, which may be negative"),
    ):
        with pytest.raises(RegardError) as error:
            ask()
        assert str(error.value) == message


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda weights, values: weights.value_weighted(values[..., 1:, :]),
            "value_weighted: expected values of shape (..., 9, width), where the leading axes broadcast to (2, 3); "
            "got (2, 3, 8, 3)",
        ),
        (
            lambda weights, values: weights.value_weighted(values, torch.ones(2, 3, 4)),
            "value_weighted: expected output_matrix of shape (..., 3, output width), where the leading axes broadcast "
            "to (2, 3); got (2, 3, 4)",
        ),
        (
            lambda weights, values: weights.times_gradient(torch.ones(9, 3), values),
            "times_gradient: expected gradient of shape (..., 6, width), where the leading axes broadcast to (2, 3); "
            "got (9, 3)",
        ),
        (
            lambda weights, values: weights.times_gradient(torch.ones(6, 4), values),
            "times_gradient: gradient and values must have the same width, got 4 and 3",
        ),
    ],
)
def test_what_does_not_fit_is_said(ask, message):
    with pytest.raises(RegardError) as error:
        ask(*weights_and_values())
    assert str(error.value) == message


def test_scaled_weights_are_saved_as_a_matrix(tmp_path):
    weights, values = weights_and_values()
    with pytest.raises(RegardError) as error:
        weights.value_weighted(values).save(tmp_path / "weights")
    assert str(error.value) == (
        "save: cannot save lazy ValueWeightedWeights; save DenseWeights(weights.dense()) instead"
    )
