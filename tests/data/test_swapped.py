from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.example import Example
from regard.data.swapped import compute_log_odds, find_swapped, hash_trigrams

TEXTS = st.lists(st.text(max_size=8), min_size=1, max_size=6)


@given(TEXTS)
def test_every_run_of_every_text_is_met(texts):
    buckets, owners = hash_trigrams(texts)
    framed = [f" {text} " for text in texts]
    runs = [(owner, text[n : n + 3]) for owner, text in enumerate(framed) for n in range(len(text) - 2)]
    assert owners.tolist() == [owner for owner, _ in runs]
    by_run = {}
    for bucket, (_, run) in zip(buckets.tolist(), runs, strict=True):
        assert by_run.setdefault(run, bucket) == bucket  # equal runs, equal buckets


def test_runs_rarely_share_a_bucket():
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyzäöüß"]
    buckets, owners = hash_trigrams(words)
    middle = buckets[1::3]  # of " abc ": the second run is the word
    assert owners[1::3].tolist() == list(range(1000))
    assert max(Counter(middle.tolist()).values()) <= 3
    assert len(set(middle.tolist())) > 970


def test_log_odds_by_hand():
    counts = np.array([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # smoothed: 7/9 1/9 1/9 and 1/5 3/5 1/5
    expected = [np.log((1 / 5) / (7 / 9)), np.log((3 / 5) / (1 / 9)), 0.0]
    np.testing.assert_allclose(compute_log_odds(counts), expected)


@pytest.mark.parametrize("turn", [lambda word: word, lambda word: word[::-1]])
def test_sides_that_are_alike_are_left_alone(turn):
    letters = np.random.default_rng(0).integers(0, 10, (300, 8))
    words = ["".join("abcdefghij"[n] for n in row) for row in letters]
    data = [Example(word, turn(word)) for word in words]
    swapped = find_swapped(data[:250], [Example(e.target, e.source) for e in data[250:]])
    assert (list(swapped.train), list(swapped.valid), swapped.all_valid) == ([], [], False)


def test_little_data_says_nothing():
    for train in ([Example("a", "b")], [Example("a", "b"), Example("", "")]):
        assert find_swapped(train, [Example("b", "a")]).train == ()
        assert not find_swapped(train, []).all_valid
