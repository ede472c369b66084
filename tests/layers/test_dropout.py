"""Dropout, compared with its definition."""

import pytest
import torch

from regard.layers.dropout import Dropout, VariationalDropout, drop


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_share_is_dropped_and_the_rest_is_larger(share, dtype):
    torch.manual_seed(1)
    x = torch.full((200, 500), 3.0, dtype=dtype)
    dropped = drop(x, share, True)
    assert dropped.dtype == dtype
    values = dropped.unique()
    assert len(values) == 2
    torch.testing.assert_close(values, torch.tensor([0, 3 / (1 - share)], dtype=dtype))
    spread = (share * (1 - share) / x.numel()) ** 0.5
    assert abs((dropped == 0).double().mean().item() - share) < 5 * spread


def test_neighbors_and_calls_are_independent():
    torch.manual_seed(1)
    layer = Dropout(0.5)
    first, second = (layer(torch.ones(300, 300)) != 0 for _ in range(2))
    for a, b in ((first, second), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1])):
        assert abs((a & b).double().mean().item() - 0.25) < 0.01


def test_the_gradient_is_that_of_what_was_kept():
    torch.manual_seed(1)
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    dropped = drop(x, 0.25, True)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, (dropped != 0).double() / 0.75)


def test_nothing_is_dropped_in_evaluation_or_of_a_share_of_none():
    x = torch.randn(2, 3, 4)
    for layer in (Dropout(0.5).eval(), Dropout(0.0), VariationalDropout(0.5).eval(), VariationalDropout(0.0)):
        assert layer(x) is x


def test_a_seed_repeats_what_is_dropped():
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append(drop(torch.ones(20, 20), 0.5, True))
    assert torch.equal(*results)
