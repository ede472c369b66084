"""Perplexities worked out by hand."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics.language import build_distance_bands, safe_exp, score_distance_bands, score_text


def test_one_loss_in_three_units():
    nats = 8 * math.log(2)  # one bit for each of eight tokens
    scores = score_text(nats, tokens=8, words=2, characters=4, conditions="context:9")
    assert [str(score) for score in scores] == [
        "loss 0.6931 (nats per token|context:9)",
        "perplexity per token 2.00 (tokens:8|context:9)",
        "perplexity per word 16.00 (words:2|context:9)",
        "bits per character 2.0000 (characters:4|context:9)",
    ]
    assert [score.value for score in scores] == pytest.approx([math.log(2), 2, 16, 2])


def test_another_cutting_into_tokens_changes_only_the_first_two():
    few, many = (score_text(12.0, tokens=tokens, words=3, characters=20, conditions="") for tokens in (4, 9))
    assert few[2:] == many[2:]
    assert all(one.value != other.value for one, other in zip(few[:2], many[:2], strict=True))


def test_a_text_without_words_has_no_perplexity_per_word():
    scores = score_text(1.0, tokens=1, words=0, characters=3, conditions="x")
    assert [score.name for score in scores] == ["loss", "perplexity per token", "bits per character"]
    scores = score_text(1.0, tokens=1, words=0, characters=0, conditions="x")
    assert [score.name for score in scores] == ["loss", "perplexity per token"]


def test_what_is_beyond_all_numbers_is_infinite_and_no_number_in_json():
    assert safe_exp(709.0) == math.exp(709.0)
    assert safe_exp(710.0) == math.inf
    score = score_text(800.0, tokens=400, words=1, characters=400, conditions="x")[2]
    assert str(score) == "perplexity per word inf (words:1|x)"
    assert json.loads(json.dumps(score.to_json(), allow_nan=False))["value"] is None


def test_bands_double():
    assert build_distance_bands(20) == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 20)]
    assert build_distance_bands(4) == [(1, 1), (2, 2), (3, 4)]
    assert build_distance_bands(1) == [(1, 1)]


@given(st.integers(0, 2000))
def test_bands_hold_every_distance_once(longest):
    assert [index for first, last in build_distance_bands(longest) for index in range(first, last + 1)] == list(
        range(1, longest + 1)
    )


def test_the_mean_loss_of_each_band():
    scores = score_distance_bands([4.0, 2.0, 3.0, 1.0, 0.0, 0.5], [2, 2, 2, 6, 0, 1])
    assert [str(score) for score in scores] == [
        "loss after 1 token 2.0000 (targets:2)",
        "loss after 2 tokens 1.0000 (targets:2)",
        "loss after 3-4 tokens 0.5000 (targets:8)",
        "loss after 5-6 tokens 0.5000 (targets:1)",
    ]
    assert score_distance_bands([1.0, 0.0, 0.0, 0.0, 5.0], [1, 0, 0, 0, 2])[-1].name == "loss after 5 tokens"
    assert [score.name for score in score_distance_bands([1.0, 0.0, 3.0], [1, 0, 1])] == [
        "loss after 1 token",
        "loss after 3 tokens",
    ]
