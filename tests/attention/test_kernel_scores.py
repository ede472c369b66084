import jaxtyping
import pytest
import torch

from regard import RegardError, attend
from regard.attention import Boxcar, Epanechnikov, Gaussian

from .cases import WIDTH, tensors


def test_gaussian_is_its_kernel_divided_by_the_sum():
    query, keys, values = tensors(2)
    kernel = torch.exp(-(query[:, :, None] - keys[:, None]).square().sum(-1) / 2)
    expected = kernel @ values / kernel.sum(-1, keepdim=True)
    torch.testing.assert_close(attend(query, keys, values, "gaussian", path="sdpa"), expected)


def test_gaussian_equals_dot_where_all_keys_have_one_norm():
    query, keys, values = tensors(2)
    keys = 3 * keys / keys.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(attend(query, keys, values, "gaussian"), attend(query, keys, values, "dot"))
    plain = torch.nn.functional.layer_norm(keys, (WIDTH,))
    torch.testing.assert_close(
        attend(query, plain, values, "gaussian"), attend(query, plain, values, "dot"), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("kind", [Gaussian, Boxcar, Epanechnikov])
def test_the_width_of_a_kernel_measures_distance(kind):
    query, keys, values = tensors()
    torch.testing.assert_close(
        attend(query * 2.5, keys * 2.5, values, kind(2.5)), attend(query, keys, values, kind(1.0))
    )


@pytest.mark.parametrize("heads", [None, 3])
def test_a_learnable_width_rounds_nothing_of_double_precision(heads):
    query, keys, values = tensors(3)
    score = Gaussian(1.3, learnable=True, heads=heads)
    expected = attend(query, keys, values, score, path="reference")
    torch.testing.assert_close(attend(query, keys, values, score, path="sdpa"), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [Gaussian, Epanechnikov])
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_a_learnable_width_for_each_head_has_a_gradient(kind, path):
    query, keys, values = tensors(3)
    score = kind(1.5, learnable=True, heads=3).double()
    attend(query, keys, values, score, path=path).sum().backward()
    step = 1e-6
    with torch.no_grad():
        score.width[1] += step
        above = attend(query, keys, values, score).sum()
        score.width[1] -= 2 * step
        below = attend(query, keys, values, score).sum()
    assert score.width.grad is not None
    assert score.width.grad[1].item() == pytest.approx(((above - below) / (2 * step)).item(), rel=1e-4)


def test_epanechnikov_by_hand():
    keys = torch.tensor([[0.0], [0.5], [1.0], [3.0]])
    values = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    query = torch.tensor([[0.0], [2.0]])  # distances 0, .5, 1, 3 and 2, 1.5, 1, 1: the second reaches none
    expected = torch.tensor([[(1 * 1 + 0.5 * 2) / 1.5], [0.0]])
    torch.testing.assert_close(attend(query, keys, values, "epanechnikov"), expected)
    squared = torch.tensor([[(1 * 1 + 0.75 * 2) / 1.75], [0.0]])
    torch.testing.assert_close(attend(query, keys, values, Epanechnikov(power=2)), squared)


def test_boxcar_takes_the_edge_in():
    keys = torch.tensor([[1.0], [3.0], [3.0001]])
    out = attend(torch.tensor([[2.0]]), keys, torch.tensor([[1.0], [3.0], [100.0]]), "boxcar")
    torch.testing.assert_close(out, torch.tensor([[2.0]]))


@pytest.mark.parametrize("width", [0, -1.0, float("nan"), "a", None])
@pytest.mark.parametrize("kind", [Gaussian, Boxcar, Epanechnikov])
def test_a_width_that_cannot_be_is_said(kind, width, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        kind(width)
    assert str(error.value) == f"{kind.__name__}: width must be above 0, got {width!r}"


def test_a_power_that_cannot_be_is_said(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(RegardError) as error:
        Epanechnikov(power="a")
    assert str(error.value) == "Epanechnikov: power must be above 0, got 'a'"


def test_gaussian_has_second_derivatives_also_where_query_and_key_are_one():
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2))
    assert torch.autograd.gradgradcheck(
        lambda *inputs: attend(*inputs, "gaussian", path="reference"), (query, keys[:1], values[:1])
    )
    same = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: attend(x, x, x, "gaussian", path="reference"), same)
