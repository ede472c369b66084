import math

import jaxtyping
import numpy as np
import pytest
import torch
from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, eager_attention_forward

from regard import RegardError, Weights, attend, causal, lengths
from regard.attention import Additive, Gaussian, SoftCap
from tests.gradients import gradcheck

from .cases import FINITE, NAMES, make_score, tensors

SUPPORTED = [name for name in NAMES if name not in (*FINITE, "hard")]


def test_the_sink_takes_its_share_by_hand():
    keys = torch.tensor([[0.0], [math.log(2)], [math.log(5)]])  # 1, 2, 5 and 8 of the sink
    out, weights = attend(
        torch.ones(1, 1), keys, torch.eye(3), "dot", sink=torch.tensor(math.log(8)), return_weights=True
    )
    expected = torch.tensor([[1.0, 2.0, 5.0]]) / 16
    torch.testing.assert_close(weights.dense(), expected)
    torch.testing.assert_close(out, expected)
    assert weights.entropy().item() == pytest.approx(-(expected * expected.log()).sum().item())
    assert weights.argmax().tolist() == [2]
    torch.testing.assert_close(weights.received(), expected[0])


def dense_weights(scores, sink, visible):
    """Softmax over keys and sink, without the column of the sink."""
    scores = np.where(visible, scores, -np.inf)
    column = np.broadcast_to(sink, (*scores.shape[:-1], 1))
    weights = np.exp(np.concatenate([scores, column], -1))
    return (weights / weights.sum(-1, keepdims=True))[..., :-1]


@pytest.mark.parametrize("path", ["sdpa", "tiled", "reference", None])
@pytest.mark.parametrize("name", SUPPORTED)
def test_weights_of_every_score(name, path):
    query, keys, values = tensors(2, 3, n=4, m=6)
    score, sink, bias = make_score(name), torch.randn(3, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    if path == "sdpa" and name not in ("dot", "scaled_dot", "bilinear", "reduced_rank", "uniform"):
        pytest.skip("no dot product with all its constants")
    call = {"visible": lengths([6, 0]) & causal(), "bias": 200 + bias, "sink": 200 + sink, "path": path}
    out, weights = attend(query, keys, values, score, **call, return_weights=True)
    scores = score(query, keys).detach().numpy() + bias.numpy()
    visible = np.tri(4, 6, 2, dtype=bool) & (np.arange(2) == 0)[:, None, None, None]
    expected = dense_weights(scores, sink.numpy()[:, None, None], visible)  # the second sequence sees no key
    np.testing.assert_allclose(weights.dense().numpy(force=True), expected, atol=1e-12)
    np.testing.assert_allclose(out.numpy(force=True), expected @ values.numpy(), atol=1e-12)
    np.testing.assert_allclose(weights[0, 1].numpy(force=True), expected[0, 1], atol=1e-12)
    np.testing.assert_allclose(weights.received().numpy(), expected.sum(-2), atol=1e-12)
    np.testing.assert_allclose(weights.mean().dense().numpy(force=True), expected.mean(1), atol=1e-12)


@pytest.mark.parametrize("path", ["sdpa", "tiled", "reference"])
def test_gradients_reach_the_sink(path):
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, 2, n=3, m=4))
    sink = torch.randn(2, dtype=torch.float64, requires_grad=True)

    def run(query, keys, values, sink):
        out, weights = attend(query, keys, values, visible=causal(), sink=sink, path=path, return_weights=True)
        return out, weights[:, :, 1:, ::2]

    assert gradcheck(run, (query, keys, values, sink))


def test_only_the_sink_needs_a_gradient():
    query, keys, values = tensors(2, n=300, m=300)
    sink = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    gradients = []
    for path in ("sdpa", "tiled", "reference"):
        out, weights = attend(query, keys, values, "dot", sink=sink, path=path, return_weights=True)
        (out.sum() + weights[:, 7].square().sum()).backward()
        gradients.append(sink.grad)
        sink.grad = None
    torch.testing.assert_close(gradients[0], gradients[2])
    torch.testing.assert_close(gradients[1], gradients[2])


def test_no_sink_is_a_sink_of_minus_infinity():
    query, keys, values = tensors(2, n=3, m=4)
    for path in ("sdpa", "tiled", "reference"):
        call = {"visible": lengths([4, 0]), "path": path, "return_weights": True}
        for got, expected in zip(
            attend(query, keys, values, sink=torch.tensor(-math.inf), **call),
            attend(query, keys, values, **call),
            strict=True,
        ):
            torch.testing.assert_close(*(t.dense() if isinstance(t, Weights) else t for t in (got, expected)))


def test_save_load_and_copies(tmp_path):
    query, keys, values = tensors(2, 2, n=3, m=4)
    sink = torch.randn(2, dtype=torch.float64)
    for score in ("scaled_dot", SoftCap("dot", 0.5), Additive(6, 6, 3).double()):
        weights = attend(query, keys, values, score, sink=sink, path=None if score == "scaled_dot" else "tiled",
                         return_weights=True)[1]  # fmt: skip
        weights.save(tmp_path / "weights")
        loaded = Weights.load(tmp_path / "weights")
        assert torch.equal(loaded.dense(), weights.dense())
        assert torch.equal(loaded.entropy(), weights.entropy())
        assert torch.equal(weights.clone().dense(), weights.dense())


def test_a_changed_sink_is_found():
    query, keys, values = tensors(2, n=300, m=300)
    sink = torch.zeros(2, dtype=torch.float64)
    weights = attend(query, keys, values, sink=sink, return_weights=True)[1]
    sink += 1
    with pytest.raises(RegardError) as error:
        weights.dense()
    assert str(error.value) == (
        "weights: query, keys, visible, bias, sink or parameters were modified in place after the call; "
        "use the weights before that, or call attend with lazy=False"
    )


def test_as_transformers_gpt_oss():
    config = GptOssConfig(
        hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_hidden_layers=1,
        layer_types=["full_attention"],
    )  # fmt: skip
    module = GptOssAttention(config, 0).eval()
    torch.manual_seed(1)
    module.sinks.data = torch.randn(4)
    query, keys, values = torch.randn(2, 4, 5, 6), torch.randn(2, 2, 5, 6), torch.randn(2, 2, 5, 6)
    mask = torch.full((5, 5), -math.inf).triu(1)
    expected, expected_weights = eager_attention_forward(module, query, keys, values, mask, scaling=6**-0.5)
    for path in ("sdpa", "tiled", "reference"):
        out, weights = attend(
            query.unflatten(1, (2, 2)), keys[:, :, None], values[:, :, None],
            visible=causal(), sink=module.sinks.unflatten(0, (2, 2)), path=path, return_weights=True,
        )  # fmt: skip
        torch.testing.assert_close(out.flatten(1, 2).transpose(1, 2), expected)
        torch.testing.assert_close(weights.dense().flatten(1, 2), expected_weights)


def test_dropout_is_of_weights_with_the_sink():
    query, keys, values = tensors(n=3, m=4)
    sink = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def run(sink):
        torch.manual_seed(0)
        return attend(query, keys, values, sink=sink, dropout=0.5, path="tiled")

    assert gradcheck(run, (sink,))


def test_a_sink_that_does_not_fit_is_said(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    query, keys, values = tensors(2, n=3, m=4)
    for settings, message in (
        ({"sink": 0.5}, "sink must be a tensor, got float"),
        ({"sink": torch.zeros(2, dtype=torch.long)}, "sink must have a float type, got int64"),
        (
            {"sink": torch.zeros(3)},
            "sink: expected one number per head, a shape that broadcasts to (2,), got (3,)",
        ),
        (
            {"sink": torch.zeros(2), "normalizer": "sparsemax"},
            "sink: only weights of a softmax can have a sink, a logit in its denominator",
        ),
        (
            {"sink": torch.zeros(2), "score": "hard"},
            "sink: only weights of a softmax can have a sink, a logit in its denominator",
        ),
        (
            {"sink": torch.zeros(2), "score": Gaussian(), "path": "sdpa"},
            'path "sdpa" does not support this call: Gaussian is not a dot product here; '
            'use path=None, "tiled" or "reference"',
        ),
    ):
        with pytest.raises(RegardError) as error:
            attend(query, keys, values, **settings)
        assert str(error.value) == message
