import errno
import json
import math
import os
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from regard import RegardError, Weights, attend, causal, documents, lengths
from regard.attention import Score
from regard.attention.reductions import grouped_topk
from regard.attention.weights import DenseWeights
from tests.gradients import gradcheck

from .cases import DEVICES, FINITE, NAMES, make_score, numpy_weights, tensors


def lazy(name="scaled_dot", *batch, n=6, m=9, normalizer="softmax", **settings):
    query, keys, values = tensors(*batch, n=n, m=m)
    path = None if name in ("scaled_dot", "gaussian", "bilinear") and normalizer == "softmax" else "tiled"
    return attend(
        query, keys, values, make_score(name), normalizer=normalizer, path=path, return_weights=True, **settings
    )[1]


@pytest.mark.parametrize("name", NAMES)
def test_reductions_follow_from_the_matrix_of_the_formula(name):
    query, keys, values = tensors(n=6, m=9)
    score = make_score(name)
    seen = np.tri(6, 9, 3, dtype=bool)
    weights = attend(query, keys, values, score, visible=causal(), path="tiled", return_weights=True)[1]
    matrix = numpy_weights(name, score, query.numpy(), keys.numpy(), seen)
    np.testing.assert_allclose(weights.received().numpy(), matrix.sum(0), atol=1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(matrix * np.log(matrix), 1)
    np.testing.assert_allclose(weights.entropy().numpy(), entropy, atol=1e-12)
    best = np.where(matrix.max(1) > 0, matrix.argmax(1), -1)
    if name not in ("uniform", *FINITE):  # no ties
        assert weights.argmax().tolist() == best.tolist()
    values_, indices = weights.top(3)
    np.testing.assert_allclose(values_.numpy(), -np.sort(-matrix, 1)[:, :3], atol=1e-12)
    for row, row_values, where in zip(matrix, values_, indices, strict=True):
        for weight, index in zip(row_values.tolist(), where.tolist(), strict=True):
            assert (index == -1) == (weight == 0)
            assert index == -1 or row[index] == pytest.approx(weight)


def test_reductions_by_hand():
    keys = torch.tensor([[0.0], [math.log(2)], [math.log(5)]])  # weights 1, 2, 5 of 8 for the one query
    weights = attend(torch.ones(1, 1), keys, keys, "dot", return_weights=True)[1]
    torch.testing.assert_close(weights.dense(), torch.tensor([[0.125, 0.25, 0.625]]))
    values, indices = weights.top(2)
    torch.testing.assert_close(values, torch.tensor([[0.625, 0.25]]))
    assert indices.tolist() == [[2, 1]]
    assert weights.argmax().tolist() == [2]
    assert weights.entropy().item() == pytest.approx(math.log(8) - (2 * math.log(2) + 5 * math.log(5)) / 8)
    torch.testing.assert_close(weights.received(), torch.tensor([0.125, 0.25, 0.625]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["scaled_dot", "gaussian", "additive"])
def test_the_weights_are_exact_to_the_rounding_of_the_log_sum_exp(name, device):
    query, keys, values = (t.float().to(device) for t in tensors(2, n=300, m=500, spread=3.0))
    score = make_score(name, torch.float32).to(device)
    weights = attend(query, keys, values, score, return_weights=True)[1]
    exact = attend(
        query.double(),
        keys.double(),
        values.double(),
        make_score(name, torch.float32).double().to(device),
        path="reference",
        return_weights=True,
    )[1]
    scores = make_score(name, torch.float32).double().to(device)(query.double(), keys.double())
    tolerance = 16 * torch.finfo(torch.float32).eps * scores.logsumexp(-1).abs().clamp_min(1).amax().item()
    torch.testing.assert_close(weights.dense().double(), exact.dense(), rtol=0, atol=tolerance)
    torch.testing.assert_close(weights.received().double(), exact.received(), rtol=1e-4, atol=300 * tolerance)
    torch.testing.assert_close(weights.entropy().double(), exact.entropy(), rtol=1e-4, atol=30 * tolerance)
    values, where = weights.top(5)
    torch.testing.assert_close(values.double(), exact.dense().topk(5).values, rtol=0, atol=tolerance)
    torch.testing.assert_close(exact.dense().gather(-1, where), values.double(), rtol=0, atol=tolerance)


def test_answers_do_not_depend_on_what_else_is_asked_nor_on_the_order():
    weights = lazy(n=70, m=90, visible=causal())
    names = ("entropy", "received", "top:4", "argmax")
    alone = {name: weights.reduce(name)[0] for name in names}
    for order in permutations(names):
        for name, result in zip(order, weights.reduce(*order), strict=True):
            torch.testing.assert_close(result, alone[name], rtol=0, atol=0)
    entropy, again = weights.reduce("entropy", "entropy")
    assert torch.equal(entropy, again)


@pytest.mark.parametrize("path", ["sdpa", "tiled"])
@pytest.mark.parametrize("beyond", [1e20, -1e20])
def test_a_weight_that_is_no_number_is_not_hidden_by_those_that_are(path, beyond):
    query, keys = torch.tensor([[beyond], [1.0]]), torch.tensor([[0.0], [beyond]])
    weights = attend(query, keys, torch.ones(2, 1), "dot", path=path, return_weights=True)[1]
    values, where = weights.top(1)
    assert values[0].isnan()
    torch.testing.assert_close((values[1], where[1]), (torch.tensor([1.0]), torch.tensor([int(beyond > 0)])))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_of_given_weights_of_every_type_the_top_ones_are_found(dtype):
    matrix = torch.softmax(torch.randn(3, 400, dtype=torch.float64), -1).to(dtype)
    values, where = DenseWeights(matrix).top(3)
    assert torch.equal(values, matrix.topk(3).values)
    assert torch.equal(matrix.gather(-1, where), values)


@pytest.mark.parametrize("hidden", [-1e9, torch.finfo(torch.float32).min])
def test_a_row_that_a_large_bias_hides_has_no_weight_above_one(hidden):
    query, keys, values = (t.float() for t in tensors(n=8, m=300))
    bias = torch.zeros(8, 300)
    bias[3] = hidden
    weights = attend(query, keys, values, bias=bias, return_weights=True)[1]
    (top, _), received, entropy = weights.reduce("top:3", "received", "entropy")
    assert top.max() <= 1
    assert received.max() <= 8
    assert entropy.isfinite().all()
    others = [0, 1, 2, 4, 5, 6, 7]
    exact = torch.softmax(query.double() @ keys.double().mT / query.shape[-1] ** 0.5, -1)[others]
    torch.testing.assert_close(top[others].double(), exact.topk(3).values, rtol=1e-5, atol=1e-6)


def test_hard_looks_at_the_first_of_equals():
    weights = attend(torch.ones(1, 2), torch.ones(5, 2), torch.randn(5, 3), "hard", path="tiled", return_weights=True)[
        1
    ]
    assert weights.argmax().tolist() == [0]
    assert weights.top(2)[1].tolist() == [[0, -1]]


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("length", [4, 63, 64, 700, 1500])
def test_the_greatest_are_found_among_many(k, length):
    rows_together = torch.randn(3, 2, length)
    for rows in (rows_together, rows_together.mT.contiguous().mT):
        values, where = grouped_topk(rows, min(k, length))
        torch.testing.assert_close(values, rows.topk(min(k, length)).values, rtol=0, atol=0)
        torch.testing.assert_close(rows.gather(-1, where), values, rtol=0, atol=0)
    ties = torch.zeros(2, length)
    assert all(len(set(row)) == len(row) for row in grouped_topk(ties, min(k, length))[1].tolist())


positions = st.one_of(
    st.integers(-4, 3),
    st.builds(slice, st.none() | st.integers(-5, 5), st.none() | st.integers(-5, 5), st.sampled_from([None, 1, 2])),
    st.lists(st.integers(-4, 3), max_size=3),
    st.lists(st.integers(-4, 3), max_size=3).map(lambda indices: torch.tensor(indices, dtype=torch.long)),
    st.lists(st.integers(0, 3), min_size=4, max_size=4).map(lambda indices: torch.tensor(indices).reshape(2, 2)),
    st.lists(st.booleans(), min_size=4, max_size=4).map(torch.tensor),
    st.integers(-4, 3).map(np.int64),
)


@given(st.sampled_from(["scaled_dot", "additive"]), st.integers(0, 2), st.booleans(), st.data())
def test_indexing_equals_indexing_the_matrix(name, missing, dots, data):
    weights = lazy(name, 4, n=4, m=4, visible=causal() | lengths(torch.tensor([1, 2, 3, 4])))
    index = [data.draw(positions) for _ in range(3 - missing)]
    if dots:
        index.insert(data.draw(st.integers(0, len(index))), ...)
    try:
        expected = weights.dense()[tuple(index)]
    except IndexError:  # tensors that do not broadcast
        reject()
    torch.testing.assert_close(weights[tuple(index)], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaled_dot", "gaussian", "additive", "epanechnikov"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15", "none"])
def test_slices_are_differentiable(name, normalizer):
    if name == "epanechnikov" and normalizer in ("sparsemax", "entmax15"):
        pytest.skip("not offered")
    query, keys, values = tensors(2, n=4, m=5)
    bias = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([3, 0, 3])

    def run(query, keys, bias):
        weights = attend(
            query,
            keys,
            values,
            make_score(name),
            visible=causal(),
            bias=bias,
            normalizer=normalizer,
            path="tiled",
            return_weights=True,
        )[1]
        return weights[..., 1:4, 2:5], weights[..., rows, :], weights[0, 2], weights.dense()

    inputs = (query.requires_grad_(), keys.requires_grad_(), bias)
    assert gradcheck(run, inputs, atol=1e-4)


def test_the_gradient_of_a_slice_reaches_the_keys_outside_it():
    query, keys, values = tensors()
    keys.requires_grad_()
    weights = attend(query, keys, values, return_weights=True, path="sdpa")[1]
    (gradient,) = torch.autograd.grad(weights[..., 0, 2].sum(), keys)
    assert gradient[5].any()  # more weight for key 5 is less for key 2


def test_a_loss_on_attention_trains():
    torch.manual_seed(0)
    query, keys = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)
    optimizer = torch.optim.Adam([query], 0.1)
    for _ in range(60):
        weights = attend(query, keys, keys, return_weights=True, path="sdpa")[1]
        loss = -weights.dense().diagonal().log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert attend(query, keys, keys, return_weights=True)[1].argmax().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_several_answers_for_one_walk_are_the_same(name):
    weights = lazy(name, 2, 3)
    (values, indices), received, entropy, best = weights.reduce("top:4", "received", "entropy", "argmax")
    torch.testing.assert_close((values, indices), weights.top(4))
    torch.testing.assert_close(received, weights.received())
    torch.testing.assert_close(entropy, weights.entropy())
    torch.testing.assert_close(best, weights.argmax())


@pytest.mark.parametrize("name", ["scaled_dot", "additive", "epanechnikov"])
def test_the_mean_over_heads_is_as_lazy_and_as_exact(name):
    weights = lazy(name, 2, 3)
    dense = weights.dense().mean(1)
    mean = weights.mean()
    assert mean.shape == (2, 6, 9)
    torch.testing.assert_close(mean.dense(), dense)
    torch.testing.assert_close(mean[1, 2:4], dense[1, 2:4])
    torch.testing.assert_close(mean.received(), dense.sum(-2))
    torch.testing.assert_close(mean.entropy(), torch.special.entr(dense).sum(-1))
    torch.testing.assert_close(mean.top(2)[0], dense.topk(2).values)
    torch.testing.assert_close(weights.mean(0).dense(), weights.dense().mean(0))


def test_weights_of_plain_sums_offer_what_makes_sense():
    weights = lazy("scaled_dot", normalizer="none")
    torch.testing.assert_close(weights.received(), weights.dense().sum(-2))
    with pytest.raises(RegardError) as error:
        weights.entropy()
    assert str(error.value) == 'entropy is undefined for weights of normalizer "none", which do not sum to one'


@pytest.mark.parametrize("name", ["scaled_dot", "gaussian", "additive", "concat", "epanechnikov", "hard", "exact"])
@pytest.mark.parametrize(
    "rule",
    [None, causal() & ~lengths(torch.tensor([2, 3])), documents(torch.arange(9) // 4), torch.rand(2, 1, 6, 9) < 0.6],
    ids=["all", "combined", "documents", "given"],
)
def test_saved_weights_come_back(name, rule, tmp_path):
    weights = lazy(name, 2, 3, visible=rule, bias=torch.randn(3, 1, 9))
    weights.save(tmp_path / "weights.safetensors")
    back = Weights.load(tmp_path / "weights.safetensors")
    torch.testing.assert_close(back.dense(), weights.dense().detach())
    torch.testing.assert_close(back.entropy(), weights.entropy())
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]
    mean = weights.mean()
    mean.save(tmp_path / "mean.safetensors")
    torch.testing.assert_close(Weights.load(tmp_path / "mean.safetensors").dense(), mean.dense().detach())
    weights.materialize().save(tmp_path / "dense.safetensors")
    torch.testing.assert_close(Weights.load(tmp_path / "dense.safetensors").dense(), weights.dense().detach())


@pytest.mark.parametrize("name", ["additive", "concat", "reduced_rank"])
def test_saved_weights_of_settled_keys_come_back(name, tmp_path):
    query, keys, values = tensors(2, 3)
    score, prepared = make_score(name).precompute_keys(keys)
    _, weights = attend(query, prepared, values, score, path="tiled", return_weights=True)
    weights.save(tmp_path / "weights.safetensors")
    _, expected = attend(query, keys, values, make_score(name), path="reference", return_weights=True)
    torch.testing.assert_close(Weights.load(tmp_path / "weights.safetensors").dense(), expected.dense().detach())


def test_saved_weights_are_query_and_keys_not_the_matrix(tmp_path):
    weights = lazy("scaled_dot", n=200, m=200)
    weights.save(tmp_path / "w")
    assert (tmp_path / "w").stat().st_size < 200 * 200 * 8 / 4
    with safe_open(tmp_path / "w", framework="pt") as file:
        assert sorted(file.keys()) == ["keys", "query", "statistic"]
        assert json.loads(file.metadata()["weights"])["score"] == {"kind": "FixedDot", "factor": 1 / math.sqrt(6)}


def test_weights_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lazy().save(tmp_path / "new" / "w")
    before = (tmp_path / "new" / "w").read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RegardError, match=r"^cannot write .*/new/w: no space left on device$"):
        lazy(n=2).save(tmp_path / "new" / "w")
    assert os.listdir(tmp_path / "new") == ["w"]
    assert (tmp_path / "new" / "w").read_bytes() == before


def test_weights_can_be_walked_over():
    weights = lazy("scaled_dot", 2)
    assert len(weights) == 2
    torch.testing.assert_close(torch.stack(list(weights)), weights.dense())


def test_a_file_of_something_else_is_said(tmp_path):
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RegardError, match=r"^cannot read .*text as saved weights: "):
        Weights.load(tmp_path / "text")
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(RegardError) as error:
        Weights.load(tmp_path / "other")
    assert str(error.value) == f'{tmp_path}/other: expected format "regard.weights/1", got None'


def test_weights_of_a_plain_sum_are_saved_too(tmp_path):
    for name in ("dot", "scaled_dot", "gaussian", "additive", "uniform"):
        weights = lazy(name, normalizer="none")
        weights.save(tmp_path / name)
        state = torch.get_rng_state()
        torch.testing.assert_close(Weights.load(tmp_path / name).dense(), weights.dense().detach())
        assert torch.equal(torch.get_rng_state(), state)


def test_weights_that_changed_are_not_saved(tmp_path):
    query, keys, values = tensors()
    weights = attend(query, keys, values, return_weights=True, path="sdpa")[1]
    keys.zero_()
    with pytest.raises(RegardError, match="were modified in place after the call"):
        weights.save(tmp_path / "w")
    assert not list(tmp_path.iterdir())


def test_weights_of_a_score_of_ones_own_are_not_saved_lazily(tmp_path):
    class Mine(Score):
        def forward(self, query, keys):
            return query @ keys.mT

    query, keys, values = tensors()
    weights = attend(query, keys, values, Mine(), path="tiled", return_weights=True)[1]
    with pytest.raises(RegardError, match=r"^save: cannot save lazy weights of Mine; save weights\.materialize\(\)"):
        weights.save(tmp_path / "w")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_detached_weights_outlive_a_step_of_the_optimizer(name):
    query, keys, values = tensors()
    score = make_score(name)
    weights = attend(query.requires_grad_(), keys, values, score, path="tiled", return_weights=True)[1]
    expected = weights.dense().detach()
    apart = weights.detach()
    assert not apart.dense().requires_grad
    with torch.no_grad():
        for parameter in score.parameters():
            parameter += 1
    torch.testing.assert_close(apart.dense(), expected)
    if name == "additive":
        with pytest.raises(RegardError, match="were modified in place after the call"):
            weights.dense()


def test_weights_of_keys_that_changed_say_so():
    query, keys, values = tensors()
    weights = attend(query, keys, values, return_weights=True, path="sdpa")[1]
    now = attend(query, keys, values, return_weights=True, path="sdpa", lazy=False)[1]
    expected = weights.dense()
    keys[0] = 0
    for ask in (weights.dense, weights.received, lambda: weights[0], weights.detach):
        with pytest.raises(RegardError) as error:
            ask()
        assert str(error.value) == (
            "weights: query, keys, visible, bias, sink or parameters were modified in place after the call; "
            "use the weights before that, or call attend with lazy=False"
        )
    torch.testing.assert_close(now.dense(), expected)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_weights_of_a_prediction_can_be_asked_later(mode, name):
    with mode():
        query, keys, values = tensors()
        weights = attend(query, keys, values, make_score(name), return_weights=True, path="tiled")[1]
        torch.testing.assert_close(weights.received(), weights.dense().sum(-2))
    assert not weights.dense().requires_grad
    assert not weights[0].requires_grad
    torch.testing.assert_close(weights.received(), weights.dense().sum(-2))


def test_weights_of_a_score_that_draws_random_numbers_are_refused():
    class Dropped(Score):
        def forward(self, query, keys):
            return torch.nn.functional.dropout(query @ keys.mT)

    weights = attend(*tensors(), Dropped(), path="tiled", return_weights=True)[1]
    with pytest.raises(RegardError, match="weights: cannot recompute them, since Dropped drew random numbers"):
        weights.dense()


def test_weights_kept_apart_are_lazy_where_there_are_many_rows():
    query, keys, values = tensors(n=5)
    weights = attend(query, keys, values, return_weights=True, path="sdpa", lazy=False)[1]
    expected = attend(query, keys, values, path="reference", return_weights=True)[1].dense()
    keys.zero_()
    assert type(weights).__name__ == "LazyWeights"
    torch.testing.assert_close(weights.dense(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_move_to_another_device(device):
    for name in ("scaled_dot", "additive"):
        weights = lazy(name, 2, visible=lengths(torch.tensor([3, 5])))
        moved = weights.to(device)
        assert moved.device.type == device
        assert moved.received().device.type == device
        torch.testing.assert_close(moved.dense().cpu(), weights.dense())


def test_autocast_at_the_time_of_the_call_is_that_of_the_weights():
    class Linear(Score):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(6, 6)

        def forward(self, query, keys):
            return self.project(query) @ keys.mT

    query, keys, values = (tensor.float() for tensor in tensors())
    with torch.autocast("cpu", torch.bfloat16):
        weights = attend(query, keys, values, Linear(), path="tiled", return_weights=True)[1]
    torch.testing.assert_close(weights.dense().sum(-1), torch.ones(4), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(weights.received().sum(), torch.tensor(4.0), rtol=1e-2, atol=1e-2)


EXPECTED = "expected integers, slices, or lists or tensors of integers"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((0, 0, 0, 0), "weights[...]: expected at most 3 indices, got 4"),
        ((..., 0, ...), "weights[...]: expected at most one ellipsis, got 2"),
        ((0, 99), "weights[...]: index 99 is out of range for an axis of size 6"),
        ((0, torch.tensor([2, 7])), "weights[...]: indices from 2 to 7 are out of range for an axis of size 6"),
        ("a", f"weights[...]: {EXPECTED}, got str"),
        ((0, [1.5]), f"weights[...]: {EXPECTED}, got list"),
        ((0, ["a"]), f"weights[...]: {EXPECTED}, got list"),
        ((0, torch.tensor([1.5])), f"weights[...]: {EXPECTED}, got a tensor of float32"),
        ((0, True), f"weights[...]: {EXPECTED}, got bool"),
        (torch.ones(2, 6).bool(), "weights[...]: expected a bool tensor with 1 axis, got 2 axes"),
        ((0, torch.ones(5).bool()), "weights[...]: expected a bool tensor of length 6, got 5"),
    ],
)
def test_a_wrong_index_is_said(index, message):
    with pytest.raises(RegardError) as error:
        lazy("additive", 2).__getitem__(index)
    assert str(error.value) == message


def test_a_wrong_question_is_said():
    with pytest.raises(RegardError) as error:
        lazy().reduce("tops")
    assert str(error.value) == 'unknown reduction "tops"; did you mean "top:8"?'
    with pytest.raises(RegardError) as error:
        lazy().reduce("topp:2")
    assert str(error.value) == 'unknown reduction "topp:2"; did you mean "top:2"?'
    with pytest.raises(RegardError) as error:
        lazy().reduce("top:x")
    assert str(error.value) == 'expected a positive number of keys as in "top:8", got "top:x"'
    with pytest.raises(RegardError) as error:
        lazy().top(0)
    assert str(error.value) == "top: k must be a positive integer, got 0"
    with pytest.raises(RegardError) as error:
        lazy().mean(-1)
    assert str(error.value) == "mean: axis must be a leading axis of shape (6, 9), got -1"


def test_an_empty_axis_has_no_mean():
    weights = attend(*tensors(0, 2), return_weights=True)[1]
    with pytest.raises(RegardError) as error:
        weights.mean(0)
    assert str(error.value) == f"mean: axis 0 of shape {tuple(weights.shape)} is empty"
