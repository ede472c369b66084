import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.batch import EOS, UNKNOWN
from regard.decoding import greedy, sample
from regard.decoding.sample import truncate_probabilities
from tests.decoding.tiny import constant_model, log_probability, random_model, sources

DRAWS = 4000


def frequencies(logits, **settings):
    """How often each token is drawn first."""
    batch = sources(*[(4,)] * DRAWS)
    actual = sample(
        constant_model(*logits), batch, max_length=1, generator=torch.Generator().manual_seed(5), **settings
    )
    counts = torch.bincount(torch.tensor([hypothesis.tokens[0] for hypothesis in actual]), minlength=len(logits))
    return counts.tolist()


def agree(counts, shares):
    """Pearson's chi-square, below what one sample in ten thousand exceeds at up to 4 degrees of freedom."""
    assert [count for count, share in zip(counts, shares, strict=True) if not share] == [0] * shares.count(0)
    expected = [DRAWS * share / sum(shares) for share in shares]
    assert sum((count - e) ** 2 / e for count, e in zip(counts, expected, strict=True) if e) < 23.5


def test_tokens_come_as_often_as_their_probability_says():
    agree(frequencies([5, 5, 5, 0, 1, 2, 1.5]), [0, 0, 0, 1, math.e, math.e**2, math.e**1.5])


def test_unknown_where_it_is_allowed():
    agree(frequencies([5, 1, 5, 0, 2], allow_unknown=True), [0, math.e, 0, 1, math.e**2])
    assert frequencies([5, 1, 5, 0, 2])[UNKNOWN] == 0


def test_temperature_divides_the_logits():
    agree(frequencies([0, 0, 0, 0, 1, 2], temperature=0.5), [0, 0, 0, 1, math.e**2, math.e**4])
    agree(frequencies([0, 0, 0, 0, 1, 2], temperature=4.0), [0, 0, 0, 1, math.e**0.25, math.e**0.5])


def test_top_k_is_exact():
    agree(frequencies([9, 9, 9, 0, 1, 2, 1.5], top_k=2), [0, 0, 0, 0, 0, math.e**2, math.e**1.5])
    agree(frequencies([9, 9, 9, 1, 1, 1, 1], top_k=3), [0, 0, 0, 1, 1, 1, 0])  # the smaller numbers of equals


def test_top_p_is_exact():  # shares 0.5, 0.25, 0.125, 0.125
    logits = [9, 9, 9, *(math.log(share) for share in (0.125, 0.5, 0.25, 0.125))]
    agree(frequencies(logits, top_p=0.7), [0, 0, 0, 0, 0.5, 0.25, 0])
    agree(frequencies(logits, top_p=0.76), [0, 0, 0, 0.125, 0.5, 0.25, 0])
    agree(frequencies(logits, top_p=1e-9), [0, 0, 0, 0, 1, 0, 0])
    agree(frequencies(logits, top_p=1.0), [0, 0, 0, 0.125, 0.5, 0.25, 0.125])
    agree(frequencies(logits, top_p=0.7, top_k=2), [0, 0, 0, 0, 0.5, 0.25, 0])  # 0.5 is two thirds of these
    agree(frequencies(logits, top_p=0.6, top_k=2), [0, 0, 0, 0, 1, 0, 0])


@given(
    logits=st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=9),
    top_k=st.none() | st.integers(1, 10),
    top_p=st.none() | st.floats(0.05, 0.95),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
)
def test_shares_by_their_definition(logits, top_k, top_p, temperature):
    actual = truncate_probabilities(torch.tensor([logits]).log_softmax(-1).double(), temperature, top_k, top_p)[
        0
    ].tolist()
    weights = [math.exp(logit / temperature) for logit in logits]
    order = sorted(range(len(logits)), key=lambda token: -weights[token])[:top_k]
    total, taken = sum(weights[token] for token in order), 0.0
    for token in order:
        if top_p is not None and abs(taken / total - top_p) < 1e-6:
            return  # too near the edge to say
        drawn = top_p is None or taken / total < top_p
        assert actual[token] == pytest.approx(weights[token] / total if drawn else 0.0, rel=1e-4)
        taken += weights[token]
    assert [actual[token] for token in range(len(logits)) if token not in order] == [0.0] * (len(logits) - len(order))


def test_the_log_probability_is_the_models_own():
    model, batch = random_model(3, ordinary=4), sources((4, 5), (5,), ())
    actual = sample(model, batch, temperature=3.0, top_k=3, generator=torch.Generator().manual_seed(0), max_length=8)
    for source, hypothesis in zip([(4, 5), (5,), ()], actual, strict=True):
        assert hypothesis.log_probability == pytest.approx(log_probability(model, source, hypothesis.tokens), abs=1e-4)
        assert hypothesis.ended == (hypothesis.tokens[-1] == EOS)


def test_a_generator_repeats_itself_and_cold_is_greedy():
    model, batch = random_model(3, ordinary=4), sources(*[(4, 5)] * 20)
    once, again = (sample(model, batch, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert once == again
    assert len({hypothesis.tokens for hypothesis in once}) > 5
    assert sample(model, batch, temperature=1e-38) == sample(model, batch, top_k=1) == greedy(model, batch)


@pytest.mark.parametrize("settings", [{}, {"top_k": 2}, {"top_p": 0.5}])
def test_no_finite_probabilities(settings):
    with pytest.raises(RegardError, match=r"^decoding: probabilities are not finite; "):
        sample(constant_model(0, 0, 0, math.nan, 0), sources((4,)), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "sample: temperature must be above 0 and finite, got 0.0"),
        ({"top_k": 0}, "sample: top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "sample: top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "sample: top_p must be above 0 and at most 1, got 1.5"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(RegardError) as error:
        sample(random_model(), sources((4,)), **settings)
    assert str(error.value) == message


def test_a_generator_elsewhere():
    with pytest.raises(RegardError, match=r"^sample: generator must be on the model's device \(meta\), got cpu$"):
        sample(random_model(), sources((4,)).to("meta"), generator=torch.Generator())
