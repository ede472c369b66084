import re
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.alignment import Attended, Gold, Place, align, parse_pharaoh
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
    found = alignment_error([links("0-0 1-1 2-2")], [gold("0-0 1-1 1p2")])
    assert (found.precision, found.recall, found.error_rate) == (2 / 3, 1, pytest.approx(1 - 4 / 5))
    assert str(found) == "AER 0.2000 (precision 0.6667|recall 1.0000|sentences:1|links:3|sure:2)"
    assert found.to_json() == {
        "precision": 2 / 3, "recall": 1.0, "error_rate": found.error_rate, "sentences": 1, "links": 3, "sure": 2
    }  # fmt: skip


def test_it_is_of_the_whole_corpus():
    found = alignment_error([links("0-0"), links("0-1 1-0 2p2 2-3")], [gold("0-0 1-1"), gold("0-1 1p0 3p3")])
    # four links, of which two are sure and one more is possible; three sure ones
    assert (found.precision, found.recall, found.error_rate) == (3 / 4, 2 / 3, pytest.approx(1 - 5 / 7))


def test_without_links_nothing_is_found():
    found = alignment_error([frozenset()], [gold("0-0")])
    assert (found.precision, found.recall, found.error_rate) == (0, 0, 1)


@given(some_links, st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1), some_links)
def test_the_rate_falls_between_none_and_all(ours, sure, possible):
    found = alignment_error([ours], [Gold(sure, possible)])
    assert 0 <= found.error_rate <= 1
    if not possible - sure:  # then it is one minus the F-score
        total = found.precision + found.recall
        assert 1 - found.error_rate == pytest.approx(2 * found.precision * found.recall / total if total else 0)
    between = [Gold(sure, possible)]
    assert alignment_error([sure], between).error_rate == 0
    assert alignment_error([sure | possible], between).error_rate == 0


def test_what_alignment_error_refuses():
    with refused("alignment_error: 1 alignments, 0 in the gold standard; line n of one must be line n of the other"):
        alignment_error([links("0-0")], [])
    with refused("alignment_error: there are no alignments; one is the least"):
        alignment_error([], [])
    with refused("alignment_error: the gold standard has no sure link; recall needs one"):
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
        examples.append(Attended(torch.from_numpy(weights), tokens, tokens))
        truth.append(Gold(frozenset((int(source), target) for target, source in enumerate(order))))
    return examples, truth


@pytest.mark.parametrize("right", [Place(1, 2, 1), Place(0, 1, 0)], ids=str)
def test_the_head_that_tells_the_truth_is_found(right):
    found = search_head(*pairs(4, layers=2, heads=3, right=right))
    assert found.place == right
    assert found.score.error_rate == 0


def test_no_place_is_better_than_the_one_found():
    examples, truth = pairs(3, layers=2, heads=2, right=Place(0, 0, 1))
    found = search_head(examples, truth, shifts=(0,), method="threshold", threshold=0.3)
    rates = {
        Place(*place): alignment_error([align(each, Place(*place), "threshold", 0.3) for each in examples], truth)
        for place in [*product((0, 1, None), (0, 1, None), (0,))]
        if place[:2] not in [(None, 0), (None, 1)]
    }
    assert rates[found.place] == found.score == min(rates.values(), key=lambda score: score.error_rate)


def test_the_mean_may_be_best():
    half = (
        np.array([[0.6, 0.0, 0.4], [0.55, 0.45, 0.0], [0.0, 0.0, 1.0]]),
        np.array([[0.0, 0.55, 0.45], [0, 1, 0], [0, 0, 1.0]]),
    )
    weights = np.stack(half)[None]  # one head takes source word 0 for target word 1, the other 1 for 0; together right
    found = search_head([Attended(weights, (0, 1, None), (0, 1, None))], [Gold(links("0-0 1-1"))])
    assert (str(found.place), found.score.error_rate) == ("0", 0)


def test_of_equals_the_first_is_taken():
    attended = Attended(torch.ones(2, 2, 3, 1), (0,), (0, None, None))
    assert search_head([attended], [Gold(links("0-0"))]).place == Place(0, 0, 0)


def test_what_search_head_refuses():
    attended = Attended(torch.ones(2, 2, 2, 1), (0,), (0, None))
    other = Attended(torch.ones(2, 4, 2, 1), (0,), (0, None))
    with refused("search_head: example 2 has 2 layers of 4 heads, the first 2 of 2; they must come from one model"):
        search_head([attended, other], [gold("0-0")] * 2)
    with refused("search_head: weights of example 1 are (2, 1); (layers, heads, target, source) is needed"):
        search_head([Attended(torch.ones(2, 1), (0,), (0, None))], [gold("0-0")])
    with refused("search_head: 1 alignments, 2 in the gold standard; line n of one must be line n of the other"):
        search_head([attended], [gold("0-0")] * 2)
    with refused("search_head: there are no alignments; one is the least"):
        search_head([], [])
