"""Bugs and limits of torch's fused operators that the sdpa path works around."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from regard import attend, causal, lengths, window
from regard.attention.call import Call, Terms
from regard.attention.kernels import sdpa
from regard.attention.kernels.sdpa import iter_causal_parts, iter_parts
from regard.attention.normalizers import Softmax
from regard.attention.scores import FixedDot

from ..cases import DEVICES

fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def test_the_operator_reports_zero_for_a_row_that_sees_nothing():
    """If this fails on a newer torch, `OperatorPart.find_blind_rows` is no longer needed."""
    query = torch.randn(1, 1, 2, 4)
    _, lse = fused(query, query, query, attn_mask=torch.full((1, 1, 2, 2), -torch.inf))
    assert lse.tolist() == [[[0, 0]]]
    _, weights = attend(query, query, query, visible=lengths(torch.tensor([0])), path="sdpa", return_weights=True)
    assert not weights.dense().any()


def test_the_operator_is_causal_from_the_top_left():
    """If this fails, `iter_causal_parts` is no longer needed."""
    query, keys = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 5, 4)
    out, _ = fused(query, keys, keys, is_causal=True)
    torch.testing.assert_close(out[..., 0, :], keys[..., 0, :])  # the first query sees only the first key
    seen = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    expected = scaled_dot_product_attention(query, keys, keys, attn_mask=seen)
    torch.testing.assert_close(attend(query, keys, keys, visible=causal(), path="sdpa"), expected)


def test_the_operator_refuses_other_widths_of_values():
    query = torch.randn(1, 1, 2, 4)
    with pytest.raises(RuntimeError, match="same head size"):
        fused(query, query, torch.randn(1, 1, 2, 3))
    for width in (1, 3, 4, 9):
        values = torch.randn(1, 1, 2, width, requires_grad=True)
        expected = torch.softmax(query @ query.mT / 2, -1) @ values
        out = attend(query, query, values, path="sdpa")
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), values), torch.autograd.grad(expected.sum(), values))


def test_autocast_does_not_reach_the_operator():
    query = torch.randn(1, 1, 2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert fused(query, query, query)[0].dtype == torch.float32
        assert attend(query, query, query, path="sdpa").dtype == torch.bfloat16


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 6), (4, 4), (4, 9), (9, 4), (2, 1)])
def test_causal_with_lengths_and_unequal_sizes(n, m, strict, device):
    torch.manual_seed(0)
    query, keys, values = (torch.randn(3, 2, size, 8, device=device, requires_grad=True) for size in (n, m, m))
    rule = causal(strict=strict) & lengths(torch.tensor([m, m // 2, 0], device=device))
    results = []
    for path in ("sdpa", "reference"):
        out = attend(query, keys, values, visible=rule, path=path)
        results.append((out, *torch.autograd.grad(out.square().sum(), (query, keys, values))))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize(
    ("n", "m", "offset"), [(n, m, m - n - s) for n in range(1, 7) for m in range(1, 7) for s in (0, 1)]
)
def test_causal_parts_cover_each_visible_pair_once(n, m, offset):
    covered = torch.zeros(n, m, dtype=torch.int)
    for rows, cols, is_causal in iter_causal_parts(n, m, offset):
        block = torch.ones(rows.stop - rows.start, cols.stop - cols.start, dtype=torch.int)
        covered[rows, cols] += block.tril() if is_causal else block
    expected = torch.arange(m) <= torch.arange(n)[:, None] + offset
    assert torch.equal(covered, expected.int())


def test_no_part_of_causal_or_lengths_is_a_matrix():
    query = torch.randn(2, 3, 100, 8)
    rule = causal() & lengths(torch.tensor([50, 100]))
    terms = Terms(FixedDot(1.0), rule, Softmax(), torch.Size((2, 3, 100, 100)))
    (part,) = iter_parts(terms, None, query)
    assert part.causal
    assert part.mask is not None
    assert part.mask.shape == (2, 1, 1, 100)


def test_other_rules_become_masks_of_one_block_at_a_time(monkeypatch):
    monkeypatch.setattr(sdpa, "MASK_NUMBERS", 300)
    query = torch.randn(100, 8)
    terms = Terms(FixedDot(1.0), window(3, 0), Softmax(), torch.Size((100, 100)))
    parts = list(iter_parts(terms, None, query))
    assert len(parts) == 34
    assert all(
        part.mask is not None and part.mask.numel() <= 3 * (3 + 3) for part in parts
    )  # only what a window reaches
    expected = attend(query, query, query, "dot", visible=window(3, 0), path="reference")
    torch.testing.assert_close(attend(query, query, query, "dot", visible=window(3, 0), path="sdpa"), expected)


@pytest.mark.parametrize("shape", [(5, 1), (1, 7), (5, 7), (2, 5, 7), (2, 3, 1, 7), (3, 5, 1)])
def test_a_bias_of_any_shape_has_its_gradient(shape):
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    bias = torch.randn(*([1] * (4 - len(shape)) if len(shape) == 3 and shape[0] == 2 else []), *shape)
    bias = (bias if bias.ndim < 3 or bias.shape[-3] in (1, 3) else bias.transpose(0, -3)).requires_grad_()
    results = []
    for path in ("sdpa", "reference", "tiled"):
        out = attend(query, keys, values, bias=bias, visible=causal(), path=path)
        results.append((out, *torch.autograd.grad(out.square().sum(), bias)))
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[2], results[1])


def test_many_parts_add_up_without_rounding(monkeypatch):
    torch.manual_seed(0)
    query, keys, values = inputs = [torch.randn(128, 16).bfloat16().requires_grad_() for _ in range(3)]
    seen = torch.rand(128, 128) < 0.9

    def gradients():
        return torch.autograd.grad(attend(query, keys, values, visible=seen, path="sdpa").float().sum(), inputs)

    expected = gradients()
    monkeypatch.setattr(sdpa, "MASK_NUMBERS", 128)  # one row at a time
    for gradient, right in zip(gradients(), expected, strict=True):
        assert (gradient - right).norm() < 0.02 * right.norm()


def test_many_tiles_of_the_backward_with_a_bias(monkeypatch):
    monkeypatch.setattr("regard.attention.kernels.dot_backward.ROWS", 3)
    monkeypatch.setattr("regard.attention.kernels.dot_backward.COLUMNS", 2)
    query, keys, values = (torch.randn(2, size, 4, dtype=torch.float64, requires_grad=True) for size in (5, 7, 7))
    bias = torch.randn(2, 5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: attend(q, k, v, bias=b, visible=causal(), path="sdpa"), (query, keys, values, bias)
    )


def test_an_operator_gets_the_call_that_the_weights_get():
    query, keys, values = torch.randn(5, 4), torch.randn(7, 4), torch.randn(7, 2)
    terms = Terms(FixedDot(0.3), None, Softmax(), torch.Size((5, 7)))
    result = sdpa.forward(Call(terms, query, keys), values)
    torch.testing.assert_close(result.statistic, (0.3 * query @ keys.T).logsumexp(-1, keepdim=True))
