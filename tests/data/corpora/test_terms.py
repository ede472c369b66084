"""Key terms: each has its words, alone or together."""

import pytest

from regard.data.corpora import generate_examples
from regard.data.corpora.terms import DISTRACTORS, PHRASES, Terms
from regard.errors import RegardError
from regard.text import split_words

TERMS = {term for terms, _ in PHRASES for term in terms}


@pytest.fixture(scope="module")
def sample():
    return generate_examples("terms", 2000, seed=1)


def test_every_term_is_given_by_words_of_the_text(sample):
    for example in sample:
        assert split_words(example.text) == example.text.split()
        assert {label for _, label in example.links} == set(range(len(example.labels)))
        assert len(set(example.labels)) == len(example.labels)
        assert max(word for word, _ in example.links) < len(example.text.split())
    assert {label for example in sample for label in example.labels} == TERMS


def test_a_name_gives_its_term_and_numpy_is_for_python(sample):
    for example in sample:
        words = example.text.split()
        given = {(words[word], example.labels[label]) for word, label in example.links}
        for name in TERMS & set(words):
            assert (name, name) in given
        if "numpy" in words:
            assert {("numpy", "numpy"), ("numpy", "python")} <= given
        assert ("loadtxt" in words) == (("loadtxt", "python") in given)


def test_implied_terms_need_two_words_and_each_occurs_alone(sample):
    texts = [set(example.text.split()) for example in sample]
    for first, second, term in (
        ("rows", "columns", "matrix"),
        ("like", "button", "facebook"),
        ("box", "border", "css"),
    ):
        alone = [
            example
            for example, words in zip(sample, texts, strict=True)
            if (first in words) != (second in words) and term not in words
        ]
        assert alone
        assert all(term not in example.labels for example in alone)


def test_distractors_give_nothing():
    marked = {word.rstrip("*") for _, phrase in PHRASES for word in phrase.split() if word.endswith("*")}
    pairs = [{word.rstrip("*") for word in phrase.split() if "*" in word} for _, phrase in PHRASES]
    for distractor in DISTRACTORS:
        words = set(distractor.split())
        assert not any(pair <= words for pair in pairs), distractor
        assert not words & TERMS
    assert "rows" in marked


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_phrases": 0}, "max_phrases must be at least 1, got 0"),
        ({"distractors": -1}, "distractors must be at least 0, got -1"),
    ],
)
def test_settings_out_of_bounds(settings, text):
    with pytest.raises(RegardError) as caught:
        Terms(**settings)
    assert str(caught.value) == text
