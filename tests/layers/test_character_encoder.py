from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close

from regard.errors import RegardError
from regard.layers.character_encoder import (
    CHARACTER_ENCODERS,
    CharacterEncoder,
    CharacterNgrams,
    add_word_edges,
    hash_ngrams,
)

WAYS = CHARACTER_ENCODERS[1:]


def spelling(how: str, **settings: Any) -> CharacterEncoder:
    torch.manual_seed(2)
    return CharacterEncoder(how, 9, 4, **settings).requires_grad_(False)


def test_a_letter_is_read_with_its_neighbors_and_the_strongest_is_taken():
    spell = CharacterEncoder("max", 5, 1)
    with torch.no_grad():
        spell.letters.weight.copy_(torch.tensor([[0.0], [1.0], [2.0], [-4.0], [8.0]]))
        spell.neighbors.weight.copy_(torch.tensor([[[100.0, 10.0, 1.0]]]))
        assert spell.neighbors.bias is not None
        spell.neighbors.bias.fill_(0.5)
    # letters 1 2 -4: read as 0+10+2, 100+20-4, 200-40+0; letters 8: 80; letters -4: -40, which relu sets to 0
    vectors = spell(torch.tensor([[1, 2, 3], [4, 0, 0], [3, 0, 0], [0, 0, 0]]))
    assert vectors.tolist() == [[160.5], [80.5], [0.0], [0.0]]


def test_attention_is_the_mean_of_what_is_read_by_a_learned_query():
    spell = spelling("attention")
    letters = torch.tensor([[3, 5, 7]])
    read = functional.conv1d(
        spell.letters(letters).mT, spell.neighbors.weight, spell.neighbors.bias, padding=1
    ).mT.relu()[0]
    weights = (read @ spell.pool.queries[0] / 2).softmax(0)
    assert_close(spell(letters)[0], weights @ read @ spell.pool.attention.values.weight.T)


def test_convolutions_of_several_reaches_stand_side_by_side():
    spell = CharacterEncoder("max", 4, 3, kernel_sizes=(2, 5))
    (five,) = spell.further
    assert isinstance(five, torch.nn.Conv1d)
    assert (spell.neighbors.weight.shape, five.weight.shape) == ((2, 3, 2), (1, 3, 5))
    with torch.no_grad():
        for convolution in (spell.neighbors, five):
            convolution.weight.zero_()
            assert convolution.bias is not None
            convolution.bias.zero_()
        spell.letters.weight[1:, 0] = torch.tensor([1.0, 2.0, 3.0])
        spell.neighbors.weight[0, 0] = torch.tensor([1.0, 10.0])  # a letter and the next
        spell.neighbors.weight[1, 0] = torch.tensor([-1.0, 1.0])
        five.weight[0, 0] = torch.tensor([1.0, 0, 0, 0, 100.0])  # two before, and two after
    # letters 1 2 3: 1+20, 2+30, 3; 2-1, 3-2, -3; 300, 0, 1
    assert spell(torch.tensor([[1, 2, 3, 0], [2, 0, 0, 0]])).tolist() == [[32.0, 1.0, 300.0], [2.0, 0.0, 0.0]]


def test_an_rnn_reads_from_both_ends():
    spell = spelling("rnn")
    letters = torch.tensor([[3, 5, 7, 0], [0, 0, 0, 0]])
    states, _ = spell.recurrent.stack(spell.letters(letters[:1, :3]))
    assert_close(spell(letters), torch.cat([torch.cat([states[:, 2, :2], states[:, 0, 2:]], -1), torch.zeros(1, 4)]))


@pytest.mark.parametrize("how", WAYS)
def test_edges_are_letters_before_and_after(how):
    spell, plain = spelling(how, edges=True), spelling(how)
    plain.load_state_dict({**spell.state_dict(), "letters.weight": plain.letters.weight})
    plain.letters.weight = spell.letters.weight
    vectors = spell(torch.tensor([[3, 5, 7], [4, 0, 0], [0, 0, 0]]))
    assert_close(vectors, plain(torch.tensor([[9, 3, 5, 7, 10], [9, 4, 10, 0, 0], [0, 0, 0, 0, 0]])))
    assert vectors[2].abs().max() == 0


def test_letters_are_dropped_in_training_alone():
    spell = spelling("max", dropout=0.5)
    letters = torch.tensor([[3, 5, 7]])
    torch.manual_seed(1)
    assert not torch.equal(spell(letters), spell(letters))
    assert_close(spell.eval()(letters), spelling("max")(letters))


READINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "kernel_sizes": {"kernel_sizes": (1, 2, 4, 5)},
    "edges": {"edges": True},
}


@given(
    st.sampled_from(WAYS),
    st.sampled_from(list(READINGS)),
    st.lists(st.lists(st.integers(1, 8), max_size=6), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_letters_that_are_none_change_nothing(how, reading, words, more):
    spell = spelling(how, **READINGS[reading]).double()
    width = max(map(len, words)) + more
    together = spell(torch.tensor([word + [0] * (width - len(word)) for word in words]))
    for row, word in enumerate(words):
        if word:
            assert_close(together[row], spell(torch.tensor([word]))[0])
        else:
            assert together[row].abs().max() == 0


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("reading", READINGS)
def test_all_is_learned_but_the_letter_that_is_none(how, reading):
    torch.manual_seed(3)
    spell = CharacterEncoder(how, 6, 4, **READINGS[reading])
    spell(torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 0, 0]])).pow(2).sum().backward()
    for name, parameter in spell.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert spell.letters.weight.grad is not None
    assert spell.letters.weight.grad[0].abs().max() == 0


def test_what_is_refused():
    for how in ("none", "mean"):
        with pytest.raises(RegardError) as caught:
            CharacterEncoder(how, 9, 4)
        assert str(caught.value).startswith(f'unknown char_encoder "{how}"; ')
    with pytest.raises(RegardError, match=r"^CharacterEncoder: size and width must be at least 1, got 0 and 4$"):
        CharacterEncoder("max", 0, 4)
    with pytest.raises(RegardError, match=r'^char_width must be even for char_encoder "rnn", got 5$'):
        CharacterEncoder("rnn", 9, 5)
    for reaches in ((), (3, 0), (1, 2, 3, 4, 5)):
        with pytest.raises(RegardError) as caught:
            CharacterEncoder("max", 9, 4, kernel_sizes=reaches)
        assert str(caught.value) == (f"char_kernel_sizes must be 1 to 4 numbers of at least 1, got {list(reaches)}")
    with pytest.raises(RegardError, match=r"^CharacterNgrams: size must be at least 1, got 0$"):
        CharacterNgrams(9, 0, 4)


def test_words_between_edges():
    framed = add_word_edges(torch.tensor([[3, 4], [5, 0], [0, 0]]), 0, 8, 9)
    assert framed.tolist() == [[8, 3, 4, 9], [8, 5, 9, 0], [0, 0, 0, 0]]


def test_runs_are_numbered_by_their_letters():
    ids = hash_ngrams(torch.tensor([[3, 4, 3, 4, 4, 0], [4, 3, 4, 0, 0, 0]]), 2, 10**6, 0)
    (a, b, again, c, *none), (second, first, *rest) = ids.tolist()
    assert len({a, b, c}) == 3  # 34, 43, 44
    assert (again, second, first, none, rest) == (a, b, a, [0], [0, 0, 0])
    assert min(a, b, c) >= 1
    assert hash_ngrams(torch.tensor([[3, 4]]), 3, 7, 0).shape == (1, 0)


def test_all_vectors_are_used_and_no_other():
    ids = hash_ngrams(torch.randint(1, 99, (50, 30)), 3, 5, 0)
    assert sorted(set(ids.flatten().tolist())) == [1, 2, 3, 4, 5]


def test_the_vectors_of_all_runs_are_added():
    torch.manual_seed(4)
    runs = CharacterNgrams(9, 10**4, 3).requires_grad_(False)
    framed = [9, 3, 5, 10]  # runs: 3 of two letters, 2 of three, 1 of four
    ids = [
        hash_ngrams(torch.tensor([framed[first : first + length]]), length, 10**4, 0).item()
        for length in (2, 3, 4)
        for first in range(5 - length)
    ]
    assert len(set(ids)) == 6
    vectors = runs(torch.tensor([[3, 5, 0, 0], [0, 0, 0, 0]]))
    assert_close(vectors[0], runs.runs.weight[ids].sum(0) / 6**0.5)
    assert_close(vectors[0], runs(torch.tensor([[3, 5]]))[0])
    assert vectors[1].abs().max() == 0
