"""What all built-in corpora have in common: seeds, parts, errors."""

from itertools import islice
from random import Random

import pytest

from regard.data.corpora import CORPORA, generate_built_in, generate_examples, stream_examples
from regard.data.corpora.base import get_input, get_output
from regard.errors import RegardError

NAMES = sorted(CORPORA)


def keys(name, examples):
    """What must not be shared by train and valid."""
    return {example.target if name in ("dates", "numbers") else get_input(example) for example in examples}


def test_each_has_a_task():
    assert {name: corpus.task for name, corpus in CORPORA.items() if corpus.task != "pairs"} == {
        "acts": "label",
        "agreement": "text",
        "coreference": "text",
        "entities": "tag",
        "terms": "label",
    }
    assert [name for name, corpus in CORPORA.items() if corpus.task == "pairs"] == [
        "copy", "dates", "numbers", "reverse", "sort", "toy-en-de",
    ]  # fmt: skip


def test_letters_follow_from_the_numbers_python_promises():
    random = Random(7)
    letters = ["abc"[int(random.random() * 3)] for _ in range(2 + int(random.random() * 4))]  # the length first
    assert generate_examples("copy", 1, seed=7, min_length=2, max_length=5, alphabet="abc")[0].source == " ".join(
        letters
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_draws_the_same_and_another_draws_others(name):
    assert generate_examples(name, 20, seed=5) == generate_examples(name, 20, seed=5)
    assert generate_examples(name, 20, seed=5) != generate_examples(name, 20, seed=6)


@pytest.mark.parametrize("name", NAMES)
def test_parts_share_nothing_whatever_the_seed(name):
    train, valid = generate_built_in(name, train=400, valid=60)
    others, unseen = generate_built_in(name, train=400, valid=60, seed=1)
    assert [len(part) for part in (train, valid, others, unseen)] == [400, 60, 400, 60]
    assert not keys(name, train + others) & keys(name, valid + unseen)


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_all_different(name):
    train, valid = generate_built_in(name, train=300, valid=50)
    assert len({get_input(example) for example in train + valid}) == 350
    assert len({get_input(example) for example in generate_examples(name, 350)}) == 350


def test_more_begin_with_the_same():
    few, _ = generate_built_in("dates", train=30)
    many, valid = generate_built_in("dates", train=90, valid=20)
    assert many[:30] == few
    assert generate_built_in("dates", train=0, valid=10) == ([], valid[:10])


def test_about_one_in_ten_is_held_out():
    examples = [f"{a} {b} {c}" for a in "abcdef" for b in "abcdef" for c in "abcdef"]
    settings = {"alphabet": "abcdef", "min_length": 3, "max_length": 3}
    train = {example.source for example in islice(stream_examples("copy", **settings), 3_000)}
    valid = {example.source for example in islice(stream_examples("copy", split="valid", **settings), 400)}
    assert train | valid == set(examples)
    assert 8 <= len(valid) <= 35  # of 216: 22, and three deviations of 4.4


def test_a_stream_goes_on_when_its_corpus_is_used_up():
    examples = list(islice(stream_examples("reverse", alphabet="ab", min_length=1, max_length=2), 100))
    assert len(examples) == 100
    assert len(set(examples)) <= 6  # a, b, aa, ab, ba, bb


def test_what_is_kept_out_is_in_valid_only():
    settings = {"alphabet": "ab", "min_length": 2, "max_length": 4, "keep_out": ["a  b"]}
    train = {example.source for example in islice(stream_examples("copy", **settings), 2_000)}
    valid = {example.source for example in islice(stream_examples("copy", split="valid", **settings), 2_000)}
    assert {"a b", "a a b", "b a b b"} <= valid
    assert train == {source for source in train if "a b" not in source}
    assert len(train) + len(valid) == 4 + 8 + 16


def test_what_is_kept_out_of_texts_labels_and_tags_is_in_valid_only():
    for name, unseen in (("acts", "you are"), ("terms", "numpy"), ("entities", "B-PER"), ("coreference", "dog")):
        train, valid = generate_built_in(name, train=300, valid=300, keep_out=[unseen])
        texts = [[f" {get_input(example)} {get_output(example)} " for example in part] for part in (train, valid)]
        assert not any(f" {unseen} " in text for text in texts[0])
        assert any(f" {unseen} " in text for text in texts[1])


def test_a_date_is_kept_out_in_every_language():
    settings = {"first_year": 2024, "last_year": 2024, "languages": ("de", "en", "ja")}
    train, valid = generate_built_in("dates", train=3_000, valid=300, keep_out=["2024-03-05"], **settings)
    assert "2024-03-05" not in {example.target for example in train}
    assert "2024-03-05" in {example.target for example in valid}


def refused(call):
    with pytest.raises(RegardError) as caught:
        call()
    return str(caught.value)


def test_errors_say_what_would_be_right():
    assert refused(lambda: generate_examples("date", 1)) == 'unknown corpus "date"; did you mean "dates"?'
    assert refused(lambda: generate_examples("copy", -1)) == "copy: count must be at least 0, got -1"
    assert refused(lambda: generate_built_in("copy", train=1, valid=-2)) == "copy: valid must be at least 0, got -2"
    assert refused(lambda: generate_examples("copy", 1, seed=-1)) == "copy: seed must be at least 0, got -1"
    assert (
        refused(lambda: stream_examples("copy", split="test")) == 'copy: unknown split "test"; choose from train, valid'
    )
    assert (
        refused(lambda: generate_built_in("copy", train=1, keep_out="c a t"))
        == 'copy: expected a list of strings for keep_out, got "c a t"'
    )
    assert (
        refused(lambda: generate_examples("copy", 1, max_lenght=4))
        == 'copy: unknown setting "max_lenght"; did you mean "max_length"?'
    )
    assert (
        refused(lambda: generate_examples("copy", 1, max_length="4")) == 'copy.max_length: expected an integer, got "4"'
    )


def test_a_small_space_says_how_many_it_gives():
    small = {"alphabet": "ab", "min_length": 1, "max_length": 2}
    assert len(generate_examples("copy", 6, **small)) == 6
    assert (
        refused(lambda: generate_examples("copy", 7, **small))
        == "copy: count must be at most 6 with these settings, got 7"
    )
    assert (
        refused(lambda: next(stream_examples("copy", keep_out=["a"], alphabet="a")))
        == "copy: these settings give no examples for train; relax them"
    )
