"""A dot product whose weights nobody asks for is one call of torch's function, with its autograd."""

import math

import pytest
import torch
from torch.overrides import TorchFunctionMode

from regard import attend, causal, documents, lengths, watch, window
from regard.attention import Gaussian
from regard.attention.kernels import dispatch, fused, sdpa
from regard.layers import MultiHeadAttention

from ..cases import make_score

FUNCTION = torch.nn.functional.scaled_dot_product_attention
OPERATOR = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
LENGTHS = torch.tensor([4, 0])


class Calls(TorchFunctionMode):
    """Count the calls of torch's attention."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += function in (FUNCTION, OPERATOR)
        return function(*args, **kwargs or {})


@pytest.fixture
def no_function_of_ours(monkeypatch):
    monkeypatch.setattr(dispatch._Attention, "apply", lambda *_: pytest.fail("it kept what weights need"))


RULES = {
    "all": None,
    "causal": causal(),
    "lengths": lengths(LENGTHS),
    "both": causal() & lengths(LENGTHS),
    "window": window(2, 1),
    "documents": documents([0, 0, 1, 1, 1, 2]),
    "tensor": torch.ones(6, 6, dtype=torch.bool).tril(1),
}


@pytest.mark.usefixtures("no_function_of_ours")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["scaled_dot", "dot", "bilinear", "reduced_rank"])
def test_nothing_asked_is_one_call_of_torch(name, rule):
    torch.manual_seed(0)
    query, keys, values = inputs = [torch.randn(2, 6, 6, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    score = make_score(name)
    learned = [*inputs, *score.parameters()]
    with Calls() as calls:
        out = attend(query, keys, values, score, visible=RULES[rule])
    assert calls.count == 1
    expected = attend(query, keys, values, score, visible=RULES[rule], path="reference")
    torch.testing.assert_close(out, expected)
    gradients = (torch.autograd.grad(result.square().sum(), learned) for result in (out, expected))
    torch.testing.assert_close(next(gradients), next(gradients))


def test_it_is_torchs_output_to_the_bit():
    query, keys, values = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
    out, expected = attend(query, keys, values, visible=causal()), FUNCTION(query, keys, values, is_causal=True)
    assert torch.equal(out, expected)
    for ours, theirs in zip(
        torch.autograd.grad(out.sum(), (query, keys, values)),
        torch.autograd.grad(expected.sum(), (query, keys, values)),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("no_function_of_ours")
@pytest.mark.parametrize("rule", ["lengths", "both"])
def test_rows_that_see_no_key_are_zeros_and_have_zero_gradients(rule):
    query, keys, values = inputs = [torch.randn(2, 6, 4, requires_grad=True) for _ in range(3)]
    out = attend(query, keys, values, visible=RULES[rule])
    assert not out[1].any()
    for gradient in torch.autograd.grad(out.sum() + out.square().sum(), inputs):
        assert not gradient[1].any()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("rule", RULES)
def test_weights_that_are_asked_for_do_not_change_the_output(rule):
    query, keys, values = (torch.randn(2, 6, 8) for _ in range(3))
    out = attend(query, keys, values, visible=RULES[rule])
    assert torch.equal(out, attend(query, keys, values, visible=RULES[rule], return_weights=True)[0])
    layer = MultiHeadAttention(8, 2)
    with watch(layer) as recording:
        watched = layer(query, visible=RULES[rule])
    assert torch.equal(watched, layer(query, visible=RULES[rule]))
    assert recording[""][0].shape == (2, 2, 6, 6)


@pytest.mark.usefixtures("no_function_of_ours")
def test_heads_of_a_group_share_their_keys_as_a_view(monkeypatch):
    seen = []
    monkeypatch.setattr(fused, "run_operator", lambda inputs, *_, **__: seen.append(inputs) or inputs.query)
    keys = torch.randn(2, 2, 1, 5, 4)
    attend(torch.randn(2, 2, 3, 5, 4), keys, keys)
    assert seen[0].keys.shape == (4, 3, 5, 4)
    assert seen[0].keys.data_ptr() == keys.data_ptr()


def test_a_bias_is_not_rounded_by_autocast():
    query, keys = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)
    bias = torch.tensor([[[0.0, 1 / 512], [3.0, 3 + 1 / 512]]])
    values = torch.tensor([[[0.0] * 4, [256.0] * 4]])
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(query, keys, values, bias=bias)
    shares = out[0, :, 0].float() / 256
    expected = 1 / (1 + math.exp(-1 / 512))
    assert (shares - expected).abs().max() < 1 / 256  # the output is in bfloat16; a rounded bias of 3 gives 0.504
    assert shares[0] == shares[1]


@pytest.mark.usefixtures("no_function_of_ours")
def test_gaussian_scores_without_a_gradient_for_their_bias_are_one_call():
    query, keys, values = (torch.randn(2, 6, 4, requires_grad=i != 1) for i in range(3))
    with Calls() as calls:
        out = attend(query, keys, values, Gaussian())
    assert calls.count == 1
    torch.testing.assert_close(out, attend(query, keys, values, Gaussian(), path="reference"))


def test_masks_of_several_blocks_and_sinks_and_learned_biases_keep_to_linear_memory(monkeypatch):
    query, keys, values = (torch.randn(2, 40, 4, requires_grad=True) for _ in range(3))
    bias = torch.randn(40, 40, requires_grad=True)
    monkeypatch.setattr(sdpa, "MASK_NUMBERS", 80)
    for settings in ({"visible": window(3, 0)}, {"sink": torch.zeros(2)}, {"bias": bias}):
        out = attend(query, keys, values, **settings)
        assert type(out.grad_fn).__name__.startswith("_Attention")
        torch.testing.assert_close(out, attend(query, keys, values, **settings, path="reference"))
