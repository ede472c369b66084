import math

import pytest
import torch

from regard import RegardError
from regard.layers.positions import Positions, Rotation, angles, sinusoids

LIKE = torch.zeros((), dtype=torch.float64)


def test_waves_follow_the_formula():
    table = sinusoids(50, 6, LIKE)
    for place, i in ((0, 0), (0, 1), (1, 0), (7, 3), (49, 4), (49, 5)):
        angle = place / 10000 ** (2 * (i // 2) / 6)
        assert table[place, i].item() == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-12)
    torch.testing.assert_close(sinusoids(9, 5, LIKE).square().sum(-1)[0].item(), 2.0)  # an odd width ends in a sine


def test_a_pair_turns_by_its_angle():
    turning = angles(9, 6, LIKE)
    x = torch.randn(2, 3, 9, 6, dtype=torch.float64)
    as_numbers = torch.view_as_complex(x.unflatten(-1, (3, 2)))
    wanted = torch.view_as_real(as_numbers * torch.polar(torch.ones_like(turning), turning)).flatten(-2)
    torch.testing.assert_close(Rotation(turning.cos(), turning.sin())(x), wanted)


def test_turned_products_know_only_how_far_apart_they_stand():
    turn = Positions("rotary", 16, head_width=8)(20, LIKE).turn
    query, key = torch.randn(2, 1, 8, dtype=torch.float64).expand(2, 20, 8)
    products = turn(query) @ turn(key).mT
    for apart in (-5, 0, 3):
        along = products.diagonal(apart)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert not torch.allclose(products[0, 0], products[0, 3])


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_place_is_a_row_of_all_places_in_the_type_asked_for(kind, dtype):
    positions = Positions(kind, 8, head_width=4, longest=7).to(dtype)
    places = positions(7, torch.zeros((), dtype=dtype))
    one = places.at(4)
    if kind == "rotary":
        assert places.added is None
        x = torch.randn(3, 7, 4, dtype=dtype)
        assert places.turn(x).dtype == dtype
        assert torch.equal(one.turn(x[:, 4:5]), places.turn(x)[:, 4:5])
    else:
        assert places.turn is None
        assert (places.added.dtype, places.added.shape) == (dtype, (7, 8))
        assert torch.equal(one.added, places.added[4:5])


def test_some_places_are_rows_of_all_places():
    places = Positions("learned", 8, head_width=4, longest=7)(7, LIKE)
    assert torch.equal(places.at(2, 3).added, places.added[2:5])
    turn = Positions("rotary", 8, head_width=4)(7, LIKE).at(2, 3).turn
    torch.testing.assert_close(turn.cosine, angles(7, 4, LIKE)[2:5].cos())


def test_what_is_added_can_be_made_smaller():
    torch.manual_seed(0)
    waves = Positions("sinusoidal", 6, head_width=2, scale=0.5)(9, LIKE).added
    torch.testing.assert_close(waves, sinusoids(9, 6, LIKE) / 2)
    for scale in (1.0, 0.1):
        table = Positions("learned", 64, head_width=2, longest=200, scale=scale).table
        assert table.std().item() == pytest.approx(scale * math.sqrt(0.5), rel=0.05)  # the waves' is sqrt(0.5)


def test_what_does_not_fit_is_said():
    with pytest.raises(RegardError) as error:
        Positions("learned", 8, head_width=4, longest=7)(8, LIKE)
    assert str(error.value) == "positions: 8 places are too many; longest is 7"
    with pytest.raises(RegardError) as error:
        Positions("learnt", 8, head_width=4)
    assert str(error.value) == 'positions: there is no "learnt"; did you mean "learned"?'
    with pytest.raises(RegardError) as error:
        Positions("rotary", 10, head_width=5)
    assert str(error.value) == "positions: rotary turns pairs of numbers; heads of width 5 leave one over"
