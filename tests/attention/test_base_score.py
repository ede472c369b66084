import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError, attend
from regard.attention.base_score import broadcast_shapes, get_score_parameters, head_axes

from .cases import make_score, tensors

SHAPES = st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4)


@given(SHAPES)
def test_shapes_broadcast_as_torchs_do(shapes):
    try:
        expected = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_shapes(*shapes)
    else:
        assert broadcast_shapes(*shapes) == expected


@pytest.mark.parametrize("heads", ["8", 0, (2, 0), 1.5])
def test_heads_that_cannot_be_are_said(heads, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # type checks are on only in tests
    with pytest.raises(RegardError) as error:
        head_axes(heads)
    assert str(error.value) == (f"heads must be a positive integer or a sequence of them, got {heads!r}")


def replica_of(module):
    """A copy as `nn.DataParallel` makes it, with plain tensors computed from the parameters."""
    replica = module._replicate_for_data_parallel()
    for name, parameter in module.named_parameters():
        setattr(replica, name, parameter * 1)
    return replica


@pytest.mark.parametrize("name", ["additive", "concat", "bilinear"])
def test_the_parameters_of_a_replica_learn(name):
    query, keys, values = tensors(2)
    expected = make_score(name)
    attend(query, keys, values, expected, path="reference").square().sum().backward()
    score = make_score(name)
    replica = replica_of(score)
    assert not list(replica.parameters())
    assert list(get_score_parameters(replica)) == list(get_score_parameters(score))
    out, weights = attend(query, keys, values, replica, path="tiled", normalizer="entmax15", return_weights=True)
    torch.testing.assert_close(weights.detach().dense() @ values, out)
    attend(query, keys, values, replica, path="tiled").square().sum().backward()
    for parameter, other in zip(score.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)
