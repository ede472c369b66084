import math

import jaxtyping
import numpy as np
import pytest
import torch
from transformers import Gemma2Config
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, eager_attention_forward

from regard import RegardError, Weights, attend, causal
from regard.attention import Additive, Boxcar, Gaussian, SoftCap
from tests.gradients import gradcheck

from .cases import FINITE, NAMES, make_score, numpy_weights, tensors


def test_scores_are_capped_by_hand():
    query, keys = torch.ones(1, 1), torch.tensor([[0.0], [1.0], [1e6], [-1e6]])
    expected = torch.tensor([[0.0, 2 * math.tanh(0.5), 2.0, -2.0]])
    torch.testing.assert_close(SoftCap("dot", 2.0)(query, keys), expected)
    weights = attend(query, keys, keys, SoftCap("dot", 2.0), return_weights=True)[1]
    torch.testing.assert_close(weights.dense(), expected.exp() / expected.exp().sum())


@pytest.mark.parametrize("path", ["tiled", "reference", None])
def test_bias_and_rule_come_after_the_cap(path):
    query, keys, values = tensors(2, 3, n=5, m=5, spread=3.0)
    bias = torch.randn(3, 5, 5, dtype=torch.float64)  # one for each head
    out, weights = attend(
        query, keys, values, SoftCap("scaled_dot", 0.7), visible=causal(), bias=bias, path=path, return_weights=True
    )
    scores = 0.7 * np.tanh(query.numpy() @ np.swapaxes(keys.numpy(), -1, -2) / math.sqrt(6) / 0.7) + bias.numpy()
    expected = np.where(np.tri(5, dtype=bool), np.exp(scores), 0)
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights.dense().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(out.numpy(), expected @ values.numpy(), atol=1e-12)
    np.testing.assert_allclose(weights.received().numpy(), expected.sum(-2), atol=1e-12)
    np.testing.assert_allclose(weights.entropy().numpy(), -(expected * np.log(np.maximum(expected, 1e-300))).sum(-1))
    assert weights.argmax().tolist() == expected.argmax(-1).tolist()
    np.testing.assert_allclose(weights.top(2)[0].numpy(), -np.sort(-expected, -1)[..., :2], atol=1e-12)
    np.testing.assert_allclose(weights[1, 2, 3:, :2].numpy(), expected[1, 2, 3:, :2], atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*FINITE, "hard")])
def test_a_wide_cap_changes_nothing(name):
    query, keys, values = tensors(n=4, m=7)
    score = make_score(name)
    weights = attend(query, keys, values, SoftCap(score, 1e6), path="tiled", return_weights=True)[1]
    expected = numpy_weights(name, score, query.numpy(), keys.numpy(), np.ones((4, 7), dtype=bool))
    np.testing.assert_allclose(weights.dense().numpy(force=True), expected, atol=1e-9)


def test_gradients():
    score = SoftCap(Additive(6, 6, 3, heads=2), 0.5).double()
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, n=3, m=4))
    bias = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)

    def run(query, keys, values, bias, *_):
        out, weights = attend(query, keys, values, score, bias=bias, path="tiled", return_weights=True)
        return out, weights[:, 1:, ::2]

    assert gradcheck(run, (query, keys, values, bias, *score.parameters()))


def test_save_and_load(tmp_path):
    query, keys, values = tensors(2, n=3, m=4)
    for score in (SoftCap("scaled_dot", 0.5), SoftCap(Additive(6, 6, 3, heads=2).double(), 2.0)):
        weights = attend(query, keys, values, score, visible=causal(), path="tiled", return_weights=True)[1]
        weights.save(tmp_path / "weights")
        assert torch.equal(Weights.load(tmp_path / "weights").dense(), weights.dense())
        assert torch.equal(weights.detach().clone().dense(), weights.dense())


def test_as_transformers_gemma_2():
    config = Gemma2Config(
        hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_hidden_layers=1,
        attn_logit_softcapping=0.3, query_pre_attn_scalar=6,
    )  # fmt: skip
    module = Gemma2Attention(config, 0).eval()
    torch.manual_seed(1)
    query, keys, values = torch.randn(2, 4, 5, 6), torch.randn(2, 2, 5, 6), torch.randn(2, 2, 5, 6)
    mask = torch.full((5, 5), -math.inf).triu(1)
    expected, expected_weights = eager_attention_forward(
        module, query, keys, values, mask, scaling=module.scaling, softcap=module.attn_logit_softcapping
    )
    grouped = query.unflatten(1, (2, 2)), keys[:, :, None], values[:, :, None]
    out, weights = attend(*grouped, SoftCap("scaled_dot", 0.3), visible=causal(), path="tiled", return_weights=True)
    torch.testing.assert_close(out.flatten(1, 2).transpose(1, 2), expected)
    torch.testing.assert_close(weights.dense().flatten(1, 2), expected_weights)


def test_what_cannot_be_capped_is_said(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    for make, message in (
        (lambda: SoftCap("dot", 0), "SoftCap: cap must be a finite number above 0, got 0"),
        (lambda: SoftCap("dot", "50"), "SoftCap: cap must be a finite number above 0, got '50'"),
        (lambda: SoftCap(Boxcar(), 1), "SoftCap: Boxcar cannot be capped: its weights are no softmax of its scores"),
        (lambda: SoftCap("hard", 1), "SoftCap: Hard cannot be capped: its weights are no softmax of its scores"),
    ):
        with pytest.raises(RegardError) as error:
            make()
        assert str(error.value) == message
    query, keys, values = tensors(n=3, m=4)
    with pytest.raises(RegardError) as error:
        attend(query, keys, values, SoftCap("dot", 1.0), path="sdpa")
    assert str(error.value) == (
        'path "sdpa" does not support this call: SoftCap is not a dot product here; '
        'use path=None, "tiled" or "reference"'
    )
    assert repr(SoftCap(Gaussian(), 50.0)).startswith("SoftCap(\n  cap=50\n")
