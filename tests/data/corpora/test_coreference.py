"""Coreference: the noun that "it" stands for."""

import pytest

from regard.data.corpora import generate_built_in, generate_examples
from regard.data.corpora.coreference import ANIMALS, PLACES, SHAPES, STATES, Coreference
from regard.errors import RegardError


def test_the_kinds_share_no_word():
    words = [*ANIMALS, *PLACES, *STATES, *SHAPES]
    assert len(set(words)) == len(words)
    assert not [adjective for adjective in (*STATES, *SHAPES) if adjective[0] in "aeiou"]  # it was a ...


def test_the_adjective_decides_which_noun_it_is():
    for text in generate_examples("coreference", 500):
        words = text.text.split()
        it, adjective, answer = words.index("it"), words[-3], words[-2]
        nouns = {word for word in words[:it] if word in (*ANIMALS, *PLACES)}
        right, wrong = (ANIMALS, PLACES) if adjective in STATES else (PLACES, ANIMALS)
        assert len(nouns) == 2
        assert answer in nouns & set(right)
        ((gold, row),) = text.links
        assert (words[gold], row) == (answer, len(words) - 3)
        other, unseen = text.contrasts
        assert (other.word, unseen.word) == (len(words) - 2, len(words) - 2)
        assert other.wrong in nouns & set(wrong)
        assert unseen.wrong in set(right) - nouns


def test_either_noun_comes_first():
    firsts = {text.text.split()[1] in ANIMALS for text in generate_examples("coreference", 100)}
    assert firsts == {True, False}
    assert all(text.text.split()[1] in ANIMALS for text in generate_examples("coreference", 100, orders=("active",)))


def test_splits_share_no_combination_of_nouns_and_adjective():
    def combinations(texts):
        return {frozenset(set(text.text.split()) & {*ANIMALS, *PLACES, *STATES, *SHAPES}) for text in texts}

    train, valid = generate_built_in("coreference", train=3000, valid=300)
    assert not combinations(train) & combinations(valid)


def test_an_unknown_order_is_refused():
    with pytest.raises(RegardError) as caught:
        Coreference(orders=("activ",))
    assert str(caught.value) == 'unknown orders "activ"; did you mean "active"?'
