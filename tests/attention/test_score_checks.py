import jaxtyping
import pytest
import torch
from torch import Tensor

from regard import RegardError, attend
from regard.attention import Additive, Bilinear, Boxcar, Gaussian, Kernel, ReducedRank, Score, build_score

from .cases import tensors


class Given(Score):
    """Gives what it is told to."""

    def __init__(self, found: object) -> None:
        super().__init__()
        self.found = found

    def forward(self, query, keys):
        return self.found


class GivenDot(Given):
    def as_dot(self, query, keys):
        return self.found


class GivenKernel(Kernel):
    def kernel(self, query, keys):
        return keys @ query.mT


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "Given: gave scores of type NoneType; a tensor of floats is needed"),
        ([[0.0]], "Given: gave scores of type list; a tensor of floats is needed"),
        (torch.zeros(2, 4, 7).long(), "Given: gave scores of type int64; a tensor of floats is needed"),
        (torch.zeros(2, 7, 4), "Given: gave scores of shape (2, 7, 4); (*batch, queries, keys) is needed, (2, 4, 7)"),
        (torch.zeros(3, 4, 7), "Given: gave scores of shape (3, 4, 7); (*batch, queries, keys) is needed, (2, 4, 7)"),
        (torch.zeros(7), "Given: gave scores of shape (7,); (*batch, queries, keys) is needed, (2, 4, 7)"),
        (
            torch.zeros(1, 2, 4, 7),
            "Given: gave scores of shape (1, 2, 4, 7); (*batch, queries, keys) is needed, (2, 4, 7)",
        ),
    ],
)
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_scores_that_are_none_are_said(found, message, path, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    with pytest.raises(RegardError) as error:
        attend(*tensors(2), Given(found), path=path)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("score", "axes", "message"),
    [
        (
            Additive(5, 5, 4, heads=3),
            (2, 4),
            "Additive: made for 3 heads, found leading axes (2, 4); they must end in 3",
        ),
        (Bilinear(5, 5, heads=3), (), "Bilinear: made for 3 heads, found leading axes (); they must end in 3"),
        (
            Gaussian(heads=(2, 3)),
            (3, 2),
            "Gaussian: made for 2 x 3 heads, found leading axes (3, 2); they must end in 2, 3",
        ),
    ],
)
@pytest.mark.parametrize("path", ["reference", "tiled", None])
def test_heads_that_are_not_those_of_the_score_are_said(score, axes, message, path):
    with pytest.raises(RegardError) as error:
        attend(torch.zeros(*axes, 4, 5), torch.zeros(*axes, 7, 5), torch.zeros(*axes, 7, 5), score, path=path)
    assert str(error.value) == message


@pytest.mark.parametrize("axes", [(3,), (2, 3), (3, 1)])
def test_heads_that_are_those_of_the_score_are_taken(axes):
    score = Gaussian(heads=axes[-1])
    found = attend(torch.zeros(*axes, 4, 5), torch.zeros(*axes, 7, 5), torch.ones(*axes, 7, 5), score)
    torch.testing.assert_close(found, torch.ones(*axes, 4, 5))


@pytest.mark.parametrize("name", ["additive", "bilinear", "concat", "reduced_rank"])
@pytest.mark.parametrize("path", ["reference", "tiled", None])
def test_parameters_of_another_type_are_said(name, path):
    score = build_score(name, 5, 5)
    inputs = torch.ones(2, 4, 5).double(), torch.ones(2, 7, 5).double(), torch.ones(2, 7, 5).double()
    with pytest.raises(RegardError) as error:
        attend(*inputs, score, path=path)
    told = "has parameters of float32, a query or key of float64 came; .to(torch.float64) makes it fit"
    assert str(error.value) == f"{type(score).__name__}: {told}"
    torch.testing.assert_close(attend(*inputs, score.to(torch.float64), path=path), torch.ones(2, 4, 5).double())


@pytest.mark.parametrize("given", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("gives", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_a_score_may_give_another_type(given, gives, path):
    class Other(Score):
        def forward(self, query, keys):
            return (query @ keys.mT).to(gives)

    query, keys, values = (tensor.to(given) for tensor in tensors(2))
    found = attend(query, keys, values, Other(), path=path)
    assert found.dtype == given
    torch.testing.assert_close(found, attend(query, keys, values, "dot", path="reference"), rtol=1e-2, atol=1e-2)


def test_autocast_does_not_make_float64_fit():
    score, inputs = Bilinear(5, 5), [torch.ones(4, 5).double()] * 3
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RegardError, match="has parameters of float32"):
        attend(*inputs, score)


def test_a_width_without_a_gradient_is_not_learnt():
    with pytest.raises(RegardError) as error:
        Boxcar(learnable=True)
    assert str(error.value) == "Boxcar: learnable is True, but its width has no gradient to learn from"


def test_an_activation_must_be_a_function(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    with pytest.raises(RegardError) as error:
        Additive(5, 5, 4, activation="tanh")
    assert str(error.value) == "Additive: activation is 'tanh'; a function is needed, such as torch.tanh"


def test_a_settled_score_knows_its_heads():
    score, keys = Additive(5, 5, 4, heads=3).settle(torch.zeros(2, 3, 7, 5))
    assert attend(torch.zeros(2, 3, 4, 5), keys, torch.ones(2, 3, 7, 5), score).shape == (2, 3, 4, 5)
    with pytest.raises(RegardError, match="Settled: made for 3 heads"):
        attend(torch.zeros(2, 4, 4, 5), keys[:, :1], torch.ones(2, 1, 7, 5), score)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bilinear(0, 5), "Bilinear: query_dim is 0; a whole number above 0 is needed"),
        (lambda: ReducedRank(5, 5, 0), "ReducedRank: rank is 0; a whole number above 0 is needed"),
        (lambda: Additive(5, 5, -4), "Additive: hidden is -4; a whole number above 0 is needed"),
        (lambda: build_score("concat", 5, 5, hidden=0), "Concat: hidden is 0; a whole number above 0 is needed"),
    ],
)
def test_a_score_of_no_size_is_not_made(make, message):
    with pytest.raises(RegardError) as error:
        make()
    assert str(error.value) == message


def test_a_kernel_of_the_wrong_shape_is_said():
    with pytest.raises(RegardError) as error:
        attend(*tensors(2), GivenKernel())
    assert str(error.value) == (
        "GivenKernel: gave scores of shape (2, 7, 4); (*batch, queries, keys) is needed, (2, 4, 7)"
    )


@pytest.mark.parametrize("path", ["sdpa", "tiled", None])
def test_a_dot_form_may_be_a_plain_tuple(path):
    query, keys, values = tensors(2)
    wanted = attend(query, keys, values, "dot", path="reference")
    torch.testing.assert_close(attend(query, keys, values, GivenDot((query, keys)), path=path), wanted)
    half = GivenDot((query, keys * 2, 0.5, torch.zeros(7, dtype=torch.float64)))
    torch.testing.assert_close(attend(query, keys, values, half, path=path), wanted)


def test_a_score_without_a_dot_form_here_takes_another_path():
    class Sometimes(Score):
        def forward(self, query: Tensor, keys: Tensor) -> Tensor:
            return query @ keys.mT

        def as_dot(self, query: Tensor, keys: Tensor) -> None:
            return None

    query, keys, values = tensors(2)
    torch.testing.assert_close(attend(query, keys, values, Sometimes()), attend(query, keys, values, "dot"))
    with pytest.raises(RegardError) as error:
        attend(query, keys, values, Sometimes(), path="sdpa")
    assert str(error.value) == (
        'path: "sdpa" cannot be had: Sometimes is no dot product here; leave out path, or take "tiled" or "reference"'
    )


QUERY, KEYS, _ = tensors(2)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (QUERY, "float64; DotForm(query, keys, scale, key_bias) is needed"),
        ((QUERY,), "1 things; DotForm(query, keys, scale, key_bias) is needed"),
        ((QUERY, KEYS, 1.0, None, None), "5 things; DotForm(query, keys, scale, key_bias) is needed"),
        ((KEYS, KEYS), "query of shape (2, 7, 6); (*batch, 4, width) is needed"),
        ((QUERY, None), "keys of type NoneType; (*batch, 7, width) is needed"),
        ((QUERY[..., :3], KEYS), "query of width 3, keys of 6; one width is needed"),
        ((QUERY, KEYS[..., :3]), "query of width 6, keys of 3; one width is needed"),
        ((QUERY, KEYS, torch.ones(())), "a scale of type float32; a plain number is needed"),
        ((QUERY, KEYS, 1.0, 2.0), "a key_bias of type float; (*batch, 7) is needed"),
        ((QUERY, KEYS, 1.0, torch.zeros(2, 4)), "a key_bias of shape (2, 4); (*batch, 7) is needed"),
    ],
)
def test_what_is_no_dot_form_is_said(found, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(RegardError) as error:
        attend(*tensors(2), GivenDot(found))
    assert str(error.value) == f"GivenDot: as_dot gave {message}"
