"""`attend`: outputs a reader can derive, edge cases, and errors."""

import math
import subprocess
import sys
import threading

import jaxtyping
import pytest
import torch

from regard import RegardError, attend, causal, lengths
from regard.attention import Boxcar, Score
from regard.attention.call import Call, Terms
from regard.attention.functional import hook_attend_calls
from regard.attention.kernels.dispatch import choose_kernel
from regard.attention.normalizers import as_normalizer
from regard.attention.scores import as_score
from tests.gradients import gradcheck

from .cases import DEVICES, FINITE, NAMES, SMOOTH, STEPS, make_score, tensors

PATHS = ["reference", "sdpa", "tiled"]  # paths for dot products; `uniform` has one more


def paths_of(name: str) -> list[str]:
    return [
        path
        for path in PATHS
        if path != "sdpa" or name in ("dot", "scaled_dot", "bilinear", "reduced_rank", "gaussian", "uniform")
    ]


EVERY = [(name, path) for name in NAMES for path in paths_of(name)]


def test_each_axis_has_its_place():  # every size differs, so no swap can pass
    query, keys, values = torch.randn(2, 3, 5, 11), torch.randn(2, 3, 7, 11), torch.randn(2, 3, 7, 13)
    for path in PATHS:
        out, weights = attend(query, keys, values, path=path, return_weights=True)
        assert (out.shape, weights.shape, weights.dense().shape) == ((2, 3, 5, 13), (2, 3, 5, 7), (2, 3, 5, 7))


@pytest.mark.parametrize("path", PATHS)
def test_two_keys_by_hand(path):
    keys = torch.tensor([[0.0], [1.0]])  # scores 0 and 1: weights 1 and e over 1 + e
    out = attend(torch.ones(1, 1), keys, torch.tensor([[2.0], [4.0]]), "dot", path=path)
    assert out.item() == pytest.approx((2 + 4 * math.e) / (1 + math.e))


@pytest.mark.parametrize("path", PATHS)
def test_a_query_equal_to_one_key_of_large_norm_finds_its_value(path):
    keys = 50 * torch.eye(5)
    values = torch.arange(5.0)[:, None]
    torch.testing.assert_close(attend(keys[3:4], keys, values, path=path), torch.tensor([[3.0]]))


def test_exact_and_hard_look_up_a_table():
    keys = torch.nn.functional.one_hot(torch.arange(5)).float()  # a, b, c, d, e
    values = torch.arange(1.0, 6.0)[:, None]  # v1 .. v5
    for score in ("exact", "hard"):
        assert attend(keys[3:4], keys, values, score).item() == 4
    assert attend(torch.full((1, 5), 0.5), keys, values, "exact").item() == 0  # not in the table
    twice = torch.cat([keys, keys[3:4]])  # the same key twice: exact gives the average, hard the first
    more_values = torch.cat([values, torch.tensor([[10.0]])])
    assert attend(keys[3:4], twice, more_values, "exact").item() == 7
    assert attend(keys[3:4], twice, more_values, "hard").item() == 4


@pytest.mark.parametrize("path", [*PATHS, "mean"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_uniform_is_the_average_of_what_may_be_seen(path, dtype):
    query, keys, values = (tensor.to(dtype).requires_grad_() for tensor in tensors(2))
    rule = lengths(torch.tensor([0, 5]))
    whole = attend(query, keys, values, "uniform", path=path)
    short, weights = attend(query, keys, values, "uniform", visible=rule, path=path, return_weights=True)
    torch.testing.assert_close(whole, values.mean(-2, keepdim=True).expand(2, 4, 3), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(short[1], values[1, :5].mean(0).expand(4, 3), rtol=1e-2, atol=1e-2)
    assert not short[0].any()
    expected = torch.tensor([[0.0] * 7, [0.2] * 5 + [0.0] * 2]).to(weights.dtype)[:, None].expand(2, 4, 7)
    torch.testing.assert_close(weights.dense(), expected)
    torch.testing.assert_close(weights.entropy()[1], torch.full((4,), math.log(5), dtype=weights.dtype))
    assert (weights.argmax()[0] == -1).all()
    (gradient,) = torch.autograd.grad(short.sum(), values)  # of each value: four queries, a fifth of the weight
    torch.testing.assert_close(gradient[1, :, 0], torch.tensor([0.8] * 5 + [0.0] * 2, dtype=dtype), rtol=1e-2, atol=0)
    assert not gradient[0].any()


@pytest.mark.parametrize(("name", "path"), EVERY)
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15"])
def test_outputs_lie_in_the_hull_of_the_values(name, path, normalizer):
    if normalizer != "softmax" and (name in [*FINITE, "hard"] or path == "sdpa"):
        pytest.skip("not offered")
    query, keys, _ = tensors(3)
    values = torch.randn(3, 7, 2, dtype=torch.float64)
    out, weights = attend(query, keys, values, make_score(name), normalizer=normalizer, path=path, return_weights=True)
    dense = weights.dense()
    assert (dense >= 0).all()
    reached = dense.sum(-1) > 0
    torch.testing.assert_close(dense.sum(-1)[reached], torch.ones_like(dense.sum(-1)[reached]))
    assert reached[:, 0].all()
    directions = torch.randn(2, 20, dtype=torch.float64)  # inside the hull: never beyond the values in any direction
    beyond = (out @ directions)[reached] - (values @ directions).amax(1)[:, None].expand(3, 4, 20)[reached]
    assert beyond.max() < 1e-12


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exact"])
def test_order_has_no_influence_on_self_attention(name):
    x, _, _ = tensors(2, n=6)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    score = make_score(name)
    torch.testing.assert_close(attend(x[:, order], x[:, order], x[:, order], score), attend(x, x, x, score)[:, order])


@pytest.mark.parametrize(("name", "path"), EVERY)
def test_gradients_are_right(name, path):
    query, keys, values = tensors(2)
    score = make_score(name)
    if name not in STEPS:
        query.requires_grad_()
        keys.requires_grad_()
    values.requires_grad_()
    bias = torch.randn(2, 1, 7, dtype=torch.float64, requires_grad=name not in ("exact", "hard"))
    visible = torch.rand(2, 4, 7, generator=torch.Generator().manual_seed(1)) < 0.8
    visible[0, 1] = False
    names = [key for key, value in score.named_parameters() if value.requires_grad]
    parameters = [value.detach().clone().requires_grad_() for value in score.parameters() if value.requires_grad]

    def run(query, keys, values, bias, *parameters):
        swapped = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(
            Attend(score, visible, path), {f"score.{k}": v for k, v in swapped.items()}, (query, keys, values, bias)
        )

    assert gradcheck(run, (query, keys, values, bias, *parameters))


class Attend(torch.nn.Module):
    def __init__(self, score, visible, path, **settings):
        super().__init__()
        self.score, self.visible, self.path, self.settings = score, visible, path, settings

    def forward(self, query, keys, values, bias):
        return attend(query, keys, values, self.score, visible=self.visible, bias=bias, path=self.path, **self.settings)


@pytest.mark.parametrize("name", ["dot", "additive", "gaussian"])
@pytest.mark.parametrize("normalizer", ["sparsemax", "entmax15", "none"])
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_gradients_of_the_other_normalizers_are_right(name, normalizer, path):
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, spread=1.0))
    bias = torch.randn(2, 4, 7, dtype=torch.float64, requires_grad=True)
    run = Attend(make_score(name), causal(), path, normalizer=normalizer)
    assert gradcheck(run, (query, keys, values, bias), atol=1e-4)


def test_the_reference_has_a_second_derivative_and_the_others_say_that_they_have_none():
    query, keys, values = (tensor.requires_grad_() for tensor in tensors())
    assert torch.autograd.gradgradcheck(lambda q, k, v: attend(q, k, v, path="reference"), (query, keys, values))
    for path in ("sdpa", "tiled"):
        out, _ = attend(query, keys, values, path=path, return_weights=True)
        with pytest.raises(RegardError) as error:
            torch.autograd.grad(out.sum(), query, create_graph=True)
        assert str(error.value) == (
            'attend: this path has no second derivative; pass path="reference" to use create_graph=True'
        )
    (gradient,) = torch.autograd.grad(attend(query, keys, values).sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="is not implemented"):  # torch's own function
        gradient.sum().backward()


@pytest.mark.parametrize(("name", "path"), EVERY)
@pytest.mark.parametrize("device", DEVICES)
def test_a_query_that_sees_nothing_gets_zeros_forwards_and_backwards(name, path, device):
    query, keys, values = (t.float().to(device).requires_grad_() for t in tensors(2))
    score = make_score(name, torch.float32).to(device)
    out, weights = attend(
        query, keys, values, score, visible=lengths(torch.tensor([0, 3], device=device)), path=path, return_weights=True
    )
    assert not out[0].any()
    assert not weights.dense()[0].any()
    assert not weights.entropy()[0].any()
    assert (weights.argmax()[0] == -1).all()
    (out.square().sum() + weights.dense().square().sum()).backward()
    for tensor in (query, keys, values):
        if tensor.grad is not None:
            assert not tensor.grad[0].any()
            assert tensor.grad.isfinite().all()
    for parameter in score.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize(("name", "path"), EVERY)
@pytest.mark.parametrize(("n", "m"), [(0, 7), (4, 0), (0, 0), (4, 1), (1, 1)])
def test_no_query_no_key_one_key(name, path, n, m):
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, n=n, m=m))
    out, weights = attend(query, keys, values, make_score(name), visible=causal(), path=path, return_weights=True)
    assert (out.shape, weights.shape) == ((2, n, 3), (2, n, m))
    assert weights.dense().shape == (2, n, m)
    assert weights.received().shape == (2, m)
    assert weights.entropy().shape == (2, n)
    assert weights.argmax().shape == (2, n)
    assert weights.top(3)[1].shape == (2, n, min(3, m))
    if m == 0:
        assert not out.any()
    elif n == 1 and name not in FINITE:
        torch.testing.assert_close(out, values)
    out.sum().backward()
    assert values.grad is not None
    assert values.grad.shape == values.shape


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scores_of_sixty_thousand(path, dtype):
    keys = torch.tensor([[240.0], [-240.0], [239.0], [0.0]], dtype=dtype)  # scores ±60,000, 59,750 and 0
    values = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=dtype)
    query = torch.tensor([[250.0], [-250.0]], dtype=dtype).requires_grad_()
    out = attend(query, keys, values, "dot", path=path)
    assert out.flatten().tolist() == [1, 2]
    out.sum().backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()


@pytest.mark.parametrize(("name", "path"), EVERY)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("device", DEVICES)
def test_every_type_of_number_is_near_float64_of_the_same_inputs(name, path, dtype, device):
    exact = [t.to(dtype).double().to(device) for t in tensors(2, 3)]
    score = make_score(name, dtype).to(device)
    reference = make_score(name, dtype).double().to(device)
    expected, wanted_weights = attend(*exact, reference, path="reference", return_weights=True)
    out, weights = attend(*(t.to(dtype) for t in exact), score, path=path, return_weights=True)
    assert out.dtype == dtype
    assert weights.dense().dtype == torch.float32
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=8 * eps)
    torch.testing.assert_close(weights.dense().double(), wanted_weights.dense(), rtol=0, atol=8 * eps)


@pytest.mark.parametrize("name", ["scaled_dot", "gaussian"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("device", DEVICES)
def test_weights_of_half_precision_inputs_have_full_precision(name, dtype, device):
    query, keys, values = (t.to(dtype).to(device) for t in tensors(2, n=40, m=60, spread=2.0))
    expected = attend(query.double(), keys.double(), values.double(), name, path="reference", return_weights=True)[
        1
    ].dense()
    weights = attend(query, keys, values, name, path="sdpa", return_weights=True)[1]
    torch.testing.assert_close(weights.dense().double(), expected, rtol=0, atol=1e-4)  # a tenth of float16's eps


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
def test_autocast_reaches_every_path(name, device):
    query, keys, values = (t.float().to(device) for t in tensors(2))
    score = make_score(name, torch.float32).to(device)
    plain = attend(query, keys, values, score, path="reference")
    for path in paths_of(name):
        with torch.autocast(device, torch.bfloat16):
            out, weights = attend(query.requires_grad_(), keys, values, score, path=path, return_weights=True)
        assert out.dtype == torch.bfloat16, path
        if name in SMOOTH:
            out.float().sum().backward()  # outside autocast, as users do
            torch.testing.assert_close(out.float(), plain, rtol=0.1, atol=0.1)
            torch.testing.assert_close(weights.dense() @ values, plain, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(("name", "path"), EVERY)
def test_leading_axes_broadcast(name, path):
    query, keys, values = torch.randn(2, 3, 1, 4, 6), torch.randn(3, 5, 7, 6), torch.randn(2, 1, 5, 7, 2)
    score = make_score(name, torch.float32)
    out, weights = attend(query * 0.3, keys * 0.3, values, score, path=path, return_weights=True)
    full = [t.expand(2, 3, 5, *t.shape[-2:]).contiguous() for t in (query * 0.3, keys * 0.3, values)]
    expected, wanted_weights = attend(*full, score, path="reference", return_weights=True)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(weights.dense(), wanted_weights.dense())
    torch.testing.assert_close(weights.received(), wanted_weights.received())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", DEVICES)
def test_grouped_heads_equal_repeated_keys(path, device):
    query, keys, values = (
        torch.randn(2, 3, heads, length, 8, device=device, requires_grad=True)
        for heads, length in ((4, 5), (1, 9), (1, 9))
    )
    attend(query, keys, values, visible=causal(), path=path).square().sum().backward()
    gradients = [t.grad for t in (query, keys, values)]
    many = [t.detach().expand(2, 3, 4, *t.shape[-2:]).clone().requires_grad_() for t in (query, keys, values)]
    attend(*many, visible=causal(), path="reference").square().sum().backward()
    for gradient, expanded, tensor in zip(gradients, many, (query, keys, values), strict=True):
        assert expanded.grad is not None
        torch.testing.assert_close(gradient, expanded.grad.sum_to_size(tensor.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["scaled_dot", "additive", "epanechnikov"])
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_dropout_drops_and_keeps_the_mean(name, path):
    torch.manual_seed(3)
    query, keys = torch.zeros(1, 6), torch.zeros(1000, 6)  # all weights 1/1000
    values = torch.eye(1000).requires_grad_()
    out, weights = attend(
        query, keys, values, make_score(name, torch.float32), dropout=0.3, path=path, return_weights=True
    )
    kept = out[0] > 0
    assert 0.65 < kept.float().mean() < 0.75
    torch.testing.assert_close(out[0][kept], torch.full_like(out[0][kept], 1 / 700))
    torch.testing.assert_close(weights.dense(), torch.full((1, 1000), 0.001))  # those before dropout
    (gradient,) = torch.autograd.grad(out.sum(), values)
    torch.testing.assert_close(gradient.sum(1) / 1000, out[0])  # backward drops the same


@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_dropout_follows_the_seed_and_its_gradient_is_right(path):
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2))

    def run(*tensors):
        torch.manual_seed(5)
        return attend(*tensors, dropout=0.5, normalizer="entmax15", path=path)

    assert torch.equal(run(query, keys, values), run(query, keys, values))
    assert gradcheck(run, (query, keys, values), atol=1e-4)
    assert not attend(query, keys, values, dropout=1.0, path=path).any()


def test_a_score_with_dropout_of_its_own_draws_the_same_numbers_in_backward():
    class Dropped(Score):
        def __init__(self):
            super().__init__()
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, query, keys):
            return self.dropout(query[..., :, None, :] * keys[..., None, :, :]).sum(-1)

    query, keys, values = (tensor.requires_grad_() for tensor in tensors(n=40, m=50))
    score = Dropped()

    def run(path):
        torch.manual_seed(2)
        out = attend(query, keys, values, score, path=path)
        torch.manual_seed(99)  # other code draws random numbers before backward
        return out, torch.autograd.grad(out.square().sum(), (query, keys, values))

    state = torch.get_rng_state()
    out, gradients = run("tiled")
    reference, expected = run("reference")
    torch.testing.assert_close(out, reference)
    torch.testing.assert_close(gradients, expected)
    assert not torch.equal(torch.get_rng_state(), state)


def test_bias_with_minus_infinity_hides_without_a_nan():
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2))
    bias = torch.randn(2, 4, 7, dtype=torch.float64)
    bias[0, 2] = -math.inf
    bias[1, :, 3:] = -math.inf
    bias.requires_grad_()
    gradients = []
    for path in PATHS:
        out, weights = attend(query, keys, values, bias=bias, path=path, return_weights=True)
        assert not out[0, 2].any()
        assert not weights.dense()[1, :, 3:].any()
        gradients.append(torch.autograd.grad(out.square().sum() + weights[..., 1].sum(), (query, keys, values, bias)))
        assert all(gradient.isfinite().all() for gradient in gradients[-1])
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", DEVICES)
def test_rows_need_not_lie_in_one_piece(path, device):
    x = torch.randn(2, 8, 30, device=device)
    strided = [x.mT.requires_grad_() for _ in range(3)]
    whole = [x.mT.contiguous().requires_grad_() for _ in range(3)]
    output, expected = attend(*strided, path=path), attend(*whole, path="reference")
    torch.testing.assert_close(output, expected)
    gradients = torch.autograd.grad(output.square().sum(), strided)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected.square().sum(), whole), rtol=1e-4, atol=1e-5)
    same = torch.randn(2, 30, 1, device=device).expand(2, 30, 8)
    torch.testing.assert_close(attend(same, x.mT, same, path=path), attend(same, x.mT, same, path="reference"))


@pytest.mark.parametrize(("name", "path"), EVERY)
def test_an_empty_batch_gives_an_empty_output(name, path):
    out, weights = attend(*tensors(0, 2), make_score(name), path=path, return_weights=True)
    assert out.shape == (0, 2, 4, 3)
    assert weights.received().shape == (0, 2, 7)


@pytest.mark.parametrize(("name", "path"), EVERY)
def test_a_batch_of_values_alone_has_its_gradients(name, path):
    query, keys, _ = (tensor.requires_grad_() for tensor in tensors())
    values = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    inputs = [values] if name in STEPS else [query, keys, values]
    gradients = torch.autograd.grad(attend(query, keys, values, make_score(name), path=path).square().sum(), inputs)
    expected = torch.autograd.grad(
        attend(query, keys, values, make_score(name), path="reference").square().sum(), inputs
    )
    torch.testing.assert_close(gradients, expected)


@pytest.mark.parametrize("path", ["sdpa", "tiled"])
@pytest.mark.parametrize("device", DEVICES)
def test_gaussian_is_exact_far_from_the_origin(path, device):
    years = torch.arange(2000.0, 2021.0, device=device)[:, None].requires_grad_()
    output = attend(years + 0.3, years, (years / 3).sin(), "gaussian", path=path)
    exact = years.detach().double().requires_grad_()
    expected = attend(exact + 0.3, exact, (exact / 3).sin(), "gaussian", path="reference")
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-4)
    (gradient,), (right,) = torch.autograd.grad(output.sum(), years), torch.autograd.grad(expected.sum(), exact)
    torch.testing.assert_close(gradient.double(), right, rtol=0, atol=1e-3)


def test_equal_keys_of_large_scores_share_alike():
    keys = torch.full((2, 1), 240.0)
    for path in ("reference", "tiled"):
        out = attend(torch.full((1, 1), 250.0), keys, torch.tensor([[1.0], [3.0]]), "dot", path=path)
        assert out.item() == 2


@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_a_bias_common_to_all_keys_changes_no_kernel(path):
    query, keys, values = tensors(2)
    plain = attend(query, keys, values, "epanechnikov", path=path)
    for shift in (-500.0, 500.0):
        bias = torch.full((7,), shift, dtype=torch.float64)
        torch.testing.assert_close(attend(query, keys, values, "epanechnikov", bias=bias, path=path), plain)


def test_threads_can_train_one_score():
    query, keys, values = tensors(n=30, m=40)
    score = make_score("additive")
    attend(query, keys, values, score, path="tiled").sum().backward()
    alone, score.energy.grad = score.energy.grad.clone(), None
    before = dict(score.named_parameters())

    def train():
        for _ in range(10):
            attend(query, keys, values, score, path="tiled").sum().backward()

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(parameter is before[name] for name, parameter in score.named_parameters())
    torch.testing.assert_close(score.energy.grad, 30 * alone)


def test_the_path_is_chosen_for_speed():
    def chosen(name, *, n=300, dropout=0.0, normalizer="softmax", dtype=torch.float32, visible=None):
        score = as_score(make_score(name, dtype))
        query, keys = torch.zeros(2, n, 6, dtype=dtype), torch.zeros(2, 300, 6, dtype=dtype)
        terms = Terms(score, visible, as_normalizer(normalizer, score), torch.Size((2, n, 300)), dropout=dropout)
        return choose_kernel(Call(terms, query, keys)).name

    assert chosen("scaled_dot") == chosen("gaussian") == chosen("bilinear") == "sdpa"
    assert chosen("uniform") == chosen("uniform", visible=lengths(torch.tensor([3, 4]))) == "mean"
    assert chosen("uniform", visible=causal()) == "sdpa"
    assert chosen("additive") == chosen("concat") == chosen("scaled_dot", n=3000, dropout=0.1) == "tiled"
    assert chosen("scaled_dot", n=3000, normalizer="sparsemax") == chosen("boxcar", n=3000) == "tiled"
    assert chosen("additive", n=1) == "reference"  # one step of a decoder
    assert chosen("scaled_dot", n=0) == "reference"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"path": "flash"},
            'unknown path "flash"; choose from mean, reference, sdpa, tiled, triton_additive, '
            "triton_distance, triton_dot",
        ),
        (
            {"path": "sdpa", "score": "boxcar"},
            'path "sdpa" does not support this call: Boxcar is not a dot product here; '
            'use path=None, "tiled" or "reference"',
        ),
        (
            {"path": "mean"},
            'path "mean" does not support this call: ScaledDot does not give all keys the same score; '
            'use path=None, "tiled" or "reference"',
        ),
        (
            {"path": "mean", "score": "uniform", "visible": causal()},
            'path "mean" does not support this call: not all queries see the same keys; '
            'use path=None, "tiled" or "reference"',
        ),
        (
            {"path": "mean", "score": "uniform", "dropout": 0.5},
            'path "mean" does not support this call: it supports neither bias nor a sink nor dropout nor normalizers '
            'other than softmax; use path=None, "tiled" or "reference"',
        ),
        ({"normalizer": "sparse"}, 'unknown normalizer "sparse"; did you mean "sparsemax"?'),
        (
            {"normalizer": "sparsemax", "score": "boxcar"},
            'normalizer "sparsemax" cannot be combined with Boxcar, a kernel of finite support; '
            "choose from softmax (divide by the sum), none",
        ),
        (
            {"normalizer": "none", "score": "hard"},
            'normalizer "none" cannot be combined with Hard, which gives the best key all the weight',
        ),
        ({"dropout": 1.5}, "attend: dropout must be at least 0 and at most 1, got 1.5"),
        ({"dropout": "a"}, "attend: dropout must be at least 0 and at most 1, got 'a'"),
        ({"normalizer": ["softmax"]}, 'unknown normalizer "[\'softmax\']"; did you mean "softmax"?'),
        (
            {"visible": torch.ones(2, 7, 4, dtype=torch.bool)},
            "visible: shape (2, 7, 4) does not broadcast to (2, 4, 7)",
        ),
        (
            {"visible": torch.ones(2, 7, dtype=torch.bool)},
            "visible: shape (2, 7) does not broadcast to (2, 4, 7); for one mask per sequence, insert axes of size 1",
        ),
        (
            {"visible": torch.ones(2, 4, 7)},
            "visible must be a bool tensor (True = visible) or a rule such as causal(), got float32",
        ),
        ({"bias": torch.ones(3, 7)}, "bias: shape (3, 7) does not broadcast to (2, 4, 7)"),
        (
            {"visible": lengths(torch.tensor([1, 2, 3]))},
            "lengths: expected the first axes of the batch (2,), got (3,)",
        ),
    ],
)
def test_what_does_not_fit_is_said(settings, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        attend(*tensors(2), **settings)
    assert str(error.value) == message


def test_a_listener_is_told_of_each_call_before_it_is_computed():
    query, keys, values = torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.eye(2)
    score, calls = Boxcar(), []

    def widen(terms, query, keys):
        calls.append((terms.shape, torch.cdist(query, keys).tolist()))
        terms.score.width.fill_(9.0)

    with torch.no_grad(), hook_attend_calls(widen):
        output = attend(query, keys, values, score)
    assert calls == [((1, 2), [[5.0, 1.0]])]
    assert output.tolist() == [[0.5, 0.5]]  # both within 9
    attend(query, keys, values, score)
    assert len(calls) == 1


def test_the_first_call_loads_no_algebra():
    program = (
        "import sys, torch; before = set(sys.modules); from regard import attend; x = torch.zeros(2, 3, 4); "
        "attend(x, x[:1], x); attend(x, x[:1], x, 'uniform', path='reference'); "
        "assert 'sympy' not in set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
