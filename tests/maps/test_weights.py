import numpy as np
import pytest
import torch
from torch import nn

from regard import RegardError, attend, watch
from regard.alignment import merge_words
from regard.maps.sides import Side, build_token_side
from regard.maps.weights import build_map_weights
from regard.text.units import TextUnit
from regard.views.weights import TopWeights

WORDS = Side((TextUnit("<s>", (0,)), TextUnit("ab", (1, 2)), TextUnit("c", (4,)), TextUnit("def", (5, 6, 7))), 8)
OWNERS = [0, 1, 1, None, 2, 3, 3, 3]  # the same, as another function takes it
TOKENS = build_token_side(tuple("abcdefgh"))


def layers_of(seen, paths):
    return [seen.join_steps(path) for path in paths]


class Layer(nn.Module):
    """Attention to eight keys, for all queries at once or for one after the other, as a decoder with a state does."""

    def __init__(self, by_rows: bool) -> None:
        super().__init__()
        self.by_rows = by_rows

    def forward(self, query, keys):
        for part in query.split(1, -2) if self.by_rows else [query]:
            attend(part, keys, keys, "scaled_dot")


def seen_of(*shapes, by_rows=False):
    """Recorded weights of layers with these leading shapes, and the expected ones by the formula."""
    model, expected = nn.ModuleList(Layer(by_rows) for _ in shapes), []
    with watch(model) as seen:
        for number, (layer, shape) in enumerate(zip(model, shapes, strict=True)):
            generator = torch.Generator().manual_seed(number)
            query, keys = (torch.randn(*shape, 8, 4, generator=generator) for _ in range(2))
            layer(query, keys)
            expected.append((query @ keys.mT / 2).softmax(-1)[0].reshape(-1, 8, 8))
    return seen, torch.stack(expected).numpy()


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("shape", [(1,), (1, 2), (1, 2, 3)])
def test_all_weights_are_those_of_the_formula(shape, by_rows):
    seen, expected = seen_of(shape, shape, by_rows=by_rows)
    map_weights = build_map_weights(layers_of(seen, ["0", "1"]), TOKENS, TOKENS)
    np.testing.assert_allclose(map_weights, expected, rtol=1e-5)


@pytest.mark.parametrize("at_once", [1, 2 * 8 * 3, 2**24])
def test_words_are_merged_as_for_alignments(at_once, monkeypatch):
    monkeypatch.setattr("regard.maps.weights.AT_ONCE", at_once)
    seen, expected = seen_of((1, 2), (1, 2))
    map_weights = build_map_weights(layers_of(seen, ["0", "1"]), WORDS, WORDS)
    np.testing.assert_allclose(map_weights, merge_words(expected, OWNERS, OWNERS), rtol=1e-5)


@pytest.mark.parametrize("at_once", [1, 2 * 8 * 3, 2**24])
@pytest.mark.parametrize(("side", "owners"), [(TOKENS, range(8)), (WORDS, OWNERS)])
def test_the_largest_are_those_of_all(side, owners, at_once, monkeypatch):
    monkeypatch.setattr("regard.maps.weights.AT_ONCE", at_once)
    seen, expected = seen_of((1, 2), (1, 2))
    whole = merge_words(expected, list(owners), list(owners))
    map_weights = build_map_weights(layers_of(seen, ["0", "1"]), side, side, top=3)
    assert isinstance(map_weights, TopWeights)
    np.testing.assert_allclose(map_weights.values, np.sort(whole, -1)[..., :-4:-1], rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(whole, map_weights.indices, -1), map_weights.values, rtol=1e-5)
    np.testing.assert_allclose(map_weights.received, whole.sum(-2), rtol=1e-5)


def test_a_long_side_keeps_as_many_as_a_page_can_hold(monkeypatch):
    monkeypatch.setattr("regard.maps.weights.LONG", 7)
    seen, _ = seen_of((1, 2))
    map_weights = build_map_weights(layers_of(seen, ["0"]), TOKENS, TOKENS)
    assert isinstance(map_weights, TopWeights)
    assert map_weights.top_k == 8
    monkeypatch.setattr("regard.maps.weights.MOST_WEIGHTS", 2 * 8 * 5)
    assert build_map_weights(layers_of(seen, ["0"]), TOKENS, TOKENS).top_k == 5
    assert build_map_weights(layers_of(seen, ["0"]), WORDS, TOKENS).top_k == 8  # four rows of all eight: ten would fit


def test_a_weight_of_nothing_has_no_place():
    model = Layer(False)
    query, keys = torch.tensor([[[1.0]]]), torch.tensor([[[0.0], [-1000.0]]])
    with watch(nn.ModuleList([model])) as seen:
        model(query, keys)
    map_weights = build_map_weights(layers_of(seen, ["0"]), build_token_side("a"), build_token_side("ab"), top=2)
    assert map_weights.values.tolist() == [[[[1, 0]]]]
    assert map_weights.indices.tolist() == [[[[0, -1]]]]


def test_layers_need_equally_many_heads():
    other = nn.ModuleList([Layer(False), Layer(False)])
    with watch(other) as seen:
        for layer, heads in zip(other, (2, 3), strict=True):
            layer(torch.zeros(1, heads, 8, 4), torch.zeros(1, heads, 8, 4))
    with pytest.raises(RegardError, match=r"^look: all layers must have the same number of heads, got 2, 3$"):
        build_map_weights(layers_of(seen, ["0", "1"]), TOKENS, TOKENS)
