"""Dialogue acts: what the labels follow from, and which words are linked."""

import pytest

from regard.data.corpora import generate_built_in, generate_examples
from regard.data.corpora.acts import ASIDES, FILLERS, LABELS, Acts
from regard.errors import RegardError
from regard.text import split_words


@pytest.fixture(scope="module")
def sample():
    return generate_examples("acts", 2000, seed=1)


def linked_words(example):
    words = example.text.split()
    return [words[word] for word, label in sorted(example.links) if label == 0]


def test_every_label_is_frequent(sample):
    shares = {label: sum(example.labels == (label,) for example in sample) / len(sample) for label in LABELS}
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0.06  # of one in eight


def test_models_read_the_words_that_links_count(sample):
    assert all(split_words(example.text) == example.text.split() for example in sample)


def test_some_word_is_linked_and_no_aside_is():
    inside = 0
    for example in generate_examples("acts", 1000, seed=1, fillers=0.0):
        words = example.text.split()
        assert example.links
        for aside in map(str.split, ASIDES):
            for start in range(len(words)):
                if words[start : start + len(aside)] == aside:
                    inside += 1
                    assert not {word for word, _ in example.links} & set(range(start, start + len(aside)))
    assert inside > 500


def test_order_and_negation_decide():
    plain = generate_examples("acts", 2000, seed=1, fillers=0.0, asides=0)
    by_cues = {}
    for example in plain:
        by_cues.setdefault(tuple(linked_words(example)), set()).add(example.labels[0])
    assert by_cues[("you", "can")] == {"statement"}
    assert by_cues[("can", "you")] == {"request"}
    assert by_cues[("can", "they")] == {"question"}
    assert by_cues[("are", "right")] == {"agreement"}
    assert by_cues[("not", "right")] == {"disagreement"}
    assert by_cues[("not", "sorry")] == {"statement"}
    assert by_cues[("sorry",)] == {"apology"}


def test_the_same_cues_in_the_same_order_never_have_two_labels():
    texts = {}
    for example in generate_examples("acts", 3000, seed=2, fillers=0.0, asides=0):
        assert texts.setdefault(example.text, example.labels) == example.labels


def test_utterances_with_other_fillers_are_in_one_split():
    train, valid = generate_built_in("acts", train=2000, valid=300, asides=0)  # signals are fillers, too
    fillers = sorted(FILLERS, key=len, reverse=True)

    def strip(example):
        text = f" {example.text} "
        for filler in fillers:
            text = text.replace(f" {filler} ", " ")
        return " ".join(text.split())

    plain_train, plain_valid = (
        {example.text for example in part if example.labels != ("backchannel",)}
        for part in generate_built_in("acts", train=2000, valid=300, asides=0, fillers=0.0)
    )
    assert not {strip(example) for example in train} & plain_valid
    assert not {strip(example) for example in valid} & plain_train


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"fillers": 1.0}, "fillers must be at least 0 and below 1, got 1.0"),
        ({"fillers": -0.1}, "fillers must be at least 0 and below 1, got -0.1"),
        ({"asides": -1}, "asides must be at least 0, got -1"),
    ],
)
def test_settings_out_of_bounds(settings, text):
    with pytest.raises(RegardError) as caught:
        Acts(**settings)
    assert str(caught.value) == text
