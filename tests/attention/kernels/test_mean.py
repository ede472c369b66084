"""`uniform` as a mean of values, and cases where that does not apply."""

import pytest
import torch

from regard import attend, causal, lengths, window

from ..cases import tensors


def test_the_rule_of_two_sequences_by_hand():
    values = torch.tensor([[[1.0], [3.0], [8.0]], [[2.0], [4.0], [6.0]]])
    query = torch.zeros(2, 2, 5)
    out = attend(query, torch.zeros(2, 3, 5), values, "uniform", visible=lengths(torch.tensor([2, 3])), path="mean")
    assert out.tolist() == [[[2], [2]], [[4], [4]]]


def test_it_has_a_second_derivative():
    query, keys, values = tensors(2)
    assert torch.autograd.gradgradcheck(
        lambda v: attend(query, keys, v, "uniform", path="mean").square(), values.requires_grad_()
    )


def test_the_output_is_memory_that_can_be_written():
    query, keys, values = tensors(2)
    one_for_all = values[:1, :, :]
    out = attend(query, keys, one_for_all, "uniform", path="mean")
    out[0, 0] = 5.0
    torch.testing.assert_close(out[1, 1], one_for_all[0].mean(0))


@pytest.mark.parametrize(
    "settings",
    [
        {"visible": causal()},
        {"visible": window(1, 0) & lengths(torch.tensor([2, 6]))},
        {"visible": torch.eye(4, 7, dtype=torch.bool)},
        {"visible": ~lengths(torch.tensor([2, 6]))},
        {"visible": lengths(torch.tensor([2, 6])), "bias": torch.linspace(0, 1, 7, dtype=torch.float64)},
        {"normalizer": "sparsemax"},
        {"normalizer": "none"},
        {"visible": lengths(torch.tensor([2, 6])), "dropout": 0.5},
        {"visible": lengths(torch.tensor([2, 6])) & torch.tensor([False] + [True] * 6)},
    ],
    ids=str,
)
def test_uniform_on_any_terms_is_what_the_reference_gives(settings):
    query, keys, values = tensors(2)
    results = []
    for path in (None, "reference"):
        torch.manual_seed(0)
        out, weights = attend(query, keys, values, "uniform", **settings, path=path, return_weights=True)
        results.append((out, weights.dense()))
    torch.testing.assert_close(results[0], results[1])
