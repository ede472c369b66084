import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard import RegardError, attend
from regard.attention import (
    Additive,
    Bilinear,
    Boxcar,
    Concat,
    DotForm,
    Epanechnikov,
    Gaussian,
    ReducedRank,
    Score,
    build_score,
)
from regard.attention.scores import EQUAL_WIDTHS, SCORES, as_score, without_gradient

from .cases import FORMULAS, NAMES, SMOOTH, STEPS, WIDTH, make_score, numpy_weights, tensors


@pytest.mark.parametrize("name", NAMES)
def test_a_score_follows_its_formula(name):
    query, keys, _ = tensors()
    score = make_score(name)
    formula, is_kernel = FORMULAS[name]
    parameters = {key: value.detach().numpy() for key, value in score.named_parameters()}
    wanted = np.array([[formula(q, k, parameters) for k in keys.numpy()] for q in query.numpy()])
    found = score(query, keys).detach().numpy()
    np.testing.assert_allclose(
        np.exp(found) if is_kernel and name != "uniform" else found + (name == "uniform"), wanted
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["reference", "tiled", None])
def test_weights_and_output_follow_the_formula(name, path):
    query, keys, values = tensors()
    score = make_score(name)
    visible = np.random.default_rng(0).random((4, 7)) < 0.7
    visible[2] = False
    wanted = numpy_weights(name, score, query.numpy(), keys.numpy(), visible)
    out, weights = attend(query, keys, values, score, visible=torch.from_numpy(visible), path=path, return_weights=True)
    np.testing.assert_allclose(weights.dense().detach().numpy(), wanted, atol=1e-12)
    np.testing.assert_allclose(out.detach().numpy(), wanted @ values.numpy(), atol=1e-12)
    assert wanted[0].sum() == pytest.approx(1)  # the case is not an empty one
    assert not wanted[2].any()


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


def test_gaussian_is_its_kernel_divided_by_the_sum():
    query, keys, values = tensors(2)
    kernel = torch.exp(-(query[:, :, None] - keys[:, None]).square().sum(-1) / 2)
    wanted = kernel @ values / kernel.sum(-1, keepdim=True)
    torch.testing.assert_close(attend(query, keys, values, "gaussian", path="sdpa"), wanted)


def test_gaussian_equals_dot_where_all_keys_have_one_norm():
    query, keys, values = tensors(2)
    keys = 3 * keys / keys.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(attend(query, keys, values, "gaussian"), attend(query, keys, values, "dot"))
    plain = torch.nn.functional.layer_norm(keys, (WIDTH,))
    torch.testing.assert_close(
        attend(query, plain, values, "gaussian"), attend(query, plain, values, "dot"), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("kind", [Gaussian, Boxcar, Epanechnikov])
def test_the_width_of_a_kernel_measures_distance(kind):
    query, keys, values = tensors()
    torch.testing.assert_close(
        attend(query * 2.5, keys * 2.5, values, kind(2.5)), attend(query, keys, values, kind(1.0))
    )


@pytest.mark.parametrize("kind", [Gaussian, Epanechnikov])
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_a_learnable_width_for_each_head_has_a_gradient(kind, path):
    query, keys, values = tensors(3)
    score = kind(1.5, learnable=True, heads=3).double()
    attend(query, keys, values, score, path=path).sum().backward()
    step = 1e-6
    with torch.no_grad():
        score.width[1] += step
        above = attend(query, keys, values, score).sum()
        score.width[1] -= 2 * step
        below = attend(query, keys, values, score).sum()
    assert score.width.grad is not None
    assert score.width.grad[1].item() == pytest.approx(((above - below) / (2 * step)).item(), rel=1e-4)


def test_epanechnikov_by_hand():
    keys = torch.tensor([[0.0], [0.5], [1.0], [3.0]])
    values = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    query = torch.tensor([[0.0], [2.0]])  # distances 0, .5, 1, 3 and 2, 1.5, 1, 1: the second reaches none
    wanted = torch.tensor([[(1 * 1 + 0.5 * 2) / 1.5], [0.0]])
    torch.testing.assert_close(attend(query, keys, values, "epanechnikov"), wanted)
    squared = torch.tensor([[(1 * 1 + 0.75 * 2) / 1.75], [0.0]])
    torch.testing.assert_close(attend(query, keys, values, Epanechnikov(power=2)), squared)


def test_boxcar_takes_the_edge_in():
    keys = torch.tensor([[1.0], [3.0], [3.0001]])
    out = attend(torch.tensor([[2.0]]), keys, torch.tensor([[1.0], [3.0], [100.0]]), "boxcar")
    torch.testing.assert_close(out, torch.tensor([[2.0]]))


def test_heads_have_parameters_of_their_own():
    query, keys, _ = tensors(2, 3)
    for name in ("additive", "concat", "bilinear", "reduced_rank"):
        many = make_score(name, heads=3)
        for head in range(3):
            one = make_score(name)
            for own, ours in zip(one.parameters(), many.parameters(), strict=True):
                own.data = ours.data[head]
            torch.testing.assert_close(many(query, keys)[:, head], one(query[:, head], keys[:, head]), msg=name)


def test_additive_takes_another_activation():
    query, keys, values = tensors()
    score = Additive(WIDTH, WIDTH, 5, activation=torch.relu).double()
    wanted = torch.relu((query @ score.query_weight.T)[:, None] + (keys @ score.key_weight.T)[None]) @ score.energy
    torch.testing.assert_close(score(query, keys), wanted)
    torch.testing.assert_close(attend(query, keys, values, score, path="tiled"), torch.softmax(wanted, -1) @ values)


class Manhattan(Score):
    """A score as a user would write it."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return -(query[..., :, None, :] - keys[..., None, :, :]).abs().sum(-1)


class HalfDot(Score):
    """One with a dot form, which leaves out a term that no softmax sees."""

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
    torch.testing.assert_close(attend(query, keys, values, HalfDot(), normaliser="none", path="tiled"), plain)


@pytest.mark.parametrize("name", SMOOTH)
def test_every_name_can_be_built(name):
    query, keys, values = tensors()
    assert attend(query, keys, values, build_score(name, WIDTH, WIDTH).double()).shape == (4, 3)


def test_all_names_are_listed():
    assert SCORES == NAMES


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("scaled-dot", 'score: there is no "scaled-dot"; did you mean "scaled_dot"?'),
        ("additive", 'score: "additive" has parameters; make it with regard.attention.build_score("additive", ...)'),
        (torch.dot, "score: found builtin_function_or_method; give a name or a subclass of regard.attention.Score"),
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
        "ScaledDot: query has width 5, keys have 6; equal widths are needed "
        "(Bilinear, ReducedRank, Additive and Concat take any)"
    )


def test_a_width_of_zero_is_refused():
    with pytest.raises(RegardError, match=r"^Gaussian: width is 0; a kernel's width is above 0$"):
        Gaussian(0)


def test_dot_products_of_unit_variance_have_variance_one_when_scaled():
    torch.manual_seed(0)
    query, keys = torch.randn(2000, 256), torch.randn(500, 256)
    assert as_score("dot")(query, keys).var().item() == pytest.approx(256, rel=0.05)
    assert as_score("scaled_dot")(query, keys).var().item() == pytest.approx(1, rel=0.05)
    assert math.isclose(as_score("scaled_dot")(query, keys)[0, 0], query[0] @ keys[0] / 16, rel_tol=1e-4)


def test_a_score_of_the_wrong_shape_is_said():
    class Wrong(Score):
        def forward(self, query: Tensor, keys: Tensor) -> Tensor:
            return keys @ query.mT

    for path in ("reference", "tiled"):
        with pytest.raises(RegardError) as error:
            attend(*tensors(2), Wrong(), path=path)
        assert str(error.value) == (
            "Wrong: gave scores of shape (2, 7, 4) for 4 queries and 7 keys; (*batch, queries, keys) is needed"
        )


@pytest.mark.parametrize("kind", [Bilinear(5, 6), ReducedRank(5, 6, 2), Additive(5, 6, 3), Concat(5, 6, 3)], ids=repr)
def test_other_widths_than_a_score_was_made_for_are_said(kind):
    with pytest.raises(RegardError) as error:
        attend(torch.randn(4, 5), torch.randn(7, 8), torch.randn(7, 2), kind)
    assert str(error.value) == f"{type(kind).__name__}: made for keys of width 6, found width 8"


def test_a_score_shows_its_parameters():
    assert repr(Additive(5, 6, 3)) == "Additive(query_weight=(3, 5), key_weight=(3, 6), energy=(3,))"
    assert repr(Gaussian(0.5)) == "Gaussian(width=0.5)"


@pytest.mark.parametrize("path", ["reference", "tiled"])
@pytest.mark.parametrize("name", NAMES)
def test_settled_keys_score_as_before(name, path):
    query, keys, values = (tensor.requires_grad_() for tensor in tensors(2, 3))
    score = make_score(name, heads=3)
    wanted = attend(query, keys, values, score, path="reference")
    settled, prepared = score.settle(keys)
    found = attend(query, prepared, values, settled, path=path)
    torch.testing.assert_close(found, wanted)
    sources = [query, keys, values, *(p for p in score.parameters() if p.requires_grad)]
    pulled, expected = (
        torch.autograd.grad(out.square().sum(), sources, allow_unused=True, materialize_grads=True)
        for out in (found, wanted)
    )
    torch.testing.assert_close(pulled, expected)


@pytest.mark.parametrize("name", ["additive", "concat", "reduced_rank"])
def test_keys_are_prepared_once(name):
    score = make_score(name)
    settled, prepared = score.settle(tensors()[1])
    with torch.no_grad():
        if name == "concat":
            score.weight[:, WIDTH:] = 0  # no longer looked at
        else:
            score.key_weight.zero_()
    query = tensors()[0]
    torch.testing.assert_close(settled(query, prepared), make_score(name)(query, tensors()[1]))


def test_the_scores_that_teach_nothing_are_found_in_a_model():
    model = nn.ModuleDict({name: make_score(name) for name in NAMES})
    assert without_gradient(model) == {name: name.capitalize() for name in STEPS}


def test_the_names_that_need_equal_widths_are_those_that_refuse_others():
    for name in SCORES:
        score = build_score(name, 3, 4)
        if name in EQUAL_WIDTHS:
            with pytest.raises(RegardError, match="equal widths are needed"):
                score(torch.zeros(2, 3), torch.zeros(2, 4))
        else:
            assert score(torch.zeros(2, 3), torch.zeros(5, 4)).shape == (2, 5)
