"""Dot products by Triton, in its interpreter where there is no GPU, against formulas in float64."""

import importlib.util
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import Bilinear, Gaussian, ScaledDot, SoftCap, attend, causal, documents, lengths, window
from regard.attention.kernels import dispatch
from regard.attention.kernels.dot_rows import DOT_ROWS
from regard.attention.kernels.triton.dot import MAX_TOP, TRITON_DOT, Blocks, Inputs, Search, choose_group
from regard.attention.kernels.triton.support import describe_rule
from regard.attention.visible import key_indices

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning"),  # in rows past the end, which are not stored
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ["received", "entropy", "argmax", "top:3"]


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Run programs in the interpreter where there is no GPU; the module of programs must not exist before."""
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def make_weights(
    *batch, n, m, width, rule=None, bias=None, dtype=torch.float32, groups=None, sink=None, score="scaled_dot"
):
    torch.manual_seed(3)
    query = torch.randn(*batch, n, width, device=DEVICE).to(dtype)
    keys, values = (torch.randn(*(groups or batch), m, size, device=DEVICE).to(dtype) for size in (width, 2))
    _, weights = attend(
        query, keys, values, score, visible=rule, bias=bias, sink=sink, path="tiled", return_weights=True
    )
    return weights


def check(weights, names=NAMES, dense=None):
    call = weights.call
    assert all(TRITON_DOT.get_unsupported_reason(call, name) is None for name in names)
    results = TRITON_DOT.reduce(call, weights.statistic, names)
    dense = weights.dense().double() if dense is None else dense
    if "received" in names:
        torch.testing.assert_close(results["received"].double(), dense.sum(-2), rtol=1e-5, atol=1e-5)
    if "entropy" in names:
        entropy = torch.special.entr(dense).sum(-1)
        torch.testing.assert_close(results["entropy"].double(), entropy, rtol=1e-5, atol=1e-5)
    if "argmax" in names:
        seen = dense.amax(-1) > 0
        assert torch.equal(results["argmax"], torch.where(seen, dense.argmax(-1), -1))
    top_weights, top_keys = results["top:3"]
    k = min(3, dense.shape[-1])
    assert top_weights.shape == top_keys.shape == (*dense.shape[:-1], k)
    torch.testing.assert_close(top_weights.double(), dense.topk(k, -1).values, rtol=1e-5, atol=1e-6)
    assert torch.equal(top_keys >= 0, top_weights > 0)
    of_keys = dense.gather(-1, top_keys.clamp_min(0)) * (top_keys >= 0)
    torch.testing.assert_close(of_keys, top_weights.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n", "m", "width"), [(1, 1, 1), (3, 130, 20), (70, 9, 16)])
def test_any_length_and_width(n, m, width):
    check(make_weights(1, n=n, m=m, width=width))


@pytest.mark.parametrize(
    "rule",
    [
        causal(),
        causal(strict=True),
        window(5, 2),
        window(None, 1) & lengths([12, 0]),
        window(20, None),
        documents([[0] * 13 + [1] * 7, [0] * 20]) & causal(),
        torch.arange(20) % 3 > 0,
        torch.arange(20 * 20).reshape(20, 20) % 7 > 0,
    ],
    ids=["causal", "strict", "window", "lengths", "left", "documents", "keys", "mask"],
)
def test_every_rule(rule):
    rule = rule.to(DEVICE) if isinstance(rule, torch.Tensor) else rule
    check(make_weights(2, n=20, m=20, width=6, rule=rule))


def test_without_a_batch():
    check(make_weights(n=5, m=70, width=8))


def test_fewer_queries_than_keys_and_more():
    check(make_weights(1, n=5, m=70, width=8, rule=causal()))
    check(make_weights(1, n=20, m=9, width=8, rule=causal()))


def test_bias_groups_and_sink():
    bias = torch.randn(3, 6, 9, device=DEVICE)
    check(make_weights(1, 3, n=6, m=9, width=8, rule=causal(), bias=bias))
    check(make_weights(1, 2, 3, n=6, m=9, width=8, groups=(1, 2, 1)))
    check(make_weights(1, 3, n=6, m=9, width=8, sink=torch.randn(3, device=DEVICE)))


@pytest.mark.parametrize("n", [33, 200])
def test_biases_and_masks_of_pairs_in_large_blocks(n):
    mask = torch.rand(n, 150, device=DEVICE) < 0.7
    for dtype in (torch.float16, torch.float32):
        check(make_weights(2, n=n, m=150, width=16, rule=mask, dtype=dtype))
        check(make_weights(2, n=n, m=150, width=16, bias=torch.randn(n, 150, device=DEVICE), dtype=torch.float32))


def test_biases_of_minus_infinity_and_those_of_keys():
    bias = torch.randn(3, 6, 300, device=DEVICE)
    bias[0, 2] = bias[..., :150] = -math.inf  # a row without any key, and whole blocks
    check(make_weights(1, 3, n=6, m=300, width=8, bias=bias))
    check(make_weights(1, 3, n=6, m=300, width=8, bias=bias[:, :1]))
    check(make_weights(1, 3, n=6, m=300, width=8, score="gaussian", rule=causal()))


def compute_dense(call, cap, sink):
    """The formula in float64: a softmax of capped scores and a sink, whose weight is dropped."""
    query, keys = call.query.double(), call.keys.double()
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    scores = cap * torch.tanh(scores / cap)
    if call.bias is not None:
        scores = scores + call.bias.double()
    if call.terms.visible is not None:
        visible = call.terms.visible.tile(*map(slice, (0, 0), scores.shape[-2:]), scores.shape, scores.device)
        scores = scores.masked_fill(~visible, -math.inf)
    sinks = sink.double()[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]


@pytest.mark.parametrize("cap", [1.0, 50.0, 1e4])
@pytest.mark.parametrize("biased", [False, True])
def test_a_soft_cap_and_a_sink(cap, biased):
    sink = torch.tensor([-1.0, 0.0, 3.0], device=DEVICE)
    bias = torch.randn(20, 70, device=DEVICE) if biased else None
    score = SoftCap(ScaledDot(), cap)
    weights = make_weights(1, 3, n=20, m=70, width=8, rule=causal(), score=score, sink=sink, bias=bias)
    check(weights, dense=compute_dense(weights.call, cap, sink))


def test_a_sink_that_takes_everything():
    weights = make_weights(1, 2, n=5, m=9, width=8, sink=torch.tensor([0.0, 1e4], device=DEVICE))
    results = TRITON_DOT.reduce(weights.call, weights.statistic, NAMES)
    for name in ("received", "entropy"):
        assert results[name][0, 0].min() > 0
        assert not results[name][0, 1].any()
    assert (results["argmax"][0, 1] == -1).all()
    assert not results["top:3"][0][0, 1].any()
    assert (results["top:3"][1][0, 1] == -1).all()


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from([None, causal(), window(3, 1)]), st.booleans())
def test_every_length(n, m, rule, is_half):
    check(make_weights(1, n=n, m=m, width=16, rule=rule, dtype=torch.float16 if is_half else torch.float32))


def test_a_bias_of_minus_a_billion_for_every_key_a_row_sees():
    bias = torch.zeros(4, 9, device=DEVICE)
    bias[:, 5:] = -1e9
    mask = (torch.arange(9, device=DEVICE) >= 5).expand(4, 9)
    weights = make_weights(1, n=4, m=9, width=8, bias=bias, rule=mask)
    expected = DOT_ROWS.reduce(weights.call, weights.statistic, ["received", "argmax"])
    results = TRITON_DOT.reduce(weights.call, weights.statistic, ["received", "argmax"])
    assert expected["received"].sum() > 0
    torch.testing.assert_close(results, expected)


@pytest.mark.parametrize("dtype", [torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])])  # not interpreted
def test_half_precision(dtype):
    check(make_weights(1, n=5, m=70, width=64, dtype=dtype))


def make_forward_inputs(*batch, n, m, width, features=None, dtype=torch.float32, groups=None):
    torch.manual_seed(7)
    sizes = ((*batch, n, width), (*(groups or batch), m, width), (*(groups or batch), m, features or width))
    return [torch.randn(size, device=DEVICE).to(dtype) for size in sizes]


def compute_attention(query, keys, values, width=1.0, bias=None, visible=None, cap=None):
    """The output and the weights of a Gaussian kernel, or with a cap of capped dot products, in float64."""
    query, keys, values = query.double(), keys.double(), values.double()
    if cap is None:
        scores = -(query[..., :, None, :] - keys[..., None, :, :]).square().sum(-1) / (2 * width**2)
    else:
        scores = cap * torch.tanh(query @ keys.mT / math.sqrt(query.shape[-1]) / cap)
    if bias is not None:
        scores = scores + bias.double()
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    weights = torch.softmax(scores, -1).masked_fill(scores.amax(-1, keepdim=True).isneginf(), 0)
    return weights @ values, weights


def check_forward(inputs, width=1.0, rule=None, bias=None, cap=None, tolerance=1e-5):
    """Compare the output, and the weights that its log-sum-exp gives, with the formula."""
    score = Gaussian(width) if cap is None else SoftCap("scaled_dot", cap)
    output, weights = attend(*inputs, score, visible=rule, bias=bias, path="triton_dot", return_weights=True)
    visible = rule
    if rule is not None and not isinstance(rule, torch.Tensor):
        shape = weights.shape
        visible = rule.tile(slice(0, shape[-2]), slice(0, shape[-1]), shape, torch.device(DEVICE))
    expected, exact_weights = compute_attention(*inputs, width, bias, visible, cap)
    assert output.dtype == inputs[0].dtype
    error = torch.linalg.vector_norm(output.double() - expected) / torch.linalg.vector_norm(expected)
    assert error <= tolerance
    torch.testing.assert_close(weights.dense().double(), exact_weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n", "m", "width", "features"), [(1, 1, 1, 1), (3, 300, 20, 7), (150, 9, 16, 40)])
def test_attention_of_any_length_and_width(n, m, width, features):
    check_forward(make_forward_inputs(1, n=n, m=m, width=width, features=features), width=3.0)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.floats(0.3, 4.0))
def test_attention_of_every_length(n, m, width):
    check_forward(make_forward_inputs(2, n=n, m=m, width=4), width=width)


@pytest.mark.parametrize(
    "rule",
    [
        causal(),
        causal(strict=True),
        window(5, 2),
        window(None, 1) & lengths([37, 0]),
        documents([[0] * 13 + [1] * 57, [0] * 70]) & causal(),
        torch.arange(70 * 70).reshape(70, 70) % 7 > 0,
    ],
    ids=["causal", "strict", "window", "lengths", "documents", "mask"],
)
def test_attention_under_every_rule(rule):
    rule = rule.to(DEVICE) if isinstance(rule, torch.Tensor) else rule
    check_forward(make_forward_inputs(2, n=70, m=70, width=6), rule=rule)


def test_attention_with_biases_and_heads_that_share_keys():
    bias = torch.randn(3, 6, 70, device=DEVICE)
    bias[1, 2] = bias[..., :40] = -math.inf  # a row without any key, and whole blocks
    check_forward(make_forward_inputs(2, 3, n=6, m=70, width=8), bias=bias, rule=causal())
    check_forward(make_forward_inputs(2, 3, n=6, m=70, width=8), bias=torch.randn(70, device=DEVICE))
    check_forward(make_forward_inputs(1, 2, 3, n=6, m=9, width=8, groups=(1, 2, 1)))


@pytest.mark.parametrize("cap", [1.0, 50.0])
def test_attention_with_a_soft_cap(cap):
    check_forward(make_forward_inputs(2, n=20, m=70, width=8), cap=cap, rule=causal())


@pytest.mark.parametrize("scale", [1e-3, 30.0])
def test_attention_over_wide_ranges(scale):
    query, keys, values = make_forward_inputs(2, n=20, m=70, width=8)
    check_forward([query * scale, keys * scale, values * 1e4], width=3.0 * scale)


@pytest.mark.parametrize("dtype", [torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])])  # not interpreted
def test_attention_in_half_precision(dtype):
    tolerance = 2e-3 if dtype == torch.float16 else 3e-3  # bfloat16 rounds each number by up to 2e-3
    check_forward(make_forward_inputs(2, n=20, m=300, width=64, dtype=dtype), width=8.0, tolerance=tolerance)


def test_values_that_are_too_wide_run_in_tiles():
    check_forward(make_forward_inputs(1, n=5, m=9, width=4, features=130))


def test_gradients_of_the_attention_are_those_of_the_tiles():
    inputs = [tensor.requires_grad_() for tensor in make_forward_inputs(2, n=20, m=30, width=8)]
    results = [attend(*inputs, "gaussian", path=path) for path in ("triton_dot", "tiled")]
    gradients = [torch.autograd.grad(result.square().sum(), inputs) for result in results]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_the_table_takes_it_for_a_bias_by_key_without_gradients(monkeypatch):
    inputs = make_forward_inputs(1, 1, n=5, m=9, width=4)
    kernels = []
    run = dispatch.run_forward
    monkeypatch.setattr(
        dispatch, "run_forward", lambda kernel, *rest: kernels.append(kernel.name) or run(kernel, *rest)
    )
    attend(*inputs, "gaussian")
    attend(*inputs, SoftCap("scaled_dot", 5.0))
    attend(*inputs, "scaled_dot")
    inputs[0].requires_grad_()
    attend(*inputs, "gaussian")
    assert kernels == ["triton_dot", "triton_dot"]  # torch's function computes the other two


def test_rows_in_chunks_give_the_same(monkeypatch):
    monkeypatch.setattr("regard.attention.kernels.triton.dot.SCRATCH", 1)
    check(make_weights(2, n=66, m=5, width=6, rule=causal()))  # chunks of 64 rows; the last of a sequence has two


def test_long_rows_have_larger_groups():
    assert choose_group(Blocks(128, 128, 8, 3), 16 * 128, 128) == (16, 264)
    assert choose_group(Blocks(64, 64, 4, 3), 2048, 2048) == (64, 2**26 // (64 * 2048 * 2))
    assert choose_group(Blocks(64, 32, 4, 3), 4, 4096) == (16, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_larger_groups_give_the_same(monkeypatch, dtype):
    monkeypatch.setattr("regard.attention.kernels.triton.dot.SCRATCH", 1)
    weights = make_weights(1, n=130, m=300, width=6, rule=causal(), dtype=dtype)
    check(weights)
    check(weights, ["top:3"])


def test_rows_of_many_keys_one_by_one(monkeypatch):
    monkeypatch.setattr("regard.attention.kernels.triton.dot.LINE_MAXIMA", 1)
    check(make_weights(1, n=5, m=1000, width=6))


def test_scratch_memory_does_not_grow_with_sequences_or_keys():
    inputs = Inputs((torch.zeros(1),) * 3, (), (), {}, torch.Size((64, 4096, 2**17)))
    search = Search.start(inputs, Blocks(128, 128, 8, 3), 8)
    assert 2**25 < search.group_maxima.numel() + search.block_maxima.numel() <= 2**26


def test_searches_of_several_sizes_share_one():
    weights = make_weights(1, n=5, m=70, width=8)
    results = TRITON_DOT.reduce(weights.call, weights.statistic, ["top:2", "top:12", "top:3"])
    expected = weights.dense().topk(12, -1)
    for k in (2, 3, 12):
        torch.testing.assert_close(results[f"top:{k}"], tuple(part[..., :k] for part in expected))


def test_fewer_visible_keys_than_are_to_be_found():
    weights = make_weights(1, n=20, m=20, width=8, rule=window(1, 0))
    top_weights, top_keys = TRITON_DOT.reduce(weights.call, weights.statistic, ["top:16"])["top:16"]
    assert (
        top_keys[0, 1:, :2].sort().values
        == torch.tensor([-1, 0], device=DEVICE) + torch.arange(1, 20, device=DEVICE)[:, None]
    ).all()
    assert (top_keys[..., 2:] == -1).all()
    assert not top_weights[..., 2:].any()


def test_the_last_keys_of_equal_scores_lose():
    weights = attend(*(torch.zeros(1, size, 4, device=DEVICE) for size in (2, 70, 70)), return_weights=True)[1]
    results = TRITON_DOT.reduce(weights.call, weights.statistic, ["argmax", "top:3"])
    assert results["argmax"].tolist() == [[0, 0]]
    assert (results["top:3"][0] > 0).all()


def test_the_table_takes_it_for_reductions_of_a_lazy_call(monkeypatch):
    weights = make_weights(2, n=9, m=7, width=4)
    dense = weights.dense()
    monkeypatch.setattr(dispatch, "KERNELS", (TRITON_DOT,))
    torch.testing.assert_close(weights.received(), dense.sum(-2))


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"rule": ~causal()}, "argmax", "it supports causal, window, lengths, documents and one mask, combined with &"),
        ({"rule": key_indices(torch.zeros(2, 9, 1, dtype=torch.long))}, "argmax", "it supports causal, window"),
        ({"dtype": torch.float64}, "entropy", "it does not support float64"),
        ({"score": SoftCap(Bilinear(4, 4).to(DEVICE), 2.0)}, "entropy", "SoftCap is not a dot product here"),
        ({"width": 129}, "entropy", "it supports widths up to 128 in float32"),
        ({"width": 257, "dtype": torch.float16}, "entropy", "it supports widths up to 256 in float16"),
        ({}, f"top:{MAX_TOP + 1}", "it finds up to 16 keys of 262,144"),
    ],
)
def test_other_calls_are_left_to_others(changes, name, reason):
    weights = make_weights(2, **{"n": 9, "m": 7, "width": 4, **changes})
    assert str(TRITON_DOT.get_unsupported_reason(weights.call, name)).startswith(reason)


def test_sums_in_any_order_are_not_deterministic():
    weights = make_weights(2, n=9, m=7, width=4)
    torch.use_deterministic_algorithms(True)
    try:
        reason = TRITON_DOT.get_unsupported_reason(weights.call, "received")
    finally:
        torch.use_deterministic_algorithms(False)
    assert reason == "its sums depend on the order of additions"


def test_limits_of_several_rules_are_the_tightest():
    parts = describe_rule(causal() & window(3, 5) & window(1, None), torch.Size((2, 4, 6)))
    assert parts is not None
    assert (parts.left, parts.right) == (2 - 1, 2)
