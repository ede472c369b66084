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
    example = corpus.sample(Random(seed)).example
    source, target = example.source.split(" "), example.target.split(" ")
    assert target == answer(source)
    assert 3 <= len(source) <= 9
    assert sorted(there for _, there in example.links) == list(range(len(source)))
    assert sorted(here for here, _ in example.links) == list(range(len(source)))
    assert all(source[here] == target[there] for here, there in example.links)


def test_equal_letters_keep_their_order():
    assert list(Sort().order_indices(["b", "a", "b", "a"])) == [1, 3, 0, 2]


def test_the_alphabet_is_the_order():
    assert list(Sort(alphabet="zäa").order_indices(["a", "z", "ä"])) == [1, 2, 0]


def test_settings_are_checked():
    for settings, message in [
        ({"min_length": 0}, "min_length must be at least 1, got 0"),
        ({"max_length": 2}, "max_length must be at least min_length (3), got 2"),
        ({"alphabet": ""}, "alphabet is empty"),
        ({"alphabet": "a b"}, 'alphabet must not contain spaces, got "a b"'),
        ({"alphabet": "aba"}, 'alphabet must not repeat a letter, got "aba"'),
    ]:
        with pytest.raises(RegardError) as caught:
            Copy(**settings)
        assert str(caught.value) == message
