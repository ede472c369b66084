import re
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.alignment import AttentionExample, GoldLinks, HeadSelection, align, parse_pharaoh
from regard.errors import RegardError
from regard.metrics import alignment_error, search_head

some_links = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


def gold(text):
    return parse_pharaoh(text, "here")


def links(text):
    return gold(text).sure


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


def test_by_hand():
    score = alignment_error([links("0-0 1-1 2-2")], [gold("0-0 1-1 1p2")])
    assert (score.precision, score.recall, score.error_rate) == (2 / 3, 1, pytest.approx(1 - 4 / 5))
    assert str(score) == "AER 0.2000 (precision 0.6667|recall 1.0000|sentences:1|links:3|sure:2)"
    assert score.to_json() == {
        "precision": 2 / 3, "recall": 1.0, "error_rate": score.error_rate, "sentences": 1, "links": 3, "sure": 2
    }  # fmt: skip


def test_it_is_of_the_whole_corpus():
    score = alignment_error([links("0-0"), links("0-1 1-0 2p2 2-3")], [gold("0-0 1-1"), gold("0-1 1p0 3p3")])
    # four links, of which two are sure and one more is possible; three sure ones
    assert (score.precision, score.recall, score.error_rate) == (3 / 4, 2 / 3, pytest.approx(1 - 5 / 7))


def test_without_links_nothing_is_found():
    score = alignment_error([frozenset()], [gold("0-0")])
    assert (score.precision, score.recall, score.error_rate) == (0, 0, 1)


@given(some_links, st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1), some_links)
def test_the_rate_falls_between_none_and_all(predicted, sure, possible):
    score = alignment_error([predicted], [GoldLinks(sure, possible)])
    assert 0 <= score.error_rate <= 1
    if not possible - sure:  # then it is one minus the F-score
        total = score.precision + score.recall
        assert 1 - score.error_rate == pytest.approx(2 * score.precision * score.recall / total if total else 0)
    between = [GoldLinks(sure, possible)]
    assert alignment_error([sure], between).error_rate == 0
    assert alignment_error([sure | possible], between).error_rate == 0


def test_what_alignment_error_refuses():
    with refused("alignment_error: expected one gold alignment per sentence, got 1 predicted and 0 gold alignments"):
        alignment_error([links("0-0")], [])
    with refused("alignment_error: expected at least one alignment, got none"):
        alignment_error([], [])
    with refused("alignment_error: the gold alignment must have at least one sure link"):
        alignment_error([links("0-0")], [gold("0p0")])


def pairs(count, layers, heads, right):
    """Random weights, but those of one place say the truth: what token t means is looked at while it is read."""
    random = np.random.default_rng(0)
    examples, truth = [], []
    for words in range(3, 3 + count):
        weights = random.dirichlet(np.ones(words + 1), (layers, heads, words + 1))
        order = random.permutation(words)
        for target, source in enumerate(order):
            weights[right.layer, right.head, target + right.shift] = np.eye(words + 1)[source]
        tokens = [*range(words), None]
        examples.append(AttentionExample(torch.from_numpy(weights), tokens, tokens))
        truth.append(GoldLinks(frozenset((int(source), target) for target, source in enumerate(order))))
    return examples, truth


@pytest.mark.parametrize("right", [HeadSelection(1, 2, 1), HeadSelection(0, 1, 0)], ids=str)
def test_the_head_that_tells_the_truth_is_found(right):
    best = search_head(*pairs(4, layers=2, heads=3, right=right))
    assert best.selection == right
    assert best.score.error_rate == 0


def test_no_place_is_better_than_the_one_found():
    examples, truth = pairs(3, layers=2, heads=2, right=HeadSelection(0, 0, 1))
    best = search_head(examples, truth, shifts=(0,), method="threshold", threshold=0.3)
    rates = {
        HeadSelection(*index): alignment_error(
            [align(each, HeadSelection(*index), "threshold", 0.3) for each in examples], truth
        )
        for index in [*product((0, 1, None), (0, 1, None), (0,))]
        if index[:2] not in [(None, 0), (None, 1)]
    }
    assert rates[best.selection] == best.score == min(rates.values(), key=lambda score: score.error_rate)


def test_the_mean_may_be_best():
    half = (
        np.array([[0.6, 0.0, 0.4], [0.55, 0.45, 0.0], [0.0, 0.0, 1.0]]),
        np.array([[0.0, 0.55, 0.45], [0, 1, 0], [0, 0, 1.0]]),
    )
    weights = np.stack(half)[None]  # one head takes source word 0 for target word 1, the other 1 for 0; together right
    best = search_head([AttentionExample(weights, (0, 1, None), (0, 1, None))], [GoldLinks(links("0-0 1-1"))])
    assert (str(best.selection), best.score.error_rate) == ("0", 0)


def test_of_equals_the_first_is_taken():
    attended = AttentionExample(torch.ones(2, 2, 3, 1), (0,), (0, None, None))
    assert search_head([attended], [GoldLinks(links("0-0"))]).selection == HeadSelection(0, 0, 0)


def test_what_search_head_refuses():
    attended = AttentionExample(torch.ones(2, 2, 2, 1), (0,), (0, None))
    other = AttentionExample(torch.ones(2, 4, 2, 1), (0,), (0, None))
    with refused("search_head: example 2: expected 2 layers of 2 heads, as in the first, got 2 of 4"):
        search_head([attended, other], [gold("0-0")] * 2)
    with refused("search_head: example 1: expected weights of shape (layers, heads, target, source), got (2, 1)"):
        search_head([AttentionExample(torch.ones(2, 1), (0,), (0, None))], [gold("0-0")])
    with refused("search_head: expected one gold alignment per sentence, got 1 predicted and 2 gold alignments"):
        search_head([attended], [gold("0-0")] * 2)
    with refused("search_head: expected at least one alignment, got none"):
        search_head([], [])
