import math
from dataclasses import astuple

import pytest
import torch

from regard import RegardError
from regard.batch import BOS, EOS, PAD, UNKNOWN, Pair, collate
from regard.decoding import default_max_length, greedy
from tests.decoding.tiny import constant_model, log_probability, log_softmax, random_model, sources

SOURCES = [(4, 5), (5,), (4, 4, 5, 5), ()]


def by_hand(model, source, max_length):
    tokens = []
    while len(tokens) < max_length and tokens[-1:] != [EOS]:
        row = log_softmax(model.row([*source, EOS], [BOS, *tokens]).tolist())
        tokens.append(max(range(EOS, len(row)), key=lambda token: row[token]))
    return tuple(tokens)


@pytest.mark.parametrize("seed", range(20))
def test_the_most_probable_token_each_time(seed):
    model = random_model(seed, ordinary=4)
    for source, actual in zip(SOURCES, greedy(model, sources(*SOURCES), max_length=9), strict=True):
        assert actual.tokens == by_hand(model, source, 9)
        assert actual.log_probability == pytest.approx(log_probability(model, source, actual.tokens), abs=1e-5)
        assert actual.ended == (actual.tokens[-1] == EOS)


def test_a_batch_is_its_sentences_one_by_one():
    for seed in range(10):
        model = random_model(seed, ordinary=5)
        together = greedy(model, sources(*SOURCES))
        assert together == [greedy(model, sources(source))[0] for source in SOURCES]


def test_special_tokens_are_not_chosen_but_keep_their_probability():
    model = constant_model(3, 2, 3, 1, 0)  # <eos> is the best that may be chosen
    total = 2 * math.exp(3) + math.exp(2) + math.exp(1) + 1
    (actual,) = greedy(model, sources((4,)))
    assert astuple(actual) == ((EOS,), pytest.approx(1 - math.log(total)), True)
    (actual,) = greedy(model, sources((4,)), allow_unknown=True, max_length=2)
    assert astuple(actual) == ((UNKNOWN, UNKNOWN), pytest.approx(2 * (2 - math.log(total))), False)


def test_the_smallest_of_equals_is_chosen():
    (actual,) = greedy(constant_model(0, 0, 0, 0, 0, 0), sources((4,)))
    assert actual.tokens == (EOS,)


def test_a_model_that_never_ends_stops_at_its_limit():
    model = constant_model(0, 0, 0, -math.inf, 5)
    actual = greedy(model, sources((4,), (4, 4, 4)))
    assert [len(hypothesis.tokens) for hypothesis in actual] == [2 * 2 + 50, 2 * 4 + 50]  # <eos> belongs to a source
    assert [hypothesis.ended for hypothesis in actual] == [False, False]
    assert default_max_length(sources((4,), (4, 4, 4))).tolist() == [54, 58]


def test_a_limit_for_each():
    model = constant_model(0, 0, 0, -math.inf, 5)
    actual = greedy(model, sources((4,), (4,)), max_length=torch.tensor([3, 1]))
    assert [hypothesis.tokens for hypothesis in actual] == [(4, 4, 4), (4,)]
    hypothesis = -math.log(3 + math.exp(5)) + 5
    assert [one.log_probability for one in actual] == pytest.approx([3 * hypothesis, hypothesis], abs=1e-5)


def test_an_empty_target_and_an_empty_batch():
    model = constant_model(0, 0, 0, 9, 0)
    assert [hypothesis.tokens for hypothesis in greedy(model, sources((4,), ()))] == [(EOS,), (EOS,)]
    assert model.steps == 1  # it stops when all have ended
    assert greedy(model, sources()) == []


def test_half_precision_is_summed_in_single():
    model = constant_model(0, 0, 0, -9, 1)
    model.table = model.table.bfloat16()
    (actual,) = greedy(model, sources((4,)), max_length=30)
    assert actual.log_probability == pytest.approx(30 * log_softmax([0, 0, 0, -9, 1])[4], abs=1e-4)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_no_finite_probabilities(wrong):
    model = random_model()
    model.table[:, :, 4] = wrong
    with pytest.raises(RegardError) as error:
        greedy(model, sources((4,)))
    assert str(error.value) == (
        "decoding: probabilities are not finite; check the model's parameters and input for NaN or infinity"
    )


def test_all_probability_on_padding():
    with pytest.raises(RegardError, match=r"^decoding: probabilities are not finite; "):
        greedy(constant_model(0, *[-math.inf] * 4), sources((4,)))


def test_what_follows_the_end_does_not_matter():
    model = random_model()
    model.table = torch.full(tuple(model.table.shape), math.nan)
    model.table[:, 3] = torch.tensor([0.0, 0, 0, 9, 0, 0])  # after <bos>: the end
    assert [hypothesis.tokens for hypothesis in greedy(model, sources((4,), (5,)))] == [(EOS,), (EOS,)]


def test_wrong_use():
    model = constant_model(0, 0, 0, 9, 0)
    with pytest.raises(RegardError, match=r"^decoding: max_length must be at least 1, got 0$"):
        greedy(model, sources((4,)), max_length=0)
    with pytest.raises(RegardError, match=r"^decoding: model is in training mode; call model\.eval\(\) first$"):
        greedy(model.train(), sources((4,)))


def test_targets_are_not_looked_at():
    model = random_model(2)
    with_target = collate([Pair((4, 5), (5,))])
    assert greedy(model, with_target) == greedy(model, sources((4, 5)))
    assert PAD not in greedy(model, with_target)[0].tokens
