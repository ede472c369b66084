import math
from dataclasses import astuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import RegardError, watch
from regard.batch import BOS, EOS, PAD, UNKNOWN
from regard.decoding import (
    Hypothesis,
    generate,
    generate_beam,
    generate_hypotheses,
    text_log_probabilities,
    text_weights,
)
from regard.layers import MultiHeadAttention
from regard.models.attentive_lm import AttentiveLm, AttentiveLmConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.recurrent_lm import RecurrentLm, RecurrentLmConfig
from tests.decoding.tiny import (
    AttentiveText,
    Headless,
    constant_text_model,
    exhaustive_texts,
    log_softmax,
    random_text_model,
    text_log_probability,
    two_layers_of_text,
)

ROWS = [(BOS, 4, 5), (BOS, 5, 5), (BOS, 4, 4), (BOS, 5, 4)]
BEGINNING = torch.tensor(ROWS)
ONLY_BOS = torch.tensor([[BOS]])
DRAWS = 4000
TOKENS = torch.tensor([[BOS, 4, 5, 5], [BOS, 5, PAD, PAD]])
TARGETS = torch.tensor([[4, 5, 5, EOS], [5, EOS, PAD, PAD]])


def make_generator(seed):
    return torch.Generator().manual_seed(seed)


def collect_stream(*arguments, **settings):
    """Return the generated tokens, row by row."""
    return torch.stack(list(generate(*arguments, **settings)), 1).tolist()


def by_hand(model, prompt, tokens):
    actual = []
    while len(actual) < tokens and actual[-1:] != [EOS]:
        row = log_softmax(model.row([*prompt, *actual]).tolist())
        actual.append(max(range(EOS, len(row)), key=lambda token: row[token]))
    return actual


@pytest.mark.parametrize("seed", range(20))
def test_greedy_takes_the_most_probable_token_each_time(seed):
    model = random_text_model(seed, ordinary=4)
    expected = [by_hand(model, row, 9) for row in ROWS]
    max_length = max(map(len, expected))
    actual = collect_stream(model, BEGINNING, max_tokens=9, greedy=True)
    assert actual == [row + [PAD] * (max_length - len(row)) for row in expected]
    for row, tokens, whole in zip(
        ROWS, expected, generate_hypotheses(model, BEGINNING, max_tokens=9, greedy=True), strict=True
    ):
        assert (list(whole.tokens), whole.ended) == (tokens, tokens[-1] == EOS)
        assert whole.log_probability == pytest.approx(text_log_probability(model, row, tokens), abs=1e-4)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), greedy=st.booleans(), spread=st.sampled_from([0.5, 2.0]))
def test_the_stream_is_the_whole(seed, greedy, spread):
    model = random_text_model(seed, ordinary=4, spread=spread)
    actual = collect_stream(model, BEGINNING, max_tokens=12, greedy=greedy, generator=make_generator(seed))
    whole = generate_hypotheses(model, BEGINNING, max_tokens=12, greedy=greedy, generator=make_generator(seed))
    assert [tuple(token for token in row if token != PAD) for row in actual] == [
        hypothesis.tokens for hypothesis in whole
    ]
    for row, hypothesis in zip(ROWS, whole, strict=True):
        assert not {PAD, UNKNOWN, BOS} & set(hypothesis.tokens)
        assert EOS not in hypothesis.target
        assert hypothesis.log_probability == pytest.approx(
            text_log_probability(model, row, hypothesis.tokens), abs=1e-4
        )


def test_rows_are_written_as_each_alone():
    model = random_text_model(3, ordinary=5)
    together = generate_hypotheses(model, BEGINNING, max_tokens=10, greedy=True)
    assert together == [generate_hypotheses(model, row[None], max_tokens=10, greedy=True)[0] for row in BEGINNING]
    assert len({hypothesis.tokens for hypothesis in together}) > 1


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), nbest=st.integers(1, 8), alpha=st.sampled_from([0.0, 1.0]), tokens=st.integers(1, 4))
def test_a_wide_beam_is_exhaustive_search(seed, nbest, alpha, tokens):
    model = random_text_model(seed)
    actual = generate_beam(model, BEGINNING, max_tokens=tokens, beam=24, nbest=nbest, length_penalty=alpha)
    for row, best in zip(ROWS, actual, strict=True):
        expected = exhaustive_texts(model, row, tokens, alpha)[:nbest]
        assert [(hypothesis.tokens, hypothesis.ended) for hypothesis in best] == [
            (tokens, ended) for tokens, _, ended in expected
        ]
        assert [hypothesis.log_probability for hypothesis in best] == pytest.approx(
            [hypothesis[1] for hypothesis in expected], abs=1e-4
        )


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), ordinary=st.integers(1, 6))
def test_a_beam_of_one_is_greedy(seed, ordinary):
    model = random_text_model(seed, ordinary)
    actual = generate_beam(model, BEGINNING, max_tokens=11, beam=1)
    assert actual == [[hypothesis] for hypothesis in generate_hypotheses(model, BEGINNING, max_tokens=11, greedy=True)]


def test_unknown_where_it_is_allowed():
    model = constant_text_model(3, 2, 3, 1, 0)
    unknown = {"max_tokens": 2, "allow_unknown": True}
    assert collect_stream(model, ONLY_BOS, greedy=True, max_tokens=2) == [[EOS]]
    assert collect_stream(model, ONLY_BOS, greedy=True, **unknown) == [[UNKNOWN, UNKNOWN]]
    assert generate_beam(model, ONLY_BOS, beam=2, nbest=2, **unknown)[0][1].tokens == (UNKNOWN, UNKNOWN)
    total = math.log(2 * math.exp(3) + math.exp(2) + math.exp(1) + 1)
    (whole,) = generate_hypotheses(model, ONLY_BOS, greedy=True, **unknown)
    assert astuple(whole) == ((UNKNOWN, UNKNOWN), pytest.approx(2 * (2 - total), abs=1e-5), False)


def agree(counts, shares):
    """Pearson's chi-square, below what one sample in ten thousand exceeds at up to 4 degrees of freedom."""
    assert [count for count, share in zip(counts, shares, strict=True) if not share] == [0] * shares.count(0)
    expected = [DRAWS * share / sum(shares) for share in shares]
    assert sum((count - e) ** 2 / e for count, e in zip(counts, expected, strict=True) if e) < 23.5


@pytest.mark.parametrize(
    ("how", "shares"),
    [
        ({}, [0, 0, 0, 0.125, 0.5, 0.25, 0.125]),
        ({"temperature": 0.5}, [0, 0, 0, 0.125**2, 0.5**2, 0.25**2, 0.125**2]),
        ({"top_k": 2}, [0, 0, 0, 0, 0.5, 0.25, 0]),
        ({"top_k": 3}, [0, 0, 0, 0.125, 0.5, 0.25, 0]),
        ({"top_p": 0.7}, [0, 0, 0, 0, 0.5, 0.25, 0]),
        ({"top_p": 0.6, "top_k": 2}, [0, 0, 0, 0, 1, 0, 0]),
    ],
)
def test_tokens_come_as_often_as_their_probability_says(how, shares):
    model = constant_text_model(9, 9, 9, *(math.log(share) for share in (0.125, 0.5, 0.25, 0.125)))
    (first,) = generate(model, ONLY_BOS.expand(DRAWS, -1), max_tokens=1, generator=make_generator(5), **how)
    agree(torch.bincount(first, minlength=7).tolist(), shares)


def test_what_was_drawn_is_read():  # the second token's probability depends on the first
    model = random_text_model(8)
    model.table[:, EOS] = -math.inf
    steps = [*generate(model, ONLY_BOS.expand(DRAWS, -1), max_tokens=2, generator=make_generator(1))]
    counts = torch.bincount((steps[0] - 4) * 2 + steps[1] - 4, minlength=4).tolist()
    pairs = [(4, 4), (4, 5), (5, 4), (5, 5)]
    free = [[log_softmax(model.row(before).tolist()[4:]) for before in ([BOS], [BOS, first])] for first, _ in pairs]
    agree(counts, [math.exp(one[a - 4] + two[b - 4]) for (a, b), (one, two) in zip(pairs, free, strict=True)])


def test_the_same_seed_writes_the_same_text():
    model = random_text_model(3, ordinary=6, spread=0.5)
    once, again, other = (
        collect_stream(model, BEGINNING, max_tokens=20, generator=make_generator(seed)) for seed in (1, 1, 2)
    )
    assert once == again != other


def test_it_ends_with_the_last_row():
    model = constant_text_model(0, 0, 0, 9, 0)
    assert collect_stream(model, BEGINNING, max_tokens=50, greedy=True) == [[EOS]] * 4
    assert model.steps == 1
    assert collect_stream(constant_text_model(0, 0, 0, -9, 9), BEGINNING, max_tokens=3, greedy=True) == [[4, 4, 4]] * 4


def test_nothing_is_left_behind_when_nobody_reads_on():
    model = random_text_model(1, ordinary=4)
    model.table[:, EOS] = -math.inf
    model.table.requires_grad_()
    stream = generate(model, BEGINNING, max_tokens=50, generator=make_generator(0))
    next(stream)
    assert torch.is_grad_enabled()  # between two tokens as well
    stream.close()
    assert torch.is_grad_enabled()
    assert model.steps == 1
    assert list(stream) == []


def test_a_token_is_written_when_it_is_asked_for():
    model = constant_text_model(0, 0, 0, -9, 9)
    stream = generate(model, BEGINNING, max_tokens=5)
    assert model.steps == 0
    next(stream)
    next(stream)
    assert model.steps == 2


def test_no_rows():
    model, none = random_text_model(), torch.empty(0, 3, dtype=torch.long)
    assert list(generate(model, none, max_tokens=3)) == []
    assert generate_hypotheses(model, none, max_tokens=3) == generate_beam(model, none, max_tokens=3, beam=2) == []


def test_fewer_where_fewer_are_possible():
    model = constant_text_model(*[-math.inf] * 3, 0, -math.inf)
    assert generate_beam(model, ONLY_BOS, max_tokens=5, beam=4, nbest=3) == [[Hypothesis((EOS,), 0.0, ended=True)]]


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("how", [{}, {"greedy": True}, {"top_k": 2}])
def test_no_finite_probabilities(wrong, how):
    model = random_text_model()
    model.table[:, 4] = wrong
    with pytest.raises(RegardError) as error:
        list(generate(model, ONLY_BOS, max_tokens=3, **how))
    assert str(error.value) == (
        "decoding: probabilities are not finite; check the model's parameters and input for NaN or infinity"
    )
    with pytest.raises(RegardError, match=r"^decoding: probabilities are not finite; "):
        generate_beam(model, ONLY_BOS, max_tokens=3, beam=2)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"max_tokens": 0}, "generate: max_tokens must be at least 1, got 0"),
        ({"temperature": -1.0}, "sample: temperature must be above 0 and finite, got -1.0"),
        ({"top_k": 0}, "sample: top_k must be at least 1, got 0"),
        ({"top_p": 1.5}, "sample: top_p must be above 0 and at most 1, got 1.5"),
        *(
            (
                {"greedy": True, **how},
                "generate: greedy cannot be combined with temperature, top_k or top_p",
            )
            for how in ({"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.9})
        ),
    ],
)
def test_wrong_settings_are_said_before_the_first_token(how, message):
    with pytest.raises(RegardError) as error:
        generate(random_text_model(), ONLY_BOS, **{"max_tokens": 4, **how})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"beam": 0}, "generate_beam: beam must be at least 1, got 0"),
        ({"nbest": 3}, "beam_search: nbest must be at least 1 and at most width (2), got 3"),
        ({"max_tokens": 0}, "generate: max_tokens must be at least 1, got 0"),
        ({"length_penalty": -1.0}, "beam_search: length_penalty must be at least 0 and finite, got -1.0"),
    ],
)
def test_wrong_settings_of_a_beam(how, message):
    with pytest.raises(RegardError) as error:
        generate_beam(random_text_model(), ONLY_BOS, **{"max_tokens": 4, "beam": 2, **how})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([[]], "generate: every row of the prompt must start with <bos> (2)"),
        ([[BOS, 4], [4, BOS]], "generate: every row of the prompt must start with <bos> (2)"),
        ([[BOS, 4], [BOS, PAD]], "generate: prompt must not contain <pad> (0); all rows must have the same length"),
    ],
)
def test_wrong_beginnings(prompt, message):
    for write in (generate, generate_hypotheses):
        with pytest.raises(RegardError) as error:
            write(random_text_model(), torch.tensor(prompt, dtype=torch.long), max_tokens=3)
        assert str(error.value) == message


def test_wrong_use():
    with pytest.raises(RegardError, match=r"^decoding: model is in training mode; call model\.eval\(\) first$"):
        generate(random_text_model().train(), ONLY_BOS, max_tokens=3)
    with pytest.raises(RegardError, match=r"^sample: generator must be on the model's device \(meta\), got cpu$"):
        generate(random_text_model(), ONLY_BOS.to("meta"), max_tokens=3, generator=torch.Generator())


@pytest.mark.parametrize("at_once", [1, 3, 8, 1024])
def test_texts_are_scored_by_the_definition(at_once, monkeypatch):
    monkeypatch.setattr("regard.decoding.steps.MAX_POSITIONS", at_once)
    model = random_text_model(5)
    actual = text_log_probabilities(model, TOKENS, TARGETS)[0]
    for row, targets, ids in zip(TOKENS.tolist(), TARGETS.tolist(), actual.tolist(), strict=True):
        expected = [
            log_softmax(model.row(row[: position + 1]).tolist())[target] for position, target in enumerate(targets)
        ]
        assert ids == pytest.approx([x if t != PAD else 0 for x, t in zip(expected, targets, strict=True)], abs=1e-5)


def test_few_logits_exist_at_a_time(monkeypatch):
    model, seen = random_text_model(5), []
    monkeypatch.setattr(model, "output", lambda features: (seen.append(len(features)), features)[1])
    monkeypatch.setattr("regard.decoding.steps.MAX_POSITIONS", 3)
    assert text_log_probabilities(model, TOKENS, TARGETS)[0].shape == (2, 4)
    assert seen == [3, 3]  # of six targets


def test_half_precision_is_scored_in_single():
    model = random_text_model(5)
    expected = text_log_probabilities(model, TOKENS, TARGETS)[0]
    model.table = model.table.bfloat16()
    actual = text_log_probabilities(model, TOKENS, TARGETS)[0]
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, atol=0.03, rtol=0)


def test_texts_without_finite_probabilities():
    model = random_text_model(5)
    model.table[:, 4] = math.nan
    with pytest.raises(RegardError) as error:
        text_log_probabilities(model, TOKENS, TARGETS)[0]
    assert str(error.value) == (
        "text_log_probabilities: probabilities are not finite; "
        "check the model's parameters and input for NaN or infinity"
    )


def test_what_is_past_the_end_of_a_text_does_not_matter():
    model = random_text_model(5)
    expected = text_log_probabilities(model, TOKENS, TARGETS)[0]
    read = model.read(TOKENS)[0].clone()
    read[1, 2:] = math.nan
    model.read = lambda tokens, carried=None: (read, ())
    torch.testing.assert_close(text_log_probabilities(model, TOKENS, TARGETS)[0], expected)


def test_weights_of_a_text_follow_the_formula():
    torch.manual_seed(0)
    model = AttentiveText([Headless()])
    weights = text_weights(model, TOKENS[:1])
    assert weights.shape == (1, 1, 1, 4, 4)
    embedding = model.embedding.weight.detach()[TOKENS[0]]
    scores = embedding @ embedding.T
    by_hand = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf).softmax(-1)
    torch.testing.assert_close(weights[0, 0, 0], by_hand)
    assert not weights.requires_grad


def test_layers_and_heads_of_a_text_have_their_places():
    model = two_layers_of_text()
    weights = text_weights(model, TOKENS)
    assert weights.shape == (2, 2, 2, 4, 4)
    first, second = model.layers
    hidden, visible = model.embedding(TOKENS), torch.ones(4, 4).tril().bool()
    out, of_first = first(hidden, hidden, visible=visible, return_weights=True)
    _, of_second = second(hidden + out, hidden + out, visible=visible, return_weights=True)
    torch.testing.assert_close(weights[:, 0], of_first.dense().detach())
    torch.testing.assert_close(weights[:, 1], of_second.dense().detach())


def test_steps_that_see_ever_more_are_joined():
    torch.testing.assert_close(
        text_weights(two_layers_of_text(by_steps=True), TOKENS), text_weights(two_layers_of_text(), TOKENS)
    )


def test_texts_that_cannot_be_shown():
    with pytest.raises(RegardError, match=r"^text_weights: TextTable has no attention$"):
        text_weights(random_text_model(), TOKENS)
    model = two_layers_of_text()
    model.max_length = 3
    with pytest.raises(RegardError, match=r"^text_weights: text must have at most 3 tokens, got 4$"):
        text_weights(model, TOKENS)
    with pytest.raises(RegardError, match=r"^decoding: model is in training mode; call model\.eval\(\) first$"):
        text_weights(model.train(), TOKENS)
    unequal = AttentiveText([MultiHeadAttention(6, 2), MultiHeadAttention(6, 3)])
    with pytest.raises(RegardError, match=r"^text_weights: all layers must have the same number of heads, got 2, 3$"):
        text_weights(unequal, TOKENS)


def small(name, **more):
    torch.manual_seed(0)
    if name == "gpt":
        return Gpt(GptConfig(vocab_size=23, width=16, heads=2, layers=2, context_length=32, **more)).eval()
    settings = {"vocab_size": 23, "embedding": 12, "hidden": 12}
    if name == "attentive-lm":
        return AttentiveLm(AttentiveLmConfig(**settings, heads=2, window=16)).eval()
    return RecurrentLm(RecurrentLmConfig(**settings, layers=2)).eval()


REAL = torch.tensor([[BOS, 7, 9, 20], [BOS, 4, 4, 15], [BOS, 22, 5, 6]])


@pytest.mark.parametrize("name", ["gpt", "recurrent-lm", "attentive-lm"])
def test_what_is_remembered_changes_nothing(name):
    model = small(name)
    text = REAL
    for _ in range(10):
        logits = model(text)[0][:, -1].detach()
        logits[:, [PAD, UNKNOWN, BOS]] = -math.inf
        best = logits.argmax(-1, keepdim=True)
        text = torch.cat([text, best.masked_fill((text == EOS).any(-1, keepdim=True), PAD)], 1)
    expected = [tuple(token for token in row if token != PAD) for row in text[:, 4:].tolist()]
    actual = generate_hypotheses(model, REAL, max_tokens=10, greedy=True)
    assert [hypothesis.tokens for hypothesis in actual] == expected
    assert [hypothesis.tokens for (hypothesis,) in generate_beam(model, REAL, max_tokens=10, beam=1)] == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("name", ["gpt", "recurrent-lm", "attentive-lm"])
def test_what_was_written_has_the_log_probability_of_what_is_read(name):
    model = small(name)
    drawn = generate_hypotheses(model, REAL, max_tokens=9, generator=make_generator(2))
    best = [hypotheses[-1] for hypotheses in generate_beam(model, REAL, max_tokens=9, beam=4, nbest=4)]
    for actual in (drawn, best):
        for row, hypothesis in zip(REAL.tolist(), actual, strict=True):
            text = torch.tensor([[*row, *hypothesis.tokens]])
            logs = text_log_probabilities(model, text[:, :-1], text[:, 1:])[0][0, len(row) - 1 :]
            assert hypothesis.log_probability == pytest.approx(logs.sum().item(), abs=1e-4)


@pytest.mark.parametrize("name", ["gpt", "attentive-lm"])
def test_weights_of_a_text_are_those_of_the_steps_that_read_it(name):
    model = small(name)
    text = torch.cat([REAL, REAL[:, 1:].flip(0)], 1)
    whole = text_weights(model, text)
    assert whole.shape == (3, len(model.default_attention), 2, 7, 7)
    torch.testing.assert_close(whole.sum(-1), torch.ones(whole.shape[:-1]))
    state = model.start(text[:, :1], capacity=7)
    with torch.no_grad(), watch(model, keep="dense") as seen:
        for tokens in text.T:
            _, state = model.step(tokens, state)
    for layer, path in enumerate(model.default_attention):
        for position, step in enumerate(seen[path]):
            torch.testing.assert_close(whole[:, layer, :, position, : position + 1], step.reshape(3, 2, -1))
            assert not whole[:, layer, :, position, position + 1 :].any()


def test_a_text_may_outgrow_the_context():
    model = small("gpt", mute=(EOS,))
    assert [
        len(hypothesis.tokens)
        for hypothesis in generate_hypotheses(model, REAL, max_tokens=80, generator=make_generator(1))
    ] == [
        80,
        80,
        80,
    ]
    assert [len(best[0].tokens) for best in generate_beam(model, REAL, max_tokens=80, beam=3)] == [80, 80, 80]
