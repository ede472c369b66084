"""Exact hard attention: its steps, its likelihood, and the alignments that it shows."""

import math
from itertools import combinations_with_replacement, product

import pytest
import torch

from regard import RegardError, watch
from regard.batch import BOS, EOS, Pair, collate
from regard.decoding import beam_search, forced_weights, greedy, sample, score_targets
from regard.models import build
from regard.training.loss import PairStep

PAIRS = [Pair([5, 6, 7, 8], [4, 5, 9]), Pair([9], [6]), Pair([4, 4, 9, 5, 6], [])]
PRESETS = ("hard-attention", "hard-monotonic")


def make(name, **settings):
    torch.manual_seed(4)
    sizes = {"source_vocab_size": 10, "target_vocab_size": 11, "hidden": 4, "embedding": 3, "dropout": 0.0}
    model = build(name, **{**sizes, **settings}).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model.eval()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("name", PRESETS)
def test_the_likelihood_is_the_sum_over_alignments(name, cell):
    model, pair = make(name, cell=cell, layers=2, score="additive", max_jump=1), PAIRS[0]
    batch = collate([pair])
    with torch.no_grad():
        features = model.features(batch)
        state = model._encode(batch)
        states, _ = model.decoder(model.target_embedding(batch.target_in), state=state.layers)
        moves = model.alignment.compute_transitions(states, state.keys, state.visible)[0]
    emissions = features.tokens[0].gather(-1, batch.target_out[0][:, None, None].expand(-1, 5, 1))[..., 0]
    alignments = combinations_with_replacement(range(5), 4) if name == "hard-monotonic" else product(range(5), repeat=4)
    total = 0.0
    for alignment in alignments:
        steps = zip((0, *alignment), alignment, strict=False)
        path = sum(moves[i, k, j] + emissions[i, j] for i, (k, j) in enumerate(steps))
        total += path.exp().item()
    (actual,) = score_targets(model, batch)
    assert actual == pytest.approx(math.log(total), rel=1e-9)


@pytest.mark.parametrize("name", PRESETS)
def test_steps_equal_the_whole_also_after_reordering(name):
    model, sources = make(name, layers=2), collate([pair._replace(target=None) for pair in PAIRS])
    tokens, chosen = torch.full((6,), BOS), [[] for _ in range(6)]
    with torch.no_grad():
        state = model.start(sources, 3, copies=2)
        for _ in range(3):
            logits, state = model.step(tokens, state)
            torch.testing.assert_close(logits.exp().sum(-1), torch.ones(6).double())
            pairs = [Pair(PAIRS[row // 2].source, [*chosen[row], 4]) for row in range(6)]
            whole = model(collate(pairs))
            torch.testing.assert_close(logits, whole[:, len(chosen[0])])
            rows = torch.tensor([1, 0, 2, 2, 5, 5])
            state.select(rows)
            tokens = torch.randint(4, 11, (6,))
            chosen = [[*chosen[row], token] for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)]


@pytest.mark.parametrize("name", PRESETS)
def test_padding_changes_nothing(name):
    model = make(name)
    together = score_targets(model, collate(PAIRS))
    assert together == pytest.approx([score_targets(model, collate([pair]))[0] for pair in PAIRS])


@pytest.mark.parametrize("name", PRESETS)
def test_an_empty_source_writes_its_target_from_its_end(name):
    model, batch = make(name), collate([Pair([], [4, 5])])
    features = model.features(batch)
    assert not features.positions.any()  # the only position is certain
    tokens = features.tokens[0, :, 0].gather(-1, batch.target_out.T)
    (score,) = score_targets(model, batch)
    assert score == pytest.approx(tokens.sum().item())


@pytest.mark.parametrize("name", PRESETS)
def test_every_search_scores_its_targets_as_forced_scoring_does(name):
    model, sources = make(name), collate([pair._replace(target=None) for pair in PAIRS])
    torch.manual_seed(0)
    found = [best[0] for best in beam_search(model, sources, width=4, max_length=5)]
    for hypotheses in (greedy(model, sources, max_length=5), sample(model, sources, max_length=5), found):
        for pair, hypothesis in zip(PAIRS, hypotheses, strict=True):
            if hypothesis.ended:
                (score,) = score_targets(model, collate([Pair(pair.source, hypothesis.target)]))
                assert hypothesis.log_probability == pytest.approx(score)


def test_decoding_shows_the_distribution_given_the_tokens_so_far():
    model, batch = make("hard-monotonic"), collate(PAIRS[:1])
    with torch.no_grad(), watch(model, "dense") as seen:
        state = model.start(batch, 4)
        for tokens in batch.target_in.T:
            _, state = model.step(tokens, state)
    filtered = torch.cat(seen["alignment"], 2)[0, 0]
    torch.testing.assert_close(filtered, model.features(batch).positions[0].exp())


def test_a_given_target_shows_the_posterior():
    model, batch = make("hard-monotonic"), collate(PAIRS)
    weights = forced_weights(model, batch)
    assert weights.shape == (3, 1, 1, 4, 6)
    last = model.features(batch)  # nothing comes after <eos>, so its posterior is by Bayes' rule
    tokens, positions = last.tokens[0, 3, :, EOS].exp(), last.positions[0, 3].exp()
    torch.testing.assert_close(weights[0, 0, 0, 3], tokens * positions / (tokens @ positions))
    assert not weights[1, 0, 0, :2, 2:].any()


@pytest.mark.parametrize("score", ["additive", "bilinear", "concat", "dot", "scaled_dot"])
@pytest.mark.parametrize("name", PRESETS)
def test_any_score_learns_where_to_look(name, score):
    model = make(name, score=score).float().train()
    with torch.autocast("cpu", torch.bfloat16):
        loss, tokens, _ = PairStep(model, 0.1)(collate(PAIRS))
    loss.backward()
    assert loss.isfinite()
    assert tokens == 7
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"score": "uniform"},
            'unknown model hard-monotonic.score "uniform"; choose from additive, bilinear, concat, dot, scaled_dot',
        ),
        ({"order": 2}, 'unknown model hard-monotonic.order "2"; choose from 0, 1'),
        ({"max_jump": 0}, "max_jump must be at least 1, got 0"),
    ],
)
def test_settings_that_do_not_fit_are_said(settings, message):
    with pytest.raises(RegardError) as error:
        make("hard-monotonic", **settings)
    assert message in str(error.value)


def test_a_batch_without_targets_is_said():
    with pytest.raises(RegardError) as error:
        make("hard-monotonic").features(collate([Pair([5])]))
    assert str(error.value) == "HardAttention: batch has no targets; use start and step to decode without them"
