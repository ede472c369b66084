import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close

from regard.errors import RegardError
from regard.layers.spelling import SPELT, Spelling

WAYS = SPELT[1:]


def spelling(how: str) -> Spelling:
    torch.manual_seed(2)
    return Spelling(how, 9, 4).requires_grad_(False)


def test_a_letter_is_read_with_its_neighbours_and_the_strongest_is_taken():
    spell = Spelling("max", 5, 1)
    with torch.no_grad():
        spell.letters.weight.copy_(torch.tensor([[0.0], [1.0], [2.0], [-4.0], [8.0]]))
        spell.neighbours.weight.copy_(torch.tensor([[[100.0, 10.0, 1.0]]]))
        assert spell.neighbours.bias is not None
        spell.neighbours.bias.fill_(0.5)
    # letters 1 2 -4: read as 0+10+2, 100+20-4, 200-40+0; letters 8: 80; letters -4: -40, of which relu leaves nothing
    found = spell(torch.tensor([[1, 2, 3], [4, 0, 0], [3, 0, 0], [0, 0, 0]]))
    assert found.tolist() == [[160.5], [80.5], [0.0], [0.0]]


def test_attention_is_the_mean_of_what_is_read_by_a_learned_query():
    spell = spelling("attention")
    letters = torch.tensor([[3, 5, 7]])
    read = functional.conv1d(
        spell.letters(letters).mT, spell.neighbours.weight, spell.neighbours.bias, padding=1
    ).mT.relu()[0]
    weights = (read @ spell.pool.queries[0] / 2).softmax(0)
    assert_close(spell(letters)[0], weights @ read @ spell.pool.attention.values.weight.T)


@given(
    st.sampled_from(WAYS),
    st.lists(st.lists(st.integers(1, 8), max_size=6), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_letters_that_are_none_change_nothing(how, words, more):
    spell = spelling(how).double()
    width = max(map(len, words)) + more
    together = spell(torch.tensor([word + [0] * (width - len(word)) for word in words]))
    for row, word in enumerate(words):
        if word:
            assert_close(together[row], spell(torch.tensor([word]))[0])
        else:
            assert together[row].abs().max() == 0


@pytest.mark.parametrize("how", WAYS)
def test_all_is_learnt_but_the_letter_that_is_none(how):
    torch.manual_seed(3)
    spell = Spelling(how, 6, 4)
    spell(torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 0, 0]])).pow(2).sum().backward()
    for name, parameter in spell.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert spell.letters.weight.grad is not None
    assert spell.letters.weight.grad[0].abs().max() == 0


def test_what_is_refused():
    for how in ("none", "mean"):
        with pytest.raises(RegardError) as caught:
            Spelling(how, 9, 4)
        assert str(caught.value).startswith(f'spelling: there is no "{how}"; ')
    with pytest.raises(RegardError, match=r"^Spelling: size is 0, width is 4; 1 is the least$"):
        Spelling("max", 0, 4)
