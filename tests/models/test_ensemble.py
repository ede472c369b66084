"""Ensembles against their members, and against means computed by hand."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention.watch import watch
from regard.batch import BOS, EOS, Pair, collate
from regard.decoding import beam_search, greedy, sample, score_targets
from regard.decoding.forced import forced_weights
from regard.decoding.generate import generate_beam, generate_hypotheses
from regard.decoding.score_text import text_log_probabilities
from regard.errors import RegardError
from regard.models import build
from regard.models.ensemble import build_ensemble, mean_log_probabilities
from tests.decoding.tiny import log_softmax, random_model, random_text_model, rank, sources
from tests.models.test_attentive_tagger import SENTENCES, TAGS, make_batch, tagger

SOURCES = [(4, 5), (5,), (4, 4, 5, 5), ()]
SIZES = {"source_vocab_size": 9, "target_vocab_size": 8}
SEQ2SEQ = {"bahdanau": {"hidden": 6, "embedding": 5}, "transformer": {"width": 8, "heads": 2, "feed_forward": 8}}
TEXT = {"gru-lm": {"hidden": 6, "embedding": 6}, "gpt": {"width": 8, "heads": 2, "layers": 1, "context_length": 12}}


def pairs(name, seed):
    torch.manual_seed(seed)
    return build(name, **SIZES, **SEQ2SEQ[name]).eval()


def text(name, seed):
    torch.manual_seed(seed)
    return build(name, vocab_size=9, **TEXT[name]).eval()


def mean_of_tables(models, source, tokens):
    """The log-probability of tokens by the definition, in double precision: at each step the mean of the members."""
    total = 0.0
    for position, token in enumerate(tokens):
        rows = [log_softmax(model.row([*source, EOS], [BOS, *tokens[:position]]).tolist()) for model in models]
        total += math.log(sum(math.exp(row[token]) for row in rows) / len(rows))
    return total


def test_the_mean_by_hand():
    logits = [torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([[math.log(3.0), 0.0]]), torch.zeros(1, 2)]
    means = torch.tensor([[(0.25 + 0.75 + 0.5) / 3, 0.5]])
    torch.testing.assert_close(mean_log_probabilities(logits).exp(), means)
    assert mean_log_probabilities(logits[:1]) is logits[0]


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), alpha=st.sampled_from([0.0, 1.0]), count=st.integers(1, 3))
def test_a_wide_beam_of_an_ensemble_is_exhaustive_search(seed, alpha, count):
    models = [random_model(seed + index) for index in range(count)]
    found = beam_search(build_ensemble(models), sources(*SOURCES), 24, 5, alpha, max_length=3)
    for source, best in zip(SOURCES, found, strict=True):
        expected = rank(6, 3, alpha, (), lambda tokens, source=source: mean_of_tables(models, source, tokens))
        assert [hypothesis.tokens for hypothesis in best] == [tokens for tokens, _, _ in expected[:5]]
        values = [value for _, value, _ in expected[:5]]
        assert [hypothesis.log_probability for hypothesis in best] == pytest.approx(values, abs=1e-4)


def test_given_targets_score_the_mean_of_every_step():
    models = [random_model(seed) for seed in (1, 2)]
    batch = collate([Pair([4, 5], [5, 4, 4]), Pair([5], [])])
    expected = [mean_of_tables(models, (4, 5), (5, 4, 4, EOS)), mean_of_tables(models, (5,), (EOS,))]
    assert score_targets(build_ensemble(models), batch) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_one_model_is_itself_and_copies_are_nearly_so(name):
    one, batch = pairs(name, 1), collate([Pair([4, 5, 6], [4, 5]), Pair([7], [6])])
    alone, twice = build_ensemble([one]), build_ensemble([one, one])
    assert torch.equal(alone(batch), one(batch))
    torch.testing.assert_close(twice(batch), one(batch).log_softmax(-1))
    assert greedy(alone, batch, max_length=6) == greedy(one, batch, max_length=6)
    assert beam_search(alone, batch, 3, 3, max_length=6) == beam_search(one, batch, 3, 3, max_length=6)
    copied, expected = (beam_search(each, batch, 3, 3, max_length=6) for each in (twice, one))
    assert [[each.tokens for each in best] for best in copied] == [[each.tokens for each in best] for best in expected]
    seeded = [sample(each, batch, max_length=6, generator=torch.Generator().manual_seed(4)) for each in (alone, one)]
    assert seeded[0] == seeded[1]
    assert torch.equal(forced_weights(alone, batch), forced_weights(one, batch))


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_steps_and_the_whole_target_agree(name):
    ensemble = build_ensemble([pairs(name, 1), pairs(name, 2)])
    batch = collate([Pair([4, 5, 6]), Pair([7])])
    found = beam_search(ensemble, batch, 3, 1, max_length=6)
    targets = [list(best[0].target) for best in found]
    ended = [best[0].ended for best in found]
    scored = score_targets(ensemble, collate([Pair([4, 5, 6], targets[0]), Pair([7], targets[1])]))
    for best, value, end in zip(found, scored, ended, strict=True):
        if end:
            assert best[0].log_probability == pytest.approx(value, abs=1e-4)


def test_attention_is_that_of_the_first():
    first, second = pairs("bahdanau", 1), pairs("bahdanau", 2)
    batch = collate([Pair([4, 5, 6], [4, 5])])
    ensemble = build_ensemble([first, second])
    assert torch.equal(forced_weights(ensemble, batch), forced_weights(first, batch))
    with watch(ensemble) as seen, torch.no_grad():
        ensemble(batch)
    assert set(ensemble.default_attention) <= set(seen)


@pytest.mark.parametrize("name", TEXT)
def test_language_models_are_averaged_token_by_token(name):
    members = [text(name, 1), text(name, 2)]
    ensemble, alone = build_ensemble(members), build_ensemble(members[:1])
    tokens, targets = torch.tensor([[BOS, 4, 5, 6]]), torch.tensor([[4, 5, 6, EOS]])
    value, state = text_log_probabilities(ensemble, tokens, targets)
    logs = [text_log_probabilities(member, tokens, targets)[0] for member in members]
    torch.testing.assert_close(value, ((logs[0].exp() + logs[1].exp()) / 2).log())
    options = {"max_tokens": 5, "temperature": 0.9}
    generated = [
        generate_hypotheses(model, tokens[:, :2], generator=torch.Generator().manual_seed(1), **options)
        for model in (alone, members[0])
    ]
    assert generated[0] == generated[1]
    if ensemble.stateful:  # in two segments, as in one
        first, state = text_log_probabilities(ensemble, tokens[:, :2], targets[:, :2])
        second, _ = text_log_probabilities(ensemble, tokens[:, 2:], targets[:, 2:], state)
        torch.testing.assert_close(torch.cat([first, second], 1), value)


def test_the_beam_of_language_models_is_exhaustive_search():
    models = [random_text_model(seed) for seed in (1, 2)]

    def log_probability(tokens):
        whole, total = [BOS, 4, *tokens], 0.0
        for position in range(2, len(whole)):
            rows = [log_softmax(model.row(whole[:position]).tolist()) for model in models]
            total += math.log(sum(math.exp(row[whole[position]]) for row in rows) / 2)
        return total

    found = generate_beam(build_ensemble(models), torch.tensor([[BOS, 4]]), max_tokens=3, beam=24, nbest=4)[0]
    expected = sorted(rank(6, 3, 0.0, (), log_probability), key=lambda item: -item[1])[:4]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for tokens, _, _ in expected]
    assert [hypothesis.log_probability for hypothesis in found] == pytest.approx([value for _, value, _ in expected])


@pytest.mark.parametrize("crf", [True, False])
def test_taggers_average_their_scores_and_keep_to_the_scheme(crf):
    first, second = tagger("BIO", 1, crf=crf).eval(), tagger("BIO", 2, crf=crf).eval()
    batch = make_batch("BIO", *SENTENCES)
    for copies in ([first], [first, first]):
        same = build_ensemble(copies)
        scores = first(batch)
        assert torch.equal(same(batch), scores)
        assert torch.equal(same.decode(same(batch), batch), first.decode(scores, batch))
        assert torch.equal(same.probabilities(same(batch), batch), first.probabilities(scores, batch))
    both = build_ensemble([first, second])
    torch.testing.assert_close(both(batch), (first(batch) + second(batch)) / 2)
    torch.testing.assert_close(both.crf.transitions, (first.crf.transitions + second.crf.transitions) / 2)
    tags = both.decode(both(batch), batch).tolist()
    for row, sentence in zip(tags, SENTENCES, strict=True):
        names = ["O", *(TAGS["BIO"][tag] for tag in row[: len(sentence)])]
        for before, name in pairwise(names):
            assert not name.startswith("I-") or before[2:] == name[2:]


def test_models_that_differ_are_refused():
    for models, message in (
        ([], "ensemble: expected at least one model, got none"),
        ([text("gru-lm", 1), text("gpt", 1)], "recurrent models and models of a fixed context cannot be combined"),
        ([tagger("BIO"), tagger("plain")], "ensemble: the models differ in labels"),
        (
            [pairs("bahdanau", 1), text("gpt", 1)],
            "ensemble: expected models of one task that can be combined, got RecurrentSeq2Seq and Gpt",
        ),
    ):
        with pytest.raises(RegardError) as caught:
            build_ensemble(models)
        assert str(caught.value).endswith(message)


def test_models_that_copy_are_averaged_over_the_extended_vocabulary():
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(build("bahdanau", **SIZES, **SEQ2SEQ["bahdanau"], copy=True).eval())
    batch = collate([Pair([4, 5, 1], [4, 9], [4, 8, 9])])
    mean = (models[0](batch).softmax(-1) + models[1](batch).softmax(-1)) / 2
    torch.testing.assert_close(build_ensemble(models)(batch).exp(), mean)
    assert torch.equal(build_ensemble(models[:1])(batch), models[0](batch))
    with pytest.raises(RegardError) as caught:
        build_ensemble([models[0], pairs("bahdanau", 1)])
    assert str(caught.value) == "ensemble: models that copy and models that do not cannot be combined"
