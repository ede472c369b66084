from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpora.strings import Copy, Reverse, Sort
from regard.errors import RegardError


@pytest.mark.parametrize(
    ("corpus", "answer"),
    [(Copy(), list), (Reverse(), lambda letters: letters[::-1]), (Sort(), sorted)],
)
@given(seed=st.integers(0, 2**32))
def test_targets_and_links(corpus, answer, seed):
    example = corpus.draw(Random(seed)).example
    source, target = example.source.split(" "), example.target.split(" ")
    assert target == answer(source)
    assert 3 <= len(source) <= 9
    assert sorted(there for _, there in example.links) == list(range(len(source)))
    assert sorted(here for here, _ in example.links) == list(range(len(source)))
    assert all(source[here] == target[there] for here, there in example.links)


def test_equal_letters_keep_their_order():
    assert list(Sort().places(["b", "a", "b", "a"])) == [1, 3, 0, 2]


def test_the_alphabet_is_the_order():
    assert list(Sort(alphabet="zäa").places(["a", "z", "ä"])) == [1, 2, 0]


def test_settings_are_checked():
    for settings, message in [
        ({"shortest": 0}, "shortest is 0, longest 9; shortest must be at least 1 and longest no less than it"),
        ({"longest": 2}, "shortest is 3, longest 2; shortest must be at least 1 and longest no less than it"),
        ({"alphabet": ""}, "alphabet is empty; give its letters in one text, without spaces"),
        ({"alphabet": "a b"}, 'alphabet is "a b", with a space in it; give its letters without spaces'),
        ({"alphabet": "aba"}, 'alphabet is "aba", with a letter twice; give each letter once'),
    ]:
        with pytest.raises(RegardError) as caught:
            Copy(**settings)
        assert str(caught.value) == message
