import jaxtyping
import pytest
import torch

from regard import RegardError, attend
from regard.attention import DenseWeights

from .cases import tensors

MATRIX = torch.tensor([[[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]], [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]])


def test_a_product_takes_what_matmul_takes():
    weights = DenseWeights(MATRIX)
    for shape in ((3,), (3, 4), (1, 3, 4), (2, 3, 4)):
        factor = torch.randn(shape)
        torch.testing.assert_close(weights @ factor, MATRIX @ factor)
    for shape in ((2,), (2, 4), (1, 2, 4), (2, 2, 4)):
        factor = torch.randn(shape)
        torch.testing.assert_close(weights.mT @ factor, MATRIX.mT @ factor)
        torch.testing.assert_close(weights.T @ factor, MATRIX.mT @ factor)
    for shape in ((2,), (4, 2), (2, 4, 2)):
        factor = torch.randn(shape)
        torch.testing.assert_close(factor @ weights, factor @ MATRIX)
    torch.testing.assert_close(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) @ weights.mT,
                               torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) @ MATRIX.mT)  # fmt: skip


def test_the_transpose_is_a_view():
    weights = DenseWeights(MATRIX)
    assert weights.mT.shape == (2, 3, 2)
    assert (weights.mT.dtype, weights.mT.device) == (weights.dtype, weights.device)
    assert torch.equal(weights.mT.dense(), MATRIX.mT)
    assert weights.mT.mT is weights
    assert repr(weights.mT) == "DenseWeights(shape=(2, 2, 3), device=cpu).mT"


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        ([1.0, 2.0, 3.0], "@: expected a tensor, got list"),
        (torch.ones(2), "got (2,)"),
        (torch.ones(2, 4), "got (2, 4)"),
        (torch.ones(5, 3, 4), "got (5, 3, 4)"),
        (torch.ones(1, 2, 3, 4), "got (1, 2, 3, 4)"),
        (torch.tensor(1.0), "got ()"),
    ],
)
def test_a_factor_that_does_not_fit_is_said(factor, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        DenseWeights(MATRIX) @ factor
    if isinstance(factor, torch.Tensor):
        message = (
            "@: a matrix of shape (2, 2, 3) can be multiplied by (3,) or (..., 3, width), "
            f"where the leading axes broadcast to (2,); {message}"
        )
    assert str(error.value) == message


def test_nothing_times_something_is_nothing():
    query, keys, values = tensors(2, n=0, m=5)
    weights = attend(query, keys, values, return_weights=True)[1]
    assert (weights @ values).shape == (2, 0, 3)
    assert torch.equal(weights.mT @ query, torch.zeros(2, 5, 6, dtype=torch.float64))
    query, keys, values = tensors(2, n=4, m=0)
    weights = attend(query, keys, values, path="tiled", return_weights=True)[1]
    assert torch.equal(weights @ values, torch.zeros(2, 4, 3, dtype=torch.float64))
    assert (weights.mT @ query).shape == (2, 0, 6)
