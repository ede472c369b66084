import math

import pytest
import torch

from regard import RegardError
from regard.layers.positions import PositionalEncoding, Rotation, angles, sinusoids

LIKE = torch.zeros((), dtype=torch.float64)


def test_waves_follow_the_formula():
    table = sinusoids(50, 6, LIKE)
    for position, i in ((0, 0), (0, 1), (1, 0), (7, 3), (49, 4), (49, 5)):
        angle = position / 10000 ** (2 * (i // 2) / 6)
        assert table[position, i].item() == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-12)
    torch.testing.assert_close(sinusoids(9, 5, LIKE).square().sum(-1)[0].item(), 2.0)  # an odd width ends in a sine


def test_a_pair_turns_by_its_angle():
    turning = angles(9, 6, LIKE)
    x = torch.randn(2, 3, 9, 6, dtype=torch.float64)
    as_numbers = torch.view_as_complex(x.unflatten(-1, (3, 2)))
    expected = torch.view_as_real(as_numbers * torch.polar(torch.ones_like(turning), turning)).flatten(-2)
    torch.testing.assert_close(Rotation(turning.cos(), turning.sin())(x), expected)


def test_a_turn_equals_that_of_transformers():
    modeling = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    table = modeling.create_sinusoidal_positions(30, 8)  # sines of the four pairs, then cosines
    sine, cosine = table[None].chunk(2, -1)
    x = torch.randn(2, 30, 3, 8)  # batch, positions, heads, width
    expected = modeling.apply_rotary_pos_emb(x, sine, cosine).transpose(1, 2)
    turn = PositionalEncoding("rotary", 24, head_width=8)(30, x).turn
    torch.testing.assert_close(turn(x.transpose(1, 2)), expected)


def test_turned_products_know_only_how_far_apart_they_stand():
    turn = PositionalEncoding("rotary", 16, head_width=8)(20, LIKE).turn
    query, key = torch.randn(2, 1, 8, dtype=torch.float64).expand(2, 20, 8)
    products = turn(query) @ turn(key).mT
    for apart in (-5, 0, 3):
        along = products.diagonal(apart)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert not torch.allclose(products[0, 0], products[0, 3])


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_place_is_a_row_of_all_places_in_the_type_asked_for(kind, dtype):
    positions = PositionalEncoding(kind, 8, head_width=4, max_length=7).to(dtype)
    encoded = positions(7, torch.zeros((), dtype=dtype))
    one = encoded.slice_from(4)
    if kind == "rotary":
        assert encoded.added is None
        x = torch.randn(3, 7, 4, dtype=dtype)
        assert encoded.turn(x).dtype == dtype
        assert torch.equal(one.turn(x[:, 4:5]), encoded.turn(x)[:, 4:5])
    else:
        assert encoded.turn is None
        assert (encoded.added.dtype, encoded.added.shape) == (dtype, (7, 8))
        assert torch.equal(one.added, encoded.added[4:5])


def test_some_places_are_rows_of_all_places():
    encoded = PositionalEncoding("learned", 8, head_width=4, max_length=7)(7, LIKE)
    assert torch.equal(encoded.slice_from(2, 3).added, encoded.added[2:5])
    turn = PositionalEncoding("rotary", 8, head_width=4)(7, LIKE).slice_from(2, 3).turn
    torch.testing.assert_close(turn.cosine, angles(7, 4, LIKE)[2:5].cos())


def test_what_is_added_can_be_made_smaller():
    torch.manual_seed(0)
    waves = PositionalEncoding("sinusoidal", 6, head_width=2, scale=0.5)(9, LIKE).added
    torch.testing.assert_close(waves, sinusoids(9, 6, LIKE) / 2)
    for scale in (1.0, 0.1):
        table = PositionalEncoding("learned", 64, head_width=2, max_length=200, scale=scale).table
        assert table.std().item() == pytest.approx(scale * math.sqrt(0.5), rel=0.05)  # the waves' is sqrt(0.5)


def test_what_does_not_fit_is_said():
    with pytest.raises(RegardError) as error:
        PositionalEncoding("learned", 8, head_width=4, max_length=7)(8, LIKE)
    assert str(error.value) == "positions: 8 positions exceed the maximum of 7"
    with pytest.raises(RegardError) as error:
        PositionalEncoding("learnt", 8, head_width=4)
    assert str(error.value) == 'unknown positions "learnt"; did you mean "learned"?'
    with pytest.raises(RegardError) as error:
        PositionalEncoding("rotary", 10, head_width=5)
    assert str(error.value) == "positions: rotary requires an even head width, got 5"
