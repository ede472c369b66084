"""Additive attention by Triton, in its interpreter where there is no GPU, against formulas in float64."""

import importlib.util
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import RegardError
from regard.attention import Additive, Concat, attend, causal, documents, lengths, window
from regard.attention.kernels import dispatch
from regard.attention.kernels.triton import additive
from regard.attention.kernels.triton.additive import TRITON_ADDITIVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning"),  # in pairs past the end
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = [torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])]  # bfloat16 is not interpreted


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Run programs in the interpreter where there is no GPU; the module of programs must not exist before."""
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def make_inputs(*batch, n, m, hidden=6, width=5, dtype=torch.float32, groups=None, scale=1.0):
    """Random projected queries and keys, and values."""
    torch.manual_seed(11)
    sizes = ((*batch, n, hidden), (*(groups or batch), m, hidden), (*(groups or batch), m, width))
    query, keys, values = (torch.randn(size, device=DEVICE) for size in sizes)
    return [(query * scale).to(dtype), (keys * scale).to(dtype), values.to(dtype)]


def make_score(hidden, dtype=torch.float32, heads=None):
    """A score whose projections are the identity, so that queries and keys are projected ones."""
    score = Additive(hidden, hidden, hidden=hidden, heads=heads).to(DEVICE, dtype)
    with torch.no_grad():
        for name, parameter in score.named_parameters():
            if name != "energy":
                identity = torch.eye(hidden, device=DEVICE) if parameter.ndim > 1 else torch.zeros(1, device=DEVICE)
                parameter.copy_(identity.expand_as(parameter))
    return score


def compute_attention(query, keys, values, energy, bias=None, visible=None, factors=None):
    """The formula and its weights: a softmax of w·tanh(q + k), whose weights dropout multiplies by `factors`."""
    scores = torch.tanh(query[..., :, None, :] + keys[..., None, :, :]) @ energy
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    weights = torch.exp(scores - lse.masked_fill(lse.isneginf(), 0))
    return (weights if factors is None else weights * factors) @ values, weights


def find_error(actual, expected):
    """The relative error of a tensor; the absolute one where nothing is expected."""
    norm = torch.linalg.vector_norm(expected)
    return (torch.linalg.vector_norm(actual.double() - expected) / norm.where(norm > 0, 1.0)).item()


def check(inputs, rule=None, visible=None, bias=None, tolerance=1e-5, gradient_tolerance=1e-4, energy=None):
    """Compare the output and all gradients with the formula."""
    score = make_score(inputs[0].shape[-1], inputs[0].dtype)
    if energy is not None:
        with torch.no_grad():
            score.energy.copy_(energy)
    leaves = [tensor.clone().requires_grad_() for tensor in (*inputs, *([] if bias is None else [bias]))]
    output, weights = attend(
        *leaves[:3], score, visible=rule, bias=leaves[3] if leaves[3:] else None, path="triton_additive",
        return_weights=True,
    )  # fmt: skip
    exact = [leaf.detach().double().requires_grad_() for leaf in (*leaves, score.energy)]
    biases = exact[3] if bias is not None else None
    expected, exact_weights = compute_attention(*exact[:3], exact[-1].flatten(), biases, visible)
    assert output.dtype == inputs[0].dtype
    assert find_error(output, expected) <= tolerance
    torch.testing.assert_close(weights.dense().double(), exact_weights, rtol=1e-4, atol=1e-5)
    gradient = torch.randn_like(output)
    output.backward(gradient)
    expected.backward(gradient.double())
    rounding = 1e-6 * torch.linalg.vector_norm(gradient)  # where terms cancel
    for leaf, exact_leaf in zip((*leaves, score.energy), exact, strict=True):
        error = torch.linalg.vector_norm(leaf.grad.double() - exact_leaf.grad)
        assert error <= gradient_tolerance * torch.linalg.vector_norm(exact_leaf.grad) + rounding


@pytest.mark.parametrize(("n", "m", "hidden", "width"), [(1, 1, 1, 1), (5, 70, 3, 40), (70, 9, 20, 7)])
def test_any_length_and_width(n, m, hidden, width):
    check(make_inputs(1, n=n, m=m, hidden=hidden, width=width))


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70))
def test_every_length(n, m):
    check(make_inputs(1, n=n, m=m, hidden=4))


@pytest.mark.parametrize(
    "rule",
    [
        causal(strict=True),
        window(5, 2),
        window(None, 1) & lengths([37, 0]),
        documents([[0] * 13 + [1] * 37, [0] * 50]) & causal(),
        torch.arange(50 * 50).reshape(50, 50) % 7 > 0,
    ],
    ids=["strict", "window", "lengths", "documents", "mask"],
)
def test_every_rule(rule):
    shape = torch.Size((2, 50, 50))
    if isinstance(rule, torch.Tensor):
        rule = visible = rule.to(DEVICE)
    else:
        visible = rule.tile(slice(0, 50), slice(0, 50), shape, torch.device(DEVICE))
    check(make_inputs(2, n=50, m=50), rule=rule, visible=visible)


def test_biases_and_their_gradients():
    check(make_inputs(2, 3, n=20, m=30), bias=torch.randn(3, 20, 30, device=DEVICE))
    check(make_inputs(2, 3, n=20, m=30), bias=torch.randn(30, device=DEVICE))


def test_heads_that_share_keys():
    check(make_inputs(2, 2, 3, n=6, m=9, groups=(2, 2, 1)))


def test_hidden_numbers_of_some_sequences_at_a_time(monkeypatch):
    chunks = []
    store = additive.store_chunk
    monkeypatch.setattr(additive, "CHUNK", 40)
    monkeypatch.setattr(
        additive, "store_chunk", lambda arguments, part: chunks.append(list(part)) or store(arguments, part)
    )
    rule = lengths(torch.tensor([[30, 7, 0], [1, 30, 12]], device=DEVICE))
    visible = rule.tile(slice(0, 20), slice(0, 30), torch.Size((2, 3, 20, 30)), torch.device(DEVICE))
    check(make_inputs(2, 3, n=20, m=30), rule, visible, bias=torch.randn(3, 20, 30, device=DEVICE))
    assert chunks == 2 * [[0, 1], [2, 3], [4, 5]]
    check(make_inputs(n=50, m=50))
    check(make_inputs(2, 2, 3, n=6, m=9, groups=(2, 2, 1)))  # heads that share keys share their numbers
    assert chunks[6:] == 2 * [[0]] + 2 * [list(range(12))]


@pytest.mark.parametrize("scale", [1e-4, 4.0, 12.0, 60.0, 1e4])
def test_wide_ranges_of_queries_and_keys(scale):
    query, keys, values = make_inputs(1, n=20, m=30, scale=scale)
    check([query, keys, values], gradient_tolerance=1e-3)
    check([query, keys / scale, values], gradient_tolerance=1e-3)
    check([query, -query[:, :1].expand(-1, 30, -1) + keys / scale, values], gradient_tolerance=1e-3)  # they cancel


@pytest.mark.parametrize("energy", [1e-6, 30.0])
def test_wide_ranges_of_the_energy(energy):
    inputs = make_inputs(1, n=20, m=30)
    check(inputs, energy=energy * torch.randn(6, device=DEVICE), tolerance=1e-4, gradient_tolerance=1e-2)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision(dtype):
    tolerance = 2e-3 if dtype == torch.float16 else 3e-3  # bfloat16 rounds each number by up to 2e-3
    check(make_inputs(1, n=20, m=70, hidden=64, width=64, dtype=dtype), tolerance=tolerance, gradient_tolerance=1e-2)


def test_concat_is_additive_with_a_projection_of_both():
    score = Concat(4, 5, hidden=6).to(DEVICE)
    inputs = [torch.randn(2, *size, device=DEVICE) for size in ((20, 4), (30, 5), (30, 7))]
    results = [attend(*inputs, score, path=path) for path in ("triton_additive", "reference")]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_dropout_drops_the_same_weights_in_backward():
    inputs = make_inputs(1, n=20, m=40, width=40)
    inputs[2] = torch.eye(40, device=DEVICE)[None]  # so that the output is the matrix of weights
    score = make_score(6)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output, weights = attend(*leaves, score, dropout=0.25, path="triton_additive", return_weights=True)
    factors = (output.detach() / weights.dense().detach()).double()
    kept = (factors > 0.5).double()
    torch.testing.assert_close(factors, kept / 0.75, rtol=1e-4, atol=1e-4)
    assert 0.65 < kept.mean() < 0.85
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    expected, _ = compute_attention(*exact, score.energy.double().flatten(), factors=kept / 0.75)
    gradient = torch.randn_like(output)
    output.backward(gradient)
    expected.backward(gradient.double())
    for leaf, exact_leaf in zip(leaves, exact, strict=True):
        assert find_error(leaf.grad, exact_leaf.grad) <= 1e-4


def test_the_table_takes_it_from_some_queries_on(monkeypatch):
    monkeypatch.setattr(dispatch, "KERNELS", (TRITON_ADDITIVE, *dispatch.KERNELS))
    kernels = []
    run = dispatch.run_forward
    monkeypatch.setattr(
        dispatch, "run_forward", lambda kernel, *rest: kernels.append(kernel.name) or run(kernel, *rest)
    )
    attend(*make_inputs(1, n=16, m=9), make_score(6))
    attend(*make_inputs(1, n=15, m=9), make_score(6), path="tiled")
    assert kernels == ["triton_additive", "tiled"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"normalizer": "sparsemax"}, "Sparsemax is not softmax"),
        ({"visible": ~causal()}, "it supports causal, window, lengths, documents and one mask"),
    ],
)
def test_other_calls_are_left_to_others(changes, reason):
    with pytest.raises(RegardError, match=reason):
        attend(*make_inputs(1, n=20, m=9), make_score(6), path="triton_additive", **changes)
