import math

import numpy as np
import pytest

from regard.errors import RegardError
from regard.metrics import bleu
from regard.metrics.items import (
    ITEM_METRICS,
    ItemCounts,
    LengthBand,
    bootstrap_interval,
    choose_edges,
    compare_items,
    score_bands,
)
from regard.metrics.significance import Conditions, count_ngrams, paired_bootstrap


def build_items(counts, metric="accuracy", lengths=None, unknown=None) -> ItemCounts:
    counts = np.array(counts, dtype=np.float64)
    lengths = np.arange(1, len(counts) + 1) if lengths is None else np.array(lengths)
    flags = np.zeros(len(counts), dtype=bool) if unknown is None else np.array(unknown)
    return ItemCounts(metric, "signature", counts, lengths, "words", flags)


@pytest.mark.parametrize(
    ("metric", "counts", "value"),
    [
        ("accuracy", [[1, 1], [0, 1], [1, 1], [1, 1]], 0.75),
        ("micro_f1", [[1, 2, 1], [1, 1, 3]], 2 * 2 / (3 + 4)),
        ("loss", [[2.0, 1, 5], [4.0, 2, 5]], 2.0),
        ("perplexity", [[2.0, 1, 5], [4.0, 2, 5]], math.e**2),
        ("bits_per_character", [[math.log(2), 1, 2], [math.log(2), 2, 2]], 0.5),
    ],
)
def test_a_score_is_a_function_of_summed_counts(metric, counts, value):
    assert build_items(counts, metric).value == pytest.approx(value)


def test_bleu_of_items_is_that_of_the_corpus():
    predictions, references = ["a b c d e", "x y z u v w"], ["a b c d f", "x y z u v q"]
    counts = count_ngrams(predictions, references, Conditions())[0]
    assert build_items(counts, "bleu").value == pytest.approx(bleu(predictions, references).value)


def test_the_interval_of_a_share_is_that_of_the_binomial():
    items = build_items([[1, 1]] * 80 + [[0, 1]] * 20)
    interval = bootstrap_interval([items], samples=4000)
    error = 1.96 * math.sqrt(0.8 * 0.2 / 100)
    assert interval.value == pytest.approx(0.8)
    assert interval.low == pytest.approx(0.8 - error, abs=0.012)
    assert interval.high == pytest.approx(0.8 + error, abs=0.012)


def test_the_score_of_several_seeds_is_their_mean():
    good, bad = build_items([[1, 1]] * 4), build_items([[0, 1]] * 4)
    assert bootstrap_interval([good, bad]).value == 0.5


def test_equal_systems_do_not_differ():
    items = build_items([[1, 1], [0, 1], [1, 1]])
    comparison = compare_items([items], [items])
    assert (comparison.difference, comparison.low, comparison.high, comparison.p_value) == (0, 0, 0, 1)


def test_a_clear_difference_is_significant():
    right, wrong = build_items([[1, 1]] * 50), build_items([[1, 1]] * 10 + [[0, 1]] * 40)
    comparison = compare_items([wrong], [right], samples=1000)
    assert comparison.difference == pytest.approx(0.8)
    assert comparison.p_value == pytest.approx(1 / 1001)


def test_one_seed_is_compared_as_by_paired_bootstrap():
    references = [f"word{i} a b c d" for i in range(30)]
    first = [text if i % 2 else "word a b" for i, text in enumerate(references)]
    second = [text if i % 3 else "word a b c" for i, text in enumerate(references)]
    expected = paired_bootstrap(first, second, references, "bleu")
    items = [build_items(count_ngrams(texts, references, Conditions())[0], "bleu") for texts in (first, second)]
    comparison = compare_items([items[0]], [items[1]])
    assert comparison.p_value == expected.p_value
    assert (comparison.low, comparison.high) == pytest.approx((expected.low, expected.high))


def test_items_are_scored_by_length_with_and_without_unknown_words():
    items = build_items([[1, 1], [0, 1], [1, 1], [1, 1]], lengths=[1, 2, 3, 4], unknown=[False, True, False, False])
    everything = score_bands([items], [2, 4])
    known = score_bands([items], [2, 4], known_only=True)
    assert [(band.lengths, band.items, band.score.value) for band in everything] == [("1-2", 2, 0.5), ("3-4", 2, 1.0)]
    assert [(band.lengths, band.items, band.score.value) for band in known] == [("1-2", 1, 1.0), ("3-4", 2, 1.0)]


def test_one_length_is_named_alone():
    assert LengthBand(5, 5, 1, bootstrap_interval([build_items([[1, 1]])])).lengths == "5"


def test_bands_hold_equally_many_items():
    assert choose_edges(np.arange(1, 13), bands=3) == [4, 8, 12]
    assert choose_edges(np.array([5, 5, 5]), bands=3) == [5]


def test_items_survive_json():
    items = build_items([[1.5, 1, 4]], "loss", unknown=[True])
    again = ItemCounts.from_json(items.to_json())
    assert again.to_json() == items.to_json()
    assert again.value == 1.5


def test_items_must_match():
    with pytest.raises(RegardError, match="items: expected at least one, got none"):
        build_items(np.zeros((0, 2)))
    with pytest.raises(RegardError, match=r'unknown metric "blue"; did you mean "bleu"\?'):
        build_items([[1, 1]], "blue")
    one, two = build_items([[1, 1]]), build_items([[1, 1]] * 2)
    with pytest.raises(RegardError, match="got accuracy of 1 items and accuracy of 2"):
        compare_items([one], [two])


def test_every_metric_says_which_way_is_better():
    assert {name for name, metric in ITEM_METRICS.items() if not metric.higher_is_better} == {
        "word_error_rate",
        "whole_word_error_rate",
        "token_error_rate",
        "character_error_rate",
        "loss",
        "perplexity",
        "bits_per_character",
    }
