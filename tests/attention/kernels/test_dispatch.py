"""Dispatch uses the functions a kernel provides and falls back to other kernels for the rest."""

import pytest
import torch

from regard import RegardError, attend, causal
from regard.attention import Additive, Boxcar, Concat, Gaussian, ScaledDot, Score, Uniform, Weights
from regard.attention.kernels import dispatch
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.normalizers import Softmax
from regard.attention.rng_state import RandomState

from ..cases import NAMES, make_score, tensors


def plain_softmax(call, job):
    if not isinstance(call.terms.normalizer, Softmax) or call.terms.visible is not None or call.bias is not None:
        return "it takes a softmax over all keys, and no bias"
    return None


def additive_forward(call, values):
    """w·tanh(q + k) for two keys at a time; the running output is scaled down as the log-sum-exp grows."""
    energy = call.terms.score.energy
    lse = values.new_full((*call.terms.shape[:-1], 1), -torch.inf)
    output = values.new_zeros(*call.terms.shape[:-1], values.shape[-1])
    for keys, some in zip(call.keys.split(2, -2), values.split(2, -2), strict=True):
        scores = torch.tanh(call.query[..., :, None, :] + keys[..., None, :, :]) @ energy
        total = torch.logaddexp(lse, scores.logsumexp(-1, keepdim=True))
        output = output * (lse - total).exp() + (scores - total).exp() @ some
        lse = total
    return Result(output, lse)


def dot_supports(call, job):
    return plain_softmax(call, job) or (None if job == "entropy" and call.dot else "it computes the entropy alone")


def dot_entropy(call, statistic, names):
    """log-sum-exp - sum(weight * score) of each row."""
    reduced.append(list(names))
    scores = call.terms.score.dot_scale * call.query @ call.keys.mT
    return {"entropy": statistic[..., 0] - ((scores - statistic).exp() * scores).sum(-1)}


reduced: list[list[str]] = []
ONE_PASS = AttentionKernel(
    "one_pass", forms=("additive",), devices=("cpu", "cuda"), unsupported_reason=plain_softmax, forward=additive_forward
)
DOT_ENTROPY = AttentionKernel("dot_entropy", forms=("dot",), unsupported_reason=dot_supports, reduce=dot_entropy)


@pytest.fixture(autouse=True)
def two_more_rows(monkeypatch):
    reduced.clear()
    monkeypatch.setattr(dispatch, "KERNELS", (ONE_PASS, DOT_ENTROPY, *dispatch.KERNELS))


@pytest.mark.parametrize("name", ["additive", "concat"])
def test_a_kernel_with_a_forward_alone_is_taken_and_differentiated_by_tiles(name):
    inputs = [tensor.requires_grad_() for tensor in tensors(2)]
    score = make_score(name)
    learned = [*inputs, *score.parameters()]
    results, kinds = [], []
    for path in (None, "one_pass", "reference"):
        out, weights = attend(*inputs, score, path=path, return_weights=True)
        kinds.append(type(weights).__name__)
        loss = out.square().sum() + weights[..., 1:3, 2:].square().sum()
        results.append((out, weights.dense(), weights.entropy(), *torch.autograd.grad(loss, learned)))
    assert kinds == [
        "LazyWeights",
        "LazyWeights",
        "DenseWeights",
    ]  # without the kernel, the first would run on the reference
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[2])


def test_a_kernel_that_only_reduces_is_asked_for_what_it_knows():
    query, keys, values = tensors(2)
    weights = attend(query, keys, values, path="sdpa", return_weights=True)[1]
    entropy, received, best = weights.reduce("entropy", "received", "argmax")
    assert reduced == [["entropy"]]
    dense = weights.dense()
    torch.testing.assert_close(entropy, torch.special.entr(dense).sum(-1))
    torch.testing.assert_close(received, dense.sum(-2))
    assert torch.equal(best, dense.argmax(-1))
    torch.testing.assert_close(weights.entropy(), entropy)
    assert reduced == [["entropy"]] * 2


def test_weights_that_went_through_no_forward_of_ours_are_reduced_by_it_too(tmp_path):
    weights = attend(*tensors(2), path="sdpa", return_weights=True)[1]
    weights.save(tmp_path / "weights")
    torch.testing.assert_close(Weights.load(tmp_path / "weights").entropy(), weights.entropy())
    assert reduced == [["entropy"]] * 2


def test_what_a_row_does_not_support_goes_to_the_next():
    query, keys, values = tensors(2)
    for settings in ({"visible": causal()}, {"normalizer": "sparsemax"}):
        _, weights = attend(query, keys, values, **settings, return_weights=True)
        torch.testing.assert_close(weights.entropy(), torch.special.entr(weights.dense()).sum(-1))
    attend(query, keys, values, "boxcar", return_weights=True)[1].entropy()
    attend(query, keys, values, return_weights=True)[1].mean(0).entropy()  # the entropy of a mean needs its rows
    assert reduced == []


@pytest.mark.parametrize(
    ("score", "settings", "reason"),
    [
        ("dot", {}, "Dot is not w·tanh(q + k)"),
        ("additive", {"visible": causal()}, "it takes a softmax over all keys, and no bias"),
        ("additive", {"dropout": 0.5}, "it has no backward, and the tiled backward would drop other weights"),
    ],
)
def test_a_row_named_by_path_says_why_it_cannot_be_had(score, settings, reason):
    with pytest.raises(RegardError) as error:
        attend(*tensors(), make_score(score), path="one_pass", **settings)
    assert str(error.value) == (
        f'path "one_pass" does not support this call: {reason}; use path=None, "tiled" or "reference"'
    )


def test_a_row_without_a_forward_is_no_path():
    with pytest.raises(RegardError) as error:
        attend(*tensors(), path="dot_entropy")
    assert str(error.value) == (
        'unknown path "dot_entropy"; choose from mean, one_pass, reference, sdpa, tiled, triton_additive, '
        "triton_distance, triton_dot"
    )


def test_a_row_for_another_device_is_passed_over(monkeypatch):
    elsewhere = AttentionKernel("elsewhere", devices=("meta",), forward=additive_forward)
    monkeypatch.setattr(dispatch, "KERNELS", (elsewhere, *dispatch.KERNELS))
    attend(*tensors(), "boxcar")
    with pytest.raises(
        RegardError, match=r'^path "elsewhere" does not support this call: it runs on meta, not on cpu; use'
    ):
        attend(*tensors(), "boxcar", path="elsewhere")


def test_a_kernel_without_a_backward_leaves_other_normalizers_alone(monkeypatch):
    anything = AttentionKernel("anything", forward=additive_forward)
    monkeypatch.setattr(dispatch, "KERNELS", (anything, *dispatch.KERNELS))
    with pytest.raises(RegardError, match="it has no backward, which Entmax15 requires"):
        attend(*tensors(), make_score("additive"), normalizer="entmax15", path="anything")


def test_a_score_says_its_form():
    class Mine(Score):
        pass

    class MineAsDot(Score):
        def as_dot(self, query, keys):
            return None

    class MineOfTanh(Additive):
        pass

    forms = {kind.__name__: kind.form for kind in (ScaledDot, Gaussian, Concat, Boxcar, Uniform)}
    assert forms == {
        "ScaledDot": "dot", "Gaussian": "dot", "Concat": "additive", "Boxcar": "distance", "Uniform": "constant",
    }  # fmt: skip
    assert (Mine.form, MineAsDot.form, MineOfTanh.form) == ("other", "dot", "other")
    assert Additive(2, 2, 2, activation=torch.relu).form == "other"
    assert Additive(2, 2, 2).precompute_keys(torch.zeros(1, 2))[0].form == "additive"


@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_random_numbers_is_not_read_for_scores_that_draw_none(name, monkeypatch):
    monkeypatch.setattr(RandomState, "__init__", lambda *_: pytest.fail("it was read"))
    attend(*(tensor.requires_grad_() for tensor in tensors()), make_score(name), path="tiled").sum().backward()
