import math
from dataclasses import astuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import RegardError
from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.decoding import Hypothesis, beam_search, greedy, iter_beam_search
from tests.decoding.tiny import constant_model, exhaustive, log_probability, random_model, sources

SOURCES = [(4, 5), (5,), (4, 4, 5, 5), ()]


def same(actual, expected):
    assert [(hypothesis.tokens, hypothesis.ended) for hypothesis in actual] == [
        (tokens, ended) for tokens, _, ended in expected
    ]
    for hypothesis, (_, log_probability_, _) in zip(actual, expected, strict=True):
        assert hypothesis.log_probability == pytest.approx(log_probability_, abs=1e-4)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    nbest=st.integers(1, 8),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.5]),
    max_length=st.integers(1, 4),
    spread=st.sampled_from([0.5, 2.0, 6.0]),
)
def test_a_wide_beam_is_exhaustive_search(seed, nbest, alpha, max_length, spread):
    model = random_model(seed, spread=spread)
    actual = beam_search(
        model, sources(*SOURCES), 24, nbest, alpha, max_length=max_length
    )  # 2 ** 3 * 3 choices at most
    for source, best in zip(SOURCES, actual, strict=True):
        same(best, exhaustive(model, source, max_length, alpha)[:nbest])


def test_three_tokens_and_unknown_allowed():
    model = random_model(7, ordinary=2)
    actual = beam_search(model, sources(*SOURCES), 108, 108, 1.3, max_length=4, allow_unknown=True)
    for source, best in zip(SOURCES, actual, strict=True):
        expected = exhaustive(model, source, 4, 1.3, allowed=[UNKNOWN])
        assert len(expected) == 1 + 3 + 9 + 27 + 81
        same(best, expected[:108])


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), ordinary=st.integers(1, 6))
def test_width_one_is_greedy(seed, ordinary):
    model, batch = random_model(seed, ordinary), sources(*SOURCES)
    actual = beam_search(model, batch, 1, length_penalty=0.0, max_length=12)
    assert actual == [[hypothesis] for hypothesis in greedy(model, batch, max_length=12)]


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 6), alpha=st.sampled_from([0.0, 1.0]), data=st.data())
def test_a_batch_is_its_sentences_one_by_one(seed, width, alpha, data):
    nbest = data.draw(st.integers(1, width))
    model = random_model(seed, ordinary=4, spread=1.0)
    limits = torch.tensor([9, 5, 7, 1])
    together = beam_search(model, sources(*SOURCES), width, nbest, alpha, max_length=limits)
    for source, limit, best in zip(SOURCES, limits.tolist(), together, strict=True):
        assert [best] == beam_search(model, sources(source), width, nbest, alpha, max_length=limit)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), width=st.integers(2, 7), alpha=st.sampled_from([0.0, 0.6, 1.0]))
def test_n_best_are_sorted_different_and_rightly_scored(seed, width, alpha):
    model = random_model(seed, ordinary=4, spread=1.0)
    for source, best in zip(
        SOURCES, beam_search(model, sources(*SOURCES), width, width, alpha, max_length=6), strict=True
    ):
        assert len({hypothesis.tokens for hypothesis in best}) == len(best) == width
        ranks = [(not h.ended, -h.log_probability / ((5 + len(h.tokens)) / 6) ** alpha) for h in best]
        assert ranks == sorted(ranks)
        for hypothesis in best:
            assert not {PAD, BOS, UNKNOWN} & set(hypothesis.tokens)
            assert EOS not in hypothesis.target
            assert hypothesis.log_probability == pytest.approx(
                log_probability(model, source, hypothesis.tokens), abs=1e-4
            )


def test_a_beam_finds_what_greedy_misses():  # "4" is likelier first, but "5" leads to the likelier whole
    model = constant_model(*[-math.inf] * 3, 0, 0, 0)
    model.table = model.table.clone()
    model.table[:, 3] = torch.tensor([0, 0, 0, 0, 0.6, 0.4]).log()  # after <bos>
    model.table[:, 35] = torch.tensor([0, 0, 0, 0.5, 0.25, 0.25]).log()  # after <bos> 4
    model.table[:, 36] = torch.tensor([0, 0, 0, 0.9, 0.05, 0.05]).log()
    (wide,), (narrow,) = (beam_search(model, sources((4,)), width, 1, 0.0)[0] for width in (2, 1))
    assert astuple(wide) == ((5, EOS), pytest.approx(math.log(0.36)), True)
    assert astuple(narrow) == ((4, EOS), pytest.approx(math.log(0.3)), True)


def test_the_length_penalty_prefers_longer_ones():
    model = constant_model(-9, -9, -9, 0, 0)  # a half each: "4" * n has log-probability (n + 1) log(1/2)
    (short,), (long,) = (beam_search(model, sources((4,)), 2, 1, alpha, max_length=5)[0] for alpha in (0.0, 4.0))
    assert (short.tokens, long.tokens) == ((EOS,), (4, 4, 4, 4, EOS))
    half = -math.log(2 + 3 * math.exp(-9))
    assert long.log_probability == pytest.approx(5 * half, abs=1e-5)  # the sum itself, not divided


def test_it_stops_when_nothing_better_can_come():
    model = constant_model(-9, -9, -9, 5, 0)
    beam_search(model, sources((4,), (4, 4)), 3, 1, 0.0)
    assert model.steps == 1
    model.steps = 0
    beam_search(model, sources((4,), (4, 4)), 3, 3, 0.0)
    assert model.steps == 3  # "", "4" and "4 4"


def test_a_model_that_never_ends():
    model = constant_model(0, 0, 0, -math.inf, 5, 4)
    actual = beam_search(model, sources((4,), (4, 4)), 2, 2, max_length=torch.tensor([1, 3]))
    assert [[hypothesis.tokens for hypothesis in best] for best in actual] == [[(4,), (5,)], [(4, 4, 4), (4, 4, 5)]]
    assert not any(hypothesis.ended for best in actual for hypothesis in best)


def test_a_model_that_ends_at_once():
    model = constant_model(*[-math.inf] * 3, 0, -math.inf)
    assert (
        beam_search(model, sources((4,), ()), 4, 3) == [[Hypothesis((EOS,), 0.0, ended=True)]] * 2
    )  # no other is possible


def test_wider_than_the_vocabulary():
    model = random_model(1, ordinary=1)
    (best,) = beam_search(model, sources((4,)), 50, 50, 0.0, max_length=3)
    same(best, exhaustive(model, (4,), 3, 0.0))


def test_equals_rank_by_age_then_by_token():
    model = constant_model(*[-math.inf] * 3, 0, 0, 0)
    (best,) = beam_search(model, sources((4,)), 12, 12, 0.0, max_length=3)
    assert [hypothesis.tokens for hypothesis in best[:7]] == [
        (EOS,), (4, EOS), (5, EOS), (4, 4, EOS), (4, 5, EOS), (5, 4, EOS), (5, 5, EOS)
    ]  # fmt: skip


def test_an_empty_batch():
    assert beam_search(random_model(), sources()) == []


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_no_finite_probabilities(wrong):
    model = random_model()
    model.table[:, 5:, 4] = wrong  # not at the first step
    with pytest.raises(RegardError) as error:
        beam_search(model, sources((4,)), nbest=5)
    assert str(error.value) == (
        "decoding: probabilities are not finite; check the model's parameters and input for NaN or infinity"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "beam_search: width must be at least 1, got 0"),
        ({"width": 3, "nbest": 4}, "beam_search: nbest must be at least 1 and at most width (3), got 4"),
        ({"nbest": 0}, "beam_search: nbest must be at least 1 and at most width (5), got 0"),
        (
            {"length_penalty": -0.5},
            "beam_search: length_penalty must be at least 0 and finite, got -0.5",
        ),
        ({"max_length": 0}, "decoding: max_length must be at least 1, got 0"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(RegardError) as error:
        beam_search(random_model(), sources((4,)), **settings)
    assert str(error.value) == message


def test_a_model_in_training_is_refused():
    with pytest.raises(RegardError, match=r"^decoding: model is in training mode; call model\.eval\(\) first$"):
        beam_search(random_model().train(), sources((4,)))


def beam_steps(model, batch, width=5, alpha=1.0, *, max_length=None):
    """Return the candidates of each source, step by step until it is done."""
    by_step = [
        search.get_candidates() for search in iter_beam_search(model, batch, width, 1, alpha, max_length=max_length)
    ]
    return [[step for step in steps if step] for steps in zip(*by_step, strict=True)]


def test_the_steps_of_a_beam_by_hand():  # of 4 and 5, where 4 is likelier at each step; a beam of two
    model = constant_model(*[-math.inf] * 3, math.log(0.2), math.log(0.5), math.log(0.3))
    (steps,) = beam_steps(model, sources((4,)), 2, 0.0, max_length=3)
    actual = [
        [(hypothesis.tokens, round(math.exp(hypothesis.log_probability), 6)) for hypothesis in step] for step in steps
    ]
    assert actual[0] == [((4,), 0.5), ((5,), 0.3)]  # <eos>, 0.2, is the third
    assert actual[1] == [((4, 4), 0.25), ((4, 5), 0.15)]
    assert len(actual) == 3


def test_what_ends_among_the_best_is_a_step_of_the_beam():
    model = constant_model(*[-math.inf] * 3, math.log(0.5), math.log(0.3), math.log(0.2))
    (steps,) = beam_steps(model, sources((4,)), 2, 1.0, max_length=3)
    first = [
        (hypothesis.tokens, hypothesis.ended, round(math.exp(hypothesis.log_probability), 6)) for hypothesis in steps[0]
    ]
    assert first == [((EOS,), True, 0.5), ((4,), False, 0.3), ((5,), False, 0.2)]


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 5), alpha=st.sampled_from([0.0, 1.0]))
def test_every_step_holds_the_beginning_of_the_best(seed, width, alpha):
    model, limits = random_model(seed, ordinary=4, spread=1.0), torch.tensor([9, 5, 7, 1])
    best = beam_search(model, sources(*SOURCES), width, 1, alpha, max_length=limits)
    steps = beam_steps(model, sources(*SOURCES), width, alpha, max_length=limits)
    for source, (winner,), considered in zip(SOURCES, best, steps, strict=True):
        for position in range(len(winner.tokens)):
            assert winner.tokens[: position + 1] in [hypothesis.tokens for hypothesis in considered[position]]
        for position, step in enumerate(considered):
            assert len({hypothesis.tokens for hypothesis in step}) == len(step) <= 2 * width
            assert all(len(hypothesis.tokens) == position + 1 for hypothesis in step)
            assert [-hypothesis.log_probability for hypothesis in step] == sorted(
                -hypothesis.log_probability for hypothesis in step
            )
            for hypothesis in step:
                assert hypothesis.log_probability == pytest.approx(
                    log_probability(model, source, hypothesis.tokens), abs=1e-4
                )


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 5))
def test_the_steps_of_a_batch_are_those_of_each_sentence(seed, width):
    model = random_model(seed, ordinary=4, spread=1.0)
    limits = torch.tensor([9, 5, 7, 1])
    together = beam_steps(model, sources(*SOURCES), width, max_length=limits)
    assert together == [
        beam_steps(model, sources(source), width, max_length=limit)[0]
        for source, limit in zip(SOURCES, limits.tolist(), strict=True)
    ]


def test_no_sources_have_no_steps():
    assert beam_steps(constant_model(0, 0, 0, 0, 0), sources()) == []
    with pytest.raises(RegardError, match=r"^beam_search: width must be at least 1, got 0$"):
        beam_steps(constant_model(0, 0, 0, 0, 0), sources((4,)), 0)


def test_a_search_can_be_watched_and_finds_the_same():
    model, settings = random_model(5, ordinary=4), {"width": 3, "nbest": 2, "max_length": 6}
    expected, steps = beam_search(model, sources(*SOURCES), **settings), model.steps
    model.steps = 0
    for number, search in enumerate(iter_beam_search(model, sources(*SOURCES), **settings), start=1):
        assert (search.length, model.steps) == (number, number)
        for alive, considered in zip(search.get_live(), search.get_candidates(), strict=True):
            assert not considered or [hypothesis for hypothesis in considered if not hypothesis.ended] == alive
    assert (search.get_results(), model.steps) == (expected, steps)


def test_between_two_steps_nothing_is_switched_off():
    model = random_model()
    for _ in iter_beam_search(model, sources((4,)), max_length=3):
        assert torch.is_grad_enabled()
