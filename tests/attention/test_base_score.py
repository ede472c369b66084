import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError, attend
from regard.attention.base_score import broadcast_shapes, head_axes, learnt

from .cases import make_score, tensors

SHAPES = st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4)


@given(SHAPES)
def test_shapes_broadcast_as_torchs_do(shapes):
    try:
        wanted = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_shapes(*shapes)
    else:
        assert broadcast_shapes(*shapes) == wanted


@pytest.mark.parametrize("heads", ["8", 0, (2, 0), 1.5])
def test_heads_that_cannot_be_are_said(heads, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    with pytest.raises(RegardError) as error:
        head_axes(heads)
    assert str(error.value) == (f"heads: found {heads!r}; a whole number above 0, or a grid of such numbers, is needed")


def replica_of(module):
    """A copy as `nn.DataParallel` makes it: what were parameters are plain tensors, computed from them."""
    replica = module._replicate_for_data_parallel()
    for name, parameter in module.named_parameters():
        setattr(replica, name, parameter * 1)
    return replica


@pytest.mark.parametrize("name", ["additive", "concat", "bilinear"])
def test_the_parameters_of_a_replica_learn(name):
    query, keys, values = tensors(2)
    wanted = make_score(name)
    attend(query, keys, values, wanted, path="reference").square().sum().backward()
    score = make_score(name)
    replica = replica_of(score)
    assert not list(replica.parameters())
    assert list(learnt(replica)) == list(learnt(score))
    out, weights = attend(query, keys, values, replica, path="tiled", normaliser="entmax15", return_weights=True)
    torch.testing.assert_close(weights.detach().dense() @ values, out)
    attend(query, keys, values, replica, path="tiled").square().sum().backward()
    for own, right in zip(score.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(own.grad, right.grad)
