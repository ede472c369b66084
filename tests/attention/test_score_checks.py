import jaxtyping
import pytest
import torch
from torch import Tensor

from regard import RegardError, attend
from regard.attention import Additive, Bilinear, Boxcar, Gaussian, Kernel, ReducedRank, Score, build_score

from .cases import tensors


class Given(Score):
    """Returns the result it was created with."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result

    def forward(self, query, keys):
        return self.result


class GivenDot(Given):
    def as_dot(self, query, keys):
        return self.result


class GivenKernel(Kernel):
    def kernel(self, query, keys):
        return keys @ query.mT


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "Given: scores must be a float tensor, got NoneType"),
        ([[0.0]], "Given: scores must be a float tensor, got list"),
        (torch.zeros(2, 4, 7).long(), "Given: scores must be a float tensor, got int64"),
        (torch.zeros(2, 7, 4), "Given: scores must have shape (*batch, queries, keys) = (2, 4, 7), got (2, 7, 4)"),
        (torch.zeros(3, 4, 7), "Given: scores must have shape (*batch, queries, keys) = (2, 4, 7), got (3, 4, 7)"),
        (torch.zeros(7), "Given: scores must have shape (*batch, queries, keys) = (2, 4, 7), got (7,)"),
        (
            torch.zeros(1, 2, 4, 7),
            "Given: scores must have shape (*batch, queries, keys) = (2, 4, 7), got (1, 2, 4, 7)",
        ),
    ],
)
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_scores_that_are_none_are_said(result, message, path, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        attend(*tensors(2), Given(result), path=path)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("score", "axes", "message"),
    [
        (
            Additive(5, 5, 4, heads=3),
            (2, 4),
            "Additive: expected leading axes that end in 3 heads, got (2, 4)",
        ),
        (Bilinear(5, 5, heads=3), (), "Bilinear: expected leading axes that end in 3 heads, got ()"),
        (
            Gaussian(heads=(2, 3)),
            (3, 2),
            "Gaussian: expected leading axes that end in 2 x 3 heads, got (3, 2)",
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
    output = attend(torch.zeros(*axes, 4, 5), torch.zeros(*axes, 7, 5), torch.ones(*axes, 7, 5), score)
    torch.testing.assert_close(output, torch.ones(*axes, 4, 5))


@pytest.mark.parametrize("name", ["additive", "bilinear", "concat", "reduced_rank"])
@pytest.mark.parametrize("path", ["reference", "tiled", None])
def test_parameters_of_another_type_are_said(name, path):
    score = build_score(name, 5, 5)
    inputs = torch.ones(2, 4, 5).double(), torch.ones(2, 7, 5).double(), torch.ones(2, 7, 5).double()
    with pytest.raises(RegardError) as error:
        attend(*inputs, score, path=path)
    message = "parameters are float32, but a query or key is float64; convert the module with .to(torch.float64)"
    assert str(error.value) == f"{type(score).__name__}: {message}"
    torch.testing.assert_close(attend(*inputs, score.to(torch.float64), path=path), torch.ones(2, 4, 5).double())


@pytest.mark.parametrize("given", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("gives", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("path", ["reference", "tiled"])
def test_a_score_may_give_another_type(given, gives, path):
    class Other(Score):
        def forward(self, query, keys):
            return (query @ keys.mT).to(gives)

    query, keys, values = (tensor.to(given) for tensor in tensors(2))
    output = attend(query, keys, values, Other(), path=path)
    assert output.dtype == given
    torch.testing.assert_close(output, attend(query, keys, values, "dot", path="reference"), rtol=1e-2, atol=1e-2)


def test_autocast_does_not_make_float64_fit():
    score, inputs = Bilinear(5, 5), [torch.ones(4, 5).double()] * 3
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RegardError, match="parameters are float32"):
        attend(*inputs, score)


def test_a_width_without_a_gradient_is_not_learned():
    with pytest.raises(RegardError) as error:
        Boxcar(learnable=True)
    assert str(error.value) == "Boxcar: learnable must be False, since the width has no gradient"


def test_an_activation_must_be_a_function(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        Additive(5, 5, 4, activation="tanh")
    assert str(error.value) == "Additive: activation must be a function such as torch.tanh, got 'tanh'"


def test_a_settled_score_knows_its_heads():
    score, keys = Additive(5, 5, 4, heads=3).precompute_keys(torch.zeros(2, 3, 7, 5))
    assert attend(torch.zeros(2, 3, 4, 5), keys, torch.ones(2, 3, 7, 5), score).shape == (2, 3, 4, 5)
    with pytest.raises(RegardError, match="PrecomputedScore: expected leading axes that end in 3 heads"):
        attend(torch.zeros(2, 4, 4, 5), keys[:, :1], torch.ones(2, 1, 7, 5), score)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bilinear(0, 5), "Bilinear: query_dim must be a positive integer, got 0"),
        (lambda: ReducedRank(5, 5, 0), "ReducedRank: rank must be a positive integer, got 0"),
        (lambda: Additive(5, 5, -4), "Additive: hidden must be a positive integer, got -4"),
        (lambda: build_score("concat", 5, 5, hidden=0), "Concat: hidden must be a positive integer, got 0"),
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
        "GivenKernel: scores must have shape (*batch, queries, keys) = (2, 4, 7), got (2, 7, 4)"
    )


@pytest.mark.parametrize("path", ["sdpa", "tiled", None])
def test_a_dot_form_may_be_a_plain_tuple(path):
    query, keys, values = tensors(2)
    expected = attend(query, keys, values, "dot", path="reference")
    torch.testing.assert_close(attend(query, keys, values, GivenDot((query, keys)), path=path), expected)
    half = GivenDot((query, keys * 2, 0.5, torch.zeros(7, dtype=torch.float64)))
    torch.testing.assert_close(attend(query, keys, values, half, path=path), expected)


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
        'path "sdpa" does not support this call: Sometimes is not a dot product here; '
        'use path=None, "tiled" or "reference"'
    )


QUERY, KEYS, _ = tensors(2)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (QUERY, "expected DotForm(query, keys, scale, key_bias), got float64"),
        ((QUERY,), "expected DotForm(query, keys, scale, key_bias), got 1 items"),
        ((QUERY, KEYS, 1.0, None, None), "expected DotForm(query, keys, scale, key_bias), got 5 items"),
        ((KEYS, KEYS), "expected query of shape (*batch, 4, width), got shape (2, 7, 6)"),
        ((QUERY, None), "expected keys of shape (*batch, 7, width), got NoneType"),
        ((QUERY[..., :3], KEYS), "query and keys must have the same width, got 3 and 6"),
        ((QUERY, KEYS[..., :3]), "query and keys must have the same width, got 6 and 3"),
        ((QUERY, KEYS, torch.ones(())), "scale must be a number, got float32"),
        ((QUERY, KEYS, 1.0, 2.0), "expected key_bias of shape (*batch, 7), got float"),
        ((QUERY, KEYS, 1.0, torch.zeros(2, 4)), "expected key_bias of shape (*batch, 7), got shape (2, 4)"),
    ],
)
def test_what_is_no_dot_form_is_said(result, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(RegardError) as error:
        attend(*tensors(2), GivenDot(result))
    assert str(error.value) == f"GivenDot.as_dot: {message}"
