"""Products of weights, compared with matrices that are written down by their formulas in NumPy's float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import RegardError, Weights, attend, causal, lengths, window
from regard.attention.analysis import rollout
from regard.attention.products import swap_roles
from tests.gradients import gradcheck

from .cases import DEVICES, FINITE, FORMULAS, NAMES, make_score, numpy_weights, tensors

NORMALIZERS = ("softmax", "sparsemax", "entmax15", "none")


def find_threshold(scores, total):
    """The number t for which `total(scores - t)` is 1, by bisection."""
    low, high = scores.max() - 2, scores.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if total(scores - middle) > 1 else (low, middle)
    return low


def normalize_row(scores, normalizer):
    """The weights of one row by the definition of a normalizer; -inf hides a key."""
    weights, seen = np.zeros_like(scores), np.isfinite(scores)
    shown = scores[seen]
    if normalizer == "none" or not len(shown):
        weights[seen] = shown
    elif normalizer == "sparsemax":
        weights[seen] = np.maximum(0, shown - find_threshold(shown, lambda x: np.maximum(0, x).sum()))
    else:
        assert normalizer == "entmax15"
        threshold = find_threshold(shown / 2, lambda x: (np.maximum(0, x) ** 2).sum())
        weights[seen] = np.maximum(0, shown / 2 - threshold) ** 2
    return weights


def numpy_matrix(name, score, query, keys, seen, normalizer):
    """The weights of one head by their formula."""
    if normalizer == "softmax":
        return numpy_weights(name, score, query, keys, seen)
    formula, is_kernel = FORMULAS[name]
    parameters = {key: value.detach().numpy() for key, value in score.named_parameters()}
    scores = np.array([[formula(q, k, parameters) for k in keys] for q in query])
    if normalizer == "none":
        return np.where(seen, scores, 0)
    scores = np.log(scores) if is_kernel else scores  # a kernel without finite support: its logarithm is the score
    return np.stack([normalize_row(row, normalizer) for row in np.where(seen, scores, -np.inf)])


def is_offered(name, normalizer):
    if name in ("hard", "uniform"):  # the score of uniform is 0, where its formula as a kernel has 1
        return normalizer == "softmax"
    return normalizer in ("softmax", "none") or name not in FINITE


CHOICES = [(name, normalizer) for name in NAMES for normalizer in NORMALIZERS if is_offered(name, normalizer)]


def look_at(rule, n, m):
    """What two texts may see under a rule, in NumPy."""
    before = np.arange(m)[None] - (np.arange(n)[:, None] + m - n)  # how far a key is from a query
    if rule == "causal":
        return causal(), np.stack([before <= 0] * 2)
    if rule == "lengths":
        counts = np.array([max(0, m - 2), m])
        return lengths(torch.tensor(counts)), np.stack([np.tile(np.arange(m) < count, (n, 1)) for count in counts])
    if rule == "window":
        return window(2, 1), np.stack([(before >= -2) & (before <= 1)] * 2)
    if rule == "given":
        chosen = np.random.default_rng(n * m).random((2, n, m)) < 0.6
        return torch.from_numpy(chosen[:, None]), chosen
    return None, np.ones((2, n, m), dtype=bool)


@settings(max_examples=60)
@given(
    st.sampled_from(CHOICES),
    st.sampled_from(["all", "causal", "lengths", "window", "given"]),
    st.sampled_from([None, "tiled"]),
    *(st.integers(low, high) for low, high in ((1, 7), (1, 7), (1, 3), (1, 4))),
)
def test_products_are_those_of_the_matrix_of_the_formula(choice, rule, path, n, m, heads, width):
    name, normalizer = choice
    query, keys, values = tensors(2, heads, n=n, m=m)
    score, (visible, seen) = make_score(name), look_at(rule, n, m)
    weights = attend(
        query, keys, values, score, visible=visible, normalizer=normalizer, path=path, return_weights=True
    )[1]
    matrix = np.stack([
        [numpy_matrix(name, score, query[b, h].numpy(), keys[b, h].numpy(), seen[b], normalizer) for h in range(heads)]
        for b in range(2)
    ])  # fmt: skip
    right, left = (np.random.default_rng(1).normal(size=(2, 1, size, width)) for size in (m, n))
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose((weights @ torch.from_numpy(right)).detach(), matrix @ right, **close)
    np.testing.assert_allclose((weights.mT @ torch.from_numpy(left)).detach(), matrix.swapaxes(-1, -2) @ left, **close)
    vector = np.random.default_rng(2).normal(size=n)
    np.testing.assert_allclose((torch.from_numpy(vector) @ weights).detach(), vector @ matrix, **close)
    np.testing.assert_allclose((weights.T @ torch.ones(n).double()).detach(), matrix.sum(-2), **close)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["scaled_dot", "gaussian", "additive"])
@pytest.mark.parametrize("rule", [None, causal(), window(30, 0), lengths(torch.tensor([200, 0]))])
def test_many_keys_are_multiplied_block_by_block(name, rule, device):
    query, keys, values = (tensor.to(device) for tensor in tensors(2, n=300, m=700))
    score = make_score(name).to(device)
    weights = attend(query, keys, values, score, visible=rule, path="tiled", return_weights=True)[1]
    matrix = attend(query, keys, values, score, visible=rule, path="reference", return_weights=True)[1].dense()
    right, left = torch.randn(700, 5).double().to(device), torch.randn(2, 300, 5).double().to(device)
    torch.testing.assert_close(weights @ right, matrix @ right)
    torch.testing.assert_close(weights.mT @ left, matrix.mT @ left)


SWAPPED = {
    "all": {},
    "causal": {"visible": causal()},
    "strict": {"visible": causal(strict=True)},
    "causal, lengths": {"visible": causal() & lengths(torch.tensor([60, 0]))},
    "key bias": {"bias": torch.linspace(-3, 3, 90, dtype=torch.float64)},
    "hidden by bias": {"bias": torch.zeros(90).double().masked_fill(torch.arange(90) % 7 == 0, -torch.inf)},
    "sink": {"visible": causal(), "sink": torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", SWAPPED.values(), ids=SWAPPED)
def test_keys_attend_to_queries_where_the_fused_operators_can(settings, dtype, device):
    query, keys, values = (tensor.to(dtype).to(device) for tensor in tensors(2, 3, n=90, m=90))
    query = query[:1]  # shared by the texts
    settings = {name: part.to(device) if isinstance(part, torch.Tensor) else part for name, part in settings.items()}
    weights = attend(query, keys, values, **settings, path="tiled", return_weights=True)[1]
    exact = attend(query.double(), keys.double(), values.double(), **settings, path="reference", return_weights=True)
    left = torch.randn(90, 4).to(dtype).to(device)
    with torch.no_grad():
        if dtype != torch.float64 or device == "cpu":
            assert swap_roles(weights.call, weights.statistic, dtype) is not None
        found, expected = weights.mT @ left, exact[1].dense().mT @ left.double()
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("settings", [{"visible": window(3, 0)}, {"bias": torch.randn(90, 90)}, {"normalizer": "none"}])
def test_other_sums_by_key_are_over_blocks_of_rows(settings):
    query, keys, values = (tensor.float() for tensor in tensors(2, n=90, m=90))
    weights = attend(query, keys, values, **settings, path="tiled", return_weights=True)[1]
    assert swap_roles(weights.call, weights.statistic, torch.float32) is None


def test_products_by_hand():
    keys = torch.tensor([[0.0], [2.0], [5.0]]).log1p()  # e^0.. weights 1, 3, 6 of 10 for the one query
    weights = attend(torch.ones(1, 1), keys, keys, "dot", return_weights=True)[1]
    torch.testing.assert_close(weights @ torch.tensor([10.0, 20.0, 30.0]), torch.tensor([1 + 6 + 18.0]))
    torch.testing.assert_close(weights.mT @ torch.tensor([5.0]), torch.tensor([0.5, 1.5, 3.0]))
    is_late = torch.tensor([False, True, True])
    torch.testing.assert_close(weights @ is_late, torch.tensor([0.9]))
    torch.testing.assert_close(weights @ torch.tensor([1, 0, 2]), torch.tensor([1.3]))


def test_a_sink_takes_its_share_from_products():
    query, keys, values = tensors(2, 3)
    sink = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
    weights = attend(query, keys, values, sink=sink, path="sdpa", return_weights=True)[1]
    scores = query @ keys.mT / 6**0.5
    matrix = scores.exp() / (scores.exp().sum(-1, keepdim=True) + sink.exp()[:, None, None])
    torch.testing.assert_close(weights @ values, matrix @ values)
    torch.testing.assert_close(weights.mT @ query, matrix.mT @ query)


def test_weights_are_multiplied_as_they_are_before_dropout():
    query, keys, values = tensors(n=30, m=40)
    weights = attend(query, keys, values, dropout=0.5, path="tiled", return_weights=True)[1]
    matrix = torch.softmax(query @ keys.mT / 6**0.5, -1)
    torch.testing.assert_close(weights @ values, matrix @ values)
    torch.testing.assert_close(weights.mT @ query, matrix.mT @ query)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("other", [torch.float64, torch.float32, torch.bfloat16])
def test_a_product_has_the_type_of_its_factor(dtype, other):
    query, keys, values = (tensor.to(dtype) for tensor in tensors(2, n=70, m=90))
    weights = attend(query, keys, values, path="sdpa", return_weights=True)[1]
    matrix = torch.softmax(query.double() @ keys.double().mT / 6**0.5, -1)
    right, left = torch.randn(90, 3).to(other), torch.randn(70, 3).to(other)
    for product, expected in (
        (weights @ right, matrix @ right.double()),
        (weights.mT @ left, matrix.mT @ left.double()),
    ):
        assert product.dtype == other
        torch.testing.assert_close(product.double(), expected, rtol=0, atol=2e-2 if other == torch.bfloat16 else 1e-5)


GRADIENTS = [
    ("scaled_dot", "softmax", "sdpa"),
    ("scaled_dot", "softmax", "reference"),
    ("gaussian", "softmax", "tiled"),
    ("additive", "softmax", "tiled"),
    ("additive", "entmax15", "tiled"),
    ("bilinear", "sparsemax", "tiled"),
    ("epanechnikov", "softmax", "tiled"),
    ("gaussian", "none", "tiled"),
]


@pytest.mark.parametrize(("name", "normalizer", "path"), GRADIENTS)
def test_products_are_differentiable_in_query_keys_bias_and_factor(name, normalizer, path):
    query, keys, values = tensors(2, n=3, m=4)
    bias = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    right = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    left = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    score = make_score(name)

    def run(query, keys, bias, right, left):
        weights = attend(
            query, keys, values, score, visible=causal(), bias=bias, normalizer=normalizer, path=path,
            return_weights=True,
        )[1]  # fmt: skip
        return weights @ right, weights.mT @ left

    assert gradcheck(run, (query.requires_grad_(), keys.requires_grad_(), bias, right, left), atol=1e-4)


def test_a_sink_and_parameters_get_a_gradient_from_products():
    query, keys, values = tensors(2, n=30, m=40)
    left = torch.randn(30, 2, dtype=torch.float64)
    gradients = []
    for path in ("tiled", "reference"):
        score, sink = make_score("additive"), torch.zeros(2, dtype=torch.float64, requires_grad=True)
        weights = attend(query, keys, values, score, sink=sink, path=path, return_weights=True)[1]
        loss = (weights @ values).square().sum() + (weights.mT @ left).square().sum()
        gradients.append(torch.autograd.grad(loss, (sink, *score.parameters())))
    for tiled, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(tiled, plain)


def test_the_gradient_of_a_product_is_not_differentiated_again():
    query, keys, values = tensors(n=30, m=40)
    weights = attend(query.requires_grad_(), keys, values, path="sdpa", return_weights=True)[1]
    with pytest.raises(RegardError, match="this path has no second derivative"):
        torch.autograd.grad((weights.mT @ torch.ones(30).double()).sum(), query, create_graph=True)


@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_weights_without_gradient_are_differentiable_in_the_factor_alone(name):
    query, keys, values = tensors(n=30, m=40)
    score = make_score(name)
    with torch.no_grad():
        weights = attend(query.requires_grad_(), keys, values, score, path="tiled", return_weights=True)[1]
    right, left = torch.randn(40, 2, dtype=torch.float64), torch.randn(30, 2, dtype=torch.float64)
    matrix = weights.dense()
    for product, factor, expected in ((weights, right, matrix), (weights.mT, left, matrix.mT)):
        (product @ factor.requires_grad_()).sum().backward()
        torch.testing.assert_close(factor.grad, expected.sum(-2)[:, None].expand(-1, 2))
    assert query.grad is None
    assert all(parameter.grad is None for parameter in score.parameters())


def test_products_of_weights_that_changed_say_so():
    query, keys, values = tensors()
    weights = attend(query, keys, values, return_weights=True, path="sdpa")[1]
    keys.zero_()
    for product in (lambda: weights @ values, lambda: weights.mT @ query):
        with pytest.raises(RegardError, match="were modified in place after the call"):
            product()


@pytest.mark.parametrize("name", ["scaled_dot", "gaussian", "additive", "concat", "epanechnikov"])
def test_products_of_saved_and_of_selected_weights_are_the_same(name, tmp_path):
    query, keys, values = tensors(2, 3, n=30, m=40)
    weights = attend(query, keys, values, make_score(name), visible=causal(), path="tiled", return_weights=True)[1]
    matrix = weights.dense().detach()
    weights.save(tmp_path / "weights")
    for other in (Weights.load(tmp_path / "weights"), weights.detach(), weights.clone()):
        torch.testing.assert_close((other @ values).detach(), matrix @ values)
        torch.testing.assert_close((other.mT @ query).detach(), matrix.mT @ query)
    if name == "scaled_dot":  # of the others, a head may have parameters of its own
        one_head = weights.select_batch([slice(None), 2])
        torch.testing.assert_close(one_head @ values[:, 2], matrix[:, 2] @ values[:, 2])


def test_everything_is_that_of_the_dense_matrix_of_2048_tokens():
    torch.manual_seed(0)
    query, keys, values = torch.randn(3, 2, 2048, 16, dtype=torch.float64)
    out, weights = attend(query, keys, values, visible=causal(), return_weights=True)
    hidden = torch.ones(2048, 2048).triu(1).bool()
    matrix = (query @ keys.mT / 4).masked_fill(hidden, -torch.inf).softmax(-1)
    close = {"rtol": 1e-8, "atol": 1e-10}
    torch.testing.assert_close(weights @ values, matrix @ values, **close)
    torch.testing.assert_close(weights.mT @ query, matrix.mT @ query, **close)
    torch.testing.assert_close(weights.received(), matrix.sum(-2), **close)
    by_value = matrix * values.norm(dim=-1)[:, None]
    torch.testing.assert_close(weights.value_weighted(values).received(), by_value.sum(-2), **close)
    torch.testing.assert_close(weights.value_weighted(values).top(4)[0], by_value.topk(4).values, **close)
    by_gradient, changes = matrix * (out @ values.mT), weights.times_gradient(out, values)
    torch.testing.assert_close(changes.received(), by_gradient.sum(-2), **close)
    torch.testing.assert_close(changes @ torch.ones(2048), by_gradient.sum(-1).float(), rtol=1e-5, atol=1e-5)
    carried = (matrix[:, -1] + torch.eye(2048, dtype=torch.float64)[-1]) / 2  # each batch entry is a text of one head
    carried = ((carried[:, None] @ matrix)[:, 0] + carried) / 2
    torch.testing.assert_close(rollout([weights, weights]), carried, **close)
