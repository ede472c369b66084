import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard import RegardError, attend
from regard.attention import (
    Additive,
    Bilinear,
    Concat,
    DotForm,
    Gaussian,
    ReducedRank,
    Score,
    build_score,
)
from regard.attention.scores import EQUAL_WIDTHS, SCORES, as_score, find_scores_without_gradient

from .cases import FORMULAS, NAMES, SMOOTH, STEPS, WIDTH, make_score, numpy_weights, tensors


@pytest.mark.parametrize("name", NAMES)
def test_a_score_follows_its_formula(name):
    query, keys, _ = tensors()
    score = make_score(name)
    formula, is_kernel = FORMULAS[name]
    parameters = {key: value.detach().numpy() for key, value in score.named_parameters()}
    expected = np.array([[formula(q, k, parameters) for k in keys.numpy()] for q in query.numpy()])
    scores = score(query, keys).detach().numpy()
    np.testing.assert_allclose(
        np.exp(scores) if is_kernel and name != "uniform" else scores + (name == "uniform"), expected
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["reference", "tiled", None])
def test_weights_and_output_follow_the_formula(name, path):
    query, keys, values = tensors()
    score = make_score(name)
    visible = np.random.default_rng(0).random((4, 7)) < 0.7
    visible[2] = False
    expected = numpy_weights(name, score, query.numpy(), keys.numpy(), visible)
    out, weights = attend(query, keys, values, score, visible=torch.from_numpy(visible), path=path, return_weights=True)
    np.testing.assert_allclose(weights.dense().detach().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(out.detach().numpy(), expected @ values.numpy(), atol=1e-12)
    assert expected[0].sum() == pytest.approx(1)  # not an empty case
    assert not expected[2].any()


def test_concat_equals_additive_with_the_matrix_split():
    concat, additive = make_score("concat"), make_score("additive")
    assert isinstance(concat, Concat)
    assert isinstance(additive, Additive)
    additive.query_weight.data, additive.key_weight.data = concat.weight.data[:, :WIDTH], concat.weight.data[:, WIDTH:]
    additive.energy.data = concat.energy.data
    query, keys, values = tensors(2)
    torch.testing.assert_close(concat(query, keys), additive(query, keys))
    for path in ("reference", "tiled"):
        torch.testing.assert_close(
            attend(query, keys, values, concat, path=path), attend(query, keys, values, additive, path=path)
        )


def test_reduced_rank_equals_bilinear_with_the_product_matrix():
    query, keys, values = torch.randn(4, 5), torch.randn(7, 9), torch.randn(7, 3)
    low, full = ReducedRank(5, 9, 2), Bilinear(5, 9)
    full.weight.data = low.query_weight.data.T @ low.key_weight.data.T
    assert torch.linalg.matrix_rank(full.weight) == 2
    torch.testing.assert_close(low(query, keys), full(query, keys))
    torch.testing.assert_close(attend(query, keys, values, low), attend(query, keys, values, full))


def test_heads_have_parameters_of_their_own():
    query, keys, _ = tensors(2, 3)
    for name in ("additive", "concat", "bilinear", "reduced_rank"):
        many = make_score(name, heads=3)
        for head in range(3):
            one = make_score(name)
            for parameter, stacked in zip(one.parameters(), many.parameters(), strict=True):
                parameter.data = stacked.data[head]
            torch.testing.assert_close(many(query, keys)[:, head], one(query[:, head], keys[:, head]), msg=name)


def test_additive_takes_another_activation():
    query, keys, values = tensors()
    score = Additive(WIDTH, WIDTH, 5, activation=torch.relu).double()
    expected = torch.relu((query @ score.query_weight.T)[:, None] + (keys @ score.key_weight.T)[None]) @ score.energy
    torch.testing.assert_close(score(query, keys), expected)
    torch.testing.assert_close(attend(query, keys, values, score, path="tiled"), torch.softmax(expected, -1) @ values)


class Manhattan(Score):
    """A score as a user would write it."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return -(query[..., :, None, :] - keys[..., None, :, :]).abs().sum(-1)


class HalfDot(Score):
    """A score with a dot form that omits a constant which softmax ignores."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.mT / 2 + query.sum(-1, keepdim=True)

    def as_dot(self, query: Tensor, keys: Tensor) -> DotForm:
        return DotForm(query, keys, 0.5)


def test_a_score_of_the_users_own_works_on_every_path():
    query, keys, values = tensors(2)
    weights = torch.softmax(-torch.cdist(query, keys, p=1), -1)
    for path in ("reference", "tiled", None):
        torch.testing.assert_close(attend(query, keys, values, Manhattan(), path=path), weights @ values)
    half = torch.softmax(query @ keys.mT / 2, -1) @ values
    for path in ("reference", "tiled", "sdpa", None):
        torch.testing.assert_close(attend(query, keys, values, HalfDot(), path=path), half)
    plain = (query @ keys.mT / 2 + query.sum(-1, keepdim=True)) @ values
    torch.testing.assert_close(attend(query, keys, values, HalfDot(), normalizer="none", path="tiled"), plain)


@pytest.mark.parametrize("name", SMOOTH)
def test_every_name_can_be_built(name):
    query, keys, values = tensors()
    assert attend(query, keys, values, build_score(name, WIDTH, WIDTH).double()).shape == (4, 3)


def test_all_names_are_listed():
    assert SCORES == NAMES


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("scaled-dot", 'unknown score "scaled-dot"; did you mean "scaled_dot"?'),
        (
            "additive",
            'score "additive" has parameters; create it once and pass it: '
            'score = regard.attention.build_score("additive", query_dim=..., key_dim=...)',
        ),
        (
            3,
            "score must be a name, a score such as regard.attention.Gaussian(), or a function of (query, keys), "
            "got int",
        ),
        (
            Gaussian,
            "score must be a name, a score such as regard.attention.Gaussian(), or a function of (query, keys), "
            "got the class Gaussian",
        ),
        (lambda q: q, "score function <lambda>: expected a function of (query, keys), got (q)"),
    ],
)
def test_a_wrong_score_is_said(score, message):
    with pytest.raises(RegardError) as error:
        as_score(score)
    assert str(error.value) == message


def test_unequal_widths_are_said():
    with pytest.raises(RegardError) as error:
        attend(torch.randn(4, 5), torch.randn(7, 6), torch.randn(7, 2))
    assert str(error.value) == (
        "ScaledDot: query and keys must have the same width, got 5 and 6 "
        "(Bilinear, ReducedRank, Additive and Concat accept different widths)"
    )


def test_dot_products_of_unit_variance_have_variance_one_when_scaled():
    torch.manual_seed(0)
    query, keys = torch.randn(2000, 256), torch.randn(500, 256)
    assert as_score("dot")(query, keys).var().item() == pytest.approx(256, rel=0.05)
    assert as_score("scaled_dot")(query, keys).var().item() == pytest.approx(1, rel=0.05)
    assert math.isclose(as_score("scaled_dot")(query, keys)[0, 0], query[0] @ keys[0] / 16, rel_tol=1e-4)


@pytest.mark.parametrize("kind", [Bilinear(5, 6), ReducedRank(5, 6, 2), Additive(5, 6, 3), Concat(5, 6, 3)], ids=repr)
def test_other_widths_than_a_score_was_made_for_are_said(kind):
    with pytest.raises(RegardError) as error:
        attend(torch.randn(4, 5), torch.randn(7, 8), torch.randn(7, 2), kind)
    assert str(error.value) == f"{type(kind).__name__}: expected keys of width 6, got 8"


def test_a_score_shows_its_parameters():
    assert repr(Additive(5, 6, 3)) == "Additive(query_weight=(3, 5), key_weight=(3, 6), energy=(3,))"
    assert repr(Gaussian(0.5)) == "Gaussian(width=0.5)"


@pytest.mark.parametrize("path", ["reference", "tiled"])
@pytest.mark.parametrize("name", NAMES)
def test_settled_keys_score_as_before(name, path):
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, 3))
    score = make_score(name, heads=3)
    expected = attend(query, keys, values, score, path="reference")
    settled, prepared = score.precompute_keys(keys)
    output = attend(query, prepared, values, settled, path=path)
    torch.testing.assert_close(output, expected)
    sources = [query, keys, values, *(p for p in score.parameters() if p.requires_grad)]
    gradients, expected_gradients = (
        torch.autograd.grad(out.square().sum(), sources, allow_unused=True, materialize_grads=True)
        for out in (output, expected)
    )
    torch.testing.assert_close(gradients, expected_gradients)


@pytest.mark.parametrize("name", ["additive", "concat", "reduced_rank"])
def test_keys_are_prepared_once(name):
    score = make_score(name)
    settled, prepared = score.precompute_keys(tensors()[1])
    with torch.no_grad():
        if name == "concat":
            score.weight[:, WIDTH:] = 0  # ignores the keys
        else:
            score.key_weight.zero_()
    query = tensors()[0]
    torch.testing.assert_close(settled(query, prepared), make_score(name)(query, tensors()[1]))


def test_the_scores_that_teach_nothing_are_found_in_a_model():
    model = nn.ModuleDict({name: make_score(name) for name in NAMES})
    assert find_scores_without_gradient(model) == {name: name.capitalize() for name in STEPS}


def test_the_names_that_need_equal_widths_are_those_that_refuse_others():
    for name in SCORES:
        score = build_score(name, 3, 4)
        if name in EQUAL_WIDTHS:
            with pytest.raises(RegardError, match="must have the same width"):
                score(torch.zeros(2, 3), torch.zeros(2, 4))
        else:
            assert score(torch.zeros(2, 3), torch.zeros(5, 4)).shape == (2, 5)
