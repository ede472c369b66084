"""What all built-in corpora have in common: seeds, parts, errors."""

from itertools import islice
from random import Random

import pytest

from regard.data.corpora import CORPORA, built_in, generate, stream
from regard.errors import RegardError

NAMES = sorted(CORPORA)


def keys(name, examples):
    """What must not be shared by train and valid."""
    return {example.target if name in ("dates", "numbers") else example.source for example in examples}


def test_there_are_six():
    assert NAMES == ["copy", "dates", "numbers", "reverse", "sort", "toy-en-de"]


def test_letters_follow_from_the_numbers_python_promises():
    random = Random(7)
    letters = ["abc"[int(random.random() * 3)] for _ in range(2 + int(random.random() * 4))]  # the length first
    assert generate("copy", 1, seed=7, shortest=2, longest=5, alphabet="abc")[0].source == " ".join(letters)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_draws_the_same_and_another_draws_others(name):
    assert generate(name, 20, seed=5) == generate(name, 20, seed=5)
    assert generate(name, 20, seed=5) != generate(name, 20, seed=6)


@pytest.mark.parametrize("name", NAMES)
def test_parts_share_nothing_whatever_the_seed(name):
    train, valid = built_in(name, train=400, valid=60)
    others, unseen = built_in(name, train=400, valid=60, seed=1)
    assert [len(part) for part in (train, valid, others, unseen)] == [400, 60, 400, 60]
    assert not keys(name, train + others) & keys(name, valid + unseen)


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_all_different(name):
    train, valid = built_in(name, train=300, valid=50)
    assert len({example.source for example in train + valid}) == 350
    assert len({example.source for example in generate(name, 350)}) == 350


def test_more_begin_with_the_same():
    few, _ = built_in("dates", train=30)
    many, valid = built_in("dates", train=90, valid=20)
    assert many[:30] == few
    assert built_in("dates", train=0, valid=10) == ([], valid[:10])


def test_about_one_in_ten_is_held_out():
    examples = [f"{a} {b} {c}" for a in "abcdef" for b in "abcdef" for c in "abcdef"]
    settings = {"alphabet": "abcdef", "shortest": 3, "longest": 3}
    train = {example.source for example in islice(stream("copy", **settings), 3_000)}
    valid = {example.source for example in islice(stream("copy", part="valid", **settings), 400)}
    assert train | valid == set(examples)
    assert 8 <= len(valid) <= 35  # of 216: 22, and three deviations of 4.4


def test_a_stream_goes_on_when_its_corpus_is_used_up():
    found = list(islice(stream("reverse", alphabet="ab", shortest=1, longest=2), 100))
    assert len(found) == 100
    assert len(set(found)) <= 6  # a, b, aa, ab, ba, bb


def test_what_is_kept_out_is_in_valid_only():
    settings = {"alphabet": "ab", "shortest": 2, "longest": 4, "keep_out": ["a  b"]}
    train = {example.source for example in islice(stream("copy", **settings), 2_000)}
    valid = {example.source for example in islice(stream("copy", part="valid", **settings), 2_000)}
    assert {"a b", "a a b", "b a b b"} <= valid
    assert train == {source for source in train if "a b" not in source}
    assert len(train) + len(valid) == 4 + 8 + 16


def test_a_date_is_kept_out_in_every_language():
    settings = {"first_year": 2024, "last_year": 2024, "languages": ("de", "en", "ja")}
    train, valid = built_in("dates", train=3_000, valid=300, keep_out=["2024-03-05"], **settings)
    assert "2024-03-05" not in {example.target for example in train}
    assert "2024-03-05" in {example.target for example in valid}


def refused(call):
    with pytest.raises(RegardError) as caught:
        call()
    return str(caught.value)


def test_errors_say_what_would_be_right():
    assert refused(lambda: generate("date", 1)) == 'corpora: there is no "date"; did you mean "dates"?'
    assert refused(lambda: generate("copy", -1)) == "copy: count is -1; 0 is the least"
    assert refused(lambda: built_in("copy", train=1, valid=-2)) == "copy: valid is -2; 0 is the least"
    assert refused(lambda: generate("copy", 1, seed=-1)) == "copy: seed is -1; 0 is the least"
    assert refused(lambda: stream("copy", part="test")) == 'copy: part: there is no "test"; there are: train, valid'
    assert (
        refused(lambda: built_in("copy", train=1, keep_out="c a t"))
        == 'copy: keep_out is "c a t"; a list of texts is needed'
    )
    assert (
        refused(lambda: generate("copy", 1, longst=4))
        == 'copy: settings: there is no "longst"; did you mean "longest"?'
    )
    assert refused(lambda: generate("copy", 1, longest="4")) == 'copy.longest is "4"; a whole number is needed'


def test_a_small_space_says_how_many_it_gives():
    small = {"alphabet": "ab", "shortest": 1, "longest": 2}
    assert len(generate("copy", 6, **small)) == 6
    assert (
        refused(lambda: generate("copy", 7, **small))
        == "copy: count asks for 7 examples, and these settings give 6; ask for fewer or widen the settings"
    )
    assert (
        refused(lambda: next(stream("copy", keep_out=["a"], alphabet="a")))
        == "copy: these settings give no example for train; widen them"
    )
