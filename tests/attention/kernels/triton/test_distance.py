"""Boxcar and Epanechnikov kernels by Triton, in its interpreter where there is no GPU, against float64 formulas."""

import importlib.util
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import RegardError
from regard.attention import Additive, Boxcar, Epanechnikov, Gaussian, attend, causal, documents, lengths, window
from regard.attention.kernel_scores import Exact
from regard.attention.kernels import dispatch
from regard.attention.kernels.triton.distance import TRITON_DISTANCE, Arguments

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning"),  # in pairs past the end
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
POWERS = [None, 1.0, 2.0, 0.5, 3.5]  # None for the boxcar


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Run programs in the interpreter where there is no GPU; the module of programs must not exist before."""
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def make_score(power, width=1.0, heads=None):
    return (Boxcar(width, heads=heads) if power is None else Epanechnikov(width, power=power, heads=heads)).to(DEVICE)


def make_inputs(*batch, n, m, width=3, features=4, spread=0.5, dtype=torch.float32, groups=None):
    torch.manual_seed(5)
    sizes = ((*batch, n, width), (*(groups or batch), m, width), (*(groups or batch), m, features))
    return [(torch.randn(size, device=DEVICE) * spread).to(dtype) for size in sizes]


def compute_dense(power, width, query, keys, values, visible=True, factors=1.0):
    """The formula, in float64 and differentiable: kernel values times `factors`, divided by their sum."""
    squares = (query[..., :, None, :] - keys[..., None, :, :]).square().sum(-1)
    distances = torch.where(squares > 0, squares, 1).sqrt() * (squares > 0)
    if power is None:
        kernel = (distances <= width).double()
    else:
        kernel = (1 - (distances / width).where(squares > 0, 0.0) ** power).clamp_min(0)
        kernel = torch.where(squares > 0, kernel, 1)
    kernel = kernel * visible * factors
    total = kernel.sum(-1, keepdim=True)
    return kernel @ values / torch.where(total > 0, total, 1), total


def check(inputs, power, width=1.0, rule=None, visible=True, tolerance=1e-5, bias=None):
    """Compare output, sums and all gradients with the formula."""
    score = make_score(power, width)
    if power is not None:
        score.width.requires_grad_()
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output, weights = attend(
        *leaves, score, visible=rule, bias=bias, path="triton_distance", return_weights=True
    )  # fmt: skip
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    exact_width = torch.tensor(width, dtype=torch.float32, device=DEVICE).double().requires_grad_()
    factors = 1.0 if bias is None else bias.double().exp()
    expected, total = compute_dense(power, exact_width, *exact, visible, factors)
    assert output.dtype == inputs[0].dtype
    torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
    if bias is None:
        sums = torch.where(total > 0, total, math.inf)
        torch.testing.assert_close(weights.statistic.double(), sums, rtol=10 * tolerance, atol=tolerance)
    gradient = torch.randn_like(output)
    output.backward(gradient)
    expected.backward(gradient.double())
    if power is None:
        assert not leaves[0].grad.any()
        assert not leaves[1].grad.any()
        leaves, exact = leaves[2:], exact[2:]
    else:
        leaves, exact = [*leaves, score.width], [*exact, exact_width]
    for leaf, exact_leaf in zip(leaves, exact, strict=True):
        scale = 1 + exact_leaf.grad.abs().max().item()
        torch.testing.assert_close(leaf.grad.double(), exact_leaf.grad, rtol=0, atol=10 * tolerance * scale)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize(("n", "m", "width"), [(1, 1, 1), (5, 70, 3), (70, 9, 20)])
def test_any_power_length_and_width(power, n, m, width):
    check(make_inputs(1, n=n, m=m, width=width, spread=1 / math.sqrt(2 * width)), power)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from(POWERS), st.floats(0.1, 4.0))
def test_every_length(n, m, power, width):
    width = torch.tensor(width).item()
    check(make_inputs(1, n=n, m=m), power, width)


@pytest.mark.parametrize("power", [None, 1.0])
@pytest.mark.parametrize(
    "rule",
    [
        causal(),
        causal(strict=True),
        window(5, 2),
        window(None, 1) & lengths([37, 0]),
        window(20, None),
        documents([[0] * 13 + [1] * 57, [0] * 70]) & causal(),
        torch.arange(70) % 3 > 0,
        torch.arange(70 * 70).reshape(70, 70) % 7 > 0,
    ],
    ids=["causal", "strict", "window", "lengths", "left", "documents", "keys", "mask"],
)
def test_every_rule(rule, power):
    shape = torch.Size((2, 70, 70))
    if isinstance(rule, torch.Tensor):
        rule = visible = rule.to(DEVICE)
    else:
        visible = rule.tile(slice(0, 70), slice(0, 70), shape, torch.device(DEVICE))
    check(make_inputs(2, n=70, m=70), power, rule=rule, visible=visible)


@pytest.mark.parametrize("power", POWERS)
def test_points_on_the_edge_belong_to_it(power):
    steps = torch.tensor([[3.0, 4.0], [-4.0, 3.0], [5.0, 0.0], [0.0, 5.0], [3.0, 3.0], [4.0, 4.0]], device=DEVICE)
    for offset in (0.0, 1000.0):
        query = torch.full((1, 3, 2), offset, device=DEVICE)
        values = torch.randn(1, 6, 4, device=DEVICE)
        check([query, steps[None] + offset, values], power, 5.0)


@pytest.mark.parametrize("power", POWERS)
def test_differences_decide_next_to_the_edge(power):
    torch.manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(1, 70, 16, dtype=torch.float64, device=DEVICE), dim=-1)
    query = torch.randn(1, 3, 16, device=DEVICE)
    near = query.double().mean(-2, keepdim=True) + directions * (1 + 1e-6 * torch.randn(70, 1, device=DEVICE))
    query = query * 0 + query.mean(-2, keepdim=True)  # three times the same point
    check([query, near.float(), torch.randn(1, 70, 4, device=DEVICE)], power, tolerance=1e-4 if power else 1e-5)


@pytest.mark.parametrize("power", POWERS)
def test_equal_points_have_the_largest_weight_and_no_gradient(power):
    query, _, values = make_inputs(1, n=40, m=40, width=16, spread=1.0)
    query[:, 20:] = query[:, :20]
    check([query, query.clone(), values], power, 4.0)


@pytest.mark.parametrize("power", POWERS)
def test_points_far_from_zero(power):
    query, keys, values = make_inputs(1, n=20, m=40, width=4)
    check([query + 1000, keys + 1000, values], power)


@pytest.mark.parametrize("power", POWERS)
def test_a_query_that_reaches_no_key_gets_zeros(power):
    query, keys, values = make_inputs(1, n=20, m=40)
    query[:, 7:] += 100
    check([query, keys, values], power)
    check([query * 0 + 9, keys * 0, values], power)


def test_a_learned_width_for_each_head():
    inputs = make_inputs(2, 3, n=9, m=20)
    score = Epanechnikov(1.0, learnable=True, heads=3).to(DEVICE)
    with torch.no_grad():
        score.width[:] = torch.tensor([0.5, -1.0, 2.0], device=DEVICE)[:, None, None]
    attend(*inputs, score, path="triton_distance").sum().backward()
    width = score.width.detach().double().requires_grad_()
    expected, _ = compute_dense(1.0, width.abs(), *(tensor.double() for tensor in inputs))
    expected.sum().backward()
    torch.testing.assert_close(score.width.grad.double(), width.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("power", [None, 1.0])
def test_heads_that_share_keys_and_transposed_layouts(power):
    check(make_inputs(2, 2, 3, n=6, m=9, groups=(2, 2, 1)), power, 2.0)
    query, keys, values = (tensor.transpose(1, 2) for tensor in make_inputs(2, 9, n=3, m=3))
    check([query, keys, values], power, 2.0)
    query, keys, values = make_inputs(1, n=6, m=9)
    check([query, keys.expand(3, -1, -1), values], power, 2.0)


@pytest.mark.parametrize("power", [None, 2.0])
def test_a_bias_multiplies_the_kernel(power):
    bias = torch.randn(6, 9, device=DEVICE)
    bias[2, 3:] = -math.inf
    check(make_inputs(2, n=6, m=9), power, 2.0, bias=bias)


def test_the_values_of_the_kernel_without_a_sum():
    inputs = [tensor.requires_grad_() for tensor in make_inputs(2, n=6, m=9)]
    score = make_score(1.0, 2.0)
    results = [attend(*inputs, score, normalizer="none", path=path) for path in ("triton_distance", "reference")]
    torch.testing.assert_close(*results)
    gradients = [torch.autograd.grad(result.square().sum(), inputs) for result in results]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dtype", [torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])])  # not interpreted
@pytest.mark.parametrize("power", POWERS)
def test_half_precision(power, dtype):
    tolerance = 2e-3 if dtype == torch.float16 else 3e-3  # bfloat16 rounds each number by up to 2e-3
    check(make_inputs(1, n=20, m=70, width=16, spread=0.2, dtype=dtype), power, tolerance=tolerance)


@pytest.mark.parametrize("power", [None, 1.0])
@pytest.mark.parametrize(
    "rule",
    [causal(strict=True), window(90, 40), window(None, 1) & lengths([37, 0]), documents([[0] * 13 + [1] * 287] * 2)],
    ids=["strict", "window", "lengths", "documents"],
)
def test_rules_in_half_precision(rule, power):
    visible = rule.tile(slice(0, 300), slice(0, 300), torch.Size((2, 300, 300)), torch.device(DEVICE))
    inputs = make_inputs(2, n=300, m=300, width=16, spread=0.3, dtype=torch.float16)
    check(inputs, power, 1.5, rule=rule, visible=visible, tolerance=2e-3)


@pytest.mark.parametrize("power", POWERS)
def test_queries_in_doubt_in_half_precision(power):
    query, keys, values = make_inputs(1, n=40, m=70, width=4, dtype=torch.float16)
    for offset in (10, 100):  # where products round off more and more of a distance
        check([query + offset, keys + offset, values], power, tolerance=2e-3)
    check([query, query.clone(), values[:, :40]], power, tolerance=2e-3)  # equal points


@pytest.mark.parametrize("power", POWERS)
def test_points_on_the_edge_in_half_precision(power):
    points = [torch.randint(-4, 5, (1, 70, 2), device=DEVICE).half() for _ in range(2)]
    check([*points, torch.randn(1, 70, 4, device=DEVICE).half()], power, 5.0, tolerance=2e-3)


@pytest.mark.parametrize("power", [None, 1.0])
def test_a_bias_and_heads_that_share_keys_in_half_precision(power):
    bias = torch.randn(6, 9, device=DEVICE)
    bias[2, 3:] = -math.inf
    inputs = make_inputs(2, 2, 3, n=6, m=9, groups=(2, 2, 1), dtype=torch.float16)
    check(inputs, power, 2.0, bias=bias, tolerance=2e-3)


def test_weights_just_inside_of_the_edge_in_half_precision():
    query = torch.zeros(1, 1, 1, dtype=torch.float16, device=DEVICE)
    keys = torch.tensor([[[2047.0], [2046.0]]], device=DEVICE).half()
    values = torch.tensor([[[0.0], [1.0]]], device=DEVICE).half()
    output = attend(query, keys, values, make_score(2.0, 2047.5), path="triton_distance")
    kernel = 1 - (keys[0, :, 0].double() / 2047.5) ** 2  # 5e-4 and 1.5e-3
    torch.testing.assert_close(output[0, 0, 0].double(), kernel[1] / kernel.sum(), rtol=2e-3, atol=0)


def test_values_that_are_too_wide_run_in_tiles():
    query, keys, values = make_inputs(1, n=5, m=9, features=130)
    check([query, keys, values], 1.0)


def test_the_table_takes_it_for_large_calls(monkeypatch):
    inputs = make_inputs(1, n=5, m=9)
    monkeypatch.setattr(dispatch, "KERNELS", (TRITON_DISTANCE,))
    kernels = []
    run = dispatch.run_forward
    monkeypatch.setattr(dispatch, "run_forward", lambda kernel, *rest: kernels.append(kernel) or run(kernel, *rest))
    attend(*inputs, "epanechnikov")
    assert kernels == [TRITON_DISTANCE]


def test_a_width_on_another_device_is_moved_to_the_queries():
    call = attend(*make_inputs(1, n=5, m=9), "boxcar", path="tiled", return_weights=True)[1].call
    query, keys = call.query.to("meta"), call.keys.to("meta")
    arguments = Arguments.build(replace(call, query=query, keys=keys), torch.empty(1, 9, 4, device="meta"))
    assert call.terms.score.width.device.type == "cpu"
    assert arguments.reaches.tensor.is_meta


@pytest.mark.parametrize("score", ["boxcar", "gaussian", Additive(3, 3, hidden=4)], ids=str)
def test_programs_are_launched_on_the_device_of_their_call(score, monkeypatch):
    inputs = [tensor.requires_grad_() for tensor in make_inputs(1, n=20, m=9)]
    devices = []
    enter = torch.cuda.device_of
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: devices.append(tensor.device.type) or enter(tensor))
    path = {"boxcar": "triton_distance", "gaussian": "triton_dot"}.get(score, "triton_additive")
    score = score.to(DEVICE) if isinstance(score, Additive) else score
    output, weights = attend(*inputs, score, path=path, return_weights=True)
    output.sum().backward()
    weights.received()
    assert devices == [DEVICE] * 2


@pytest.mark.parametrize(
    ("score", "changes", "reason"),
    [
        (Exact(), {}, "Exact is neither a boxcar nor an Epanechnikov kernel"),
        (Gaussian(), {}, "Gaussian is not a kernel of a distance"),
        (Boxcar(), {"dropout": 0.5}, "it does not support dropout"),
        (Boxcar(), {"bias": torch.zeros(9, requires_grad=True)}, "it has no gradient for a bias"),
        (Boxcar(), {"visible": ~causal()}, "it supports causal, window, lengths, documents and one mask"),
    ],
)
def test_other_calls_are_left_to_others(score, changes, reason):
    inputs = make_inputs(1, n=5, m=9)
    changes = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in changes.items()}
    with pytest.raises(RegardError, match=reason):
        attend(*inputs, score, path="triton_distance", **changes)
