"""Copying from the source: the mixture, and every model that copies."""

import math

import pytest
import torch
from torch import nn

from regard import RegardError, watch
from regard.batch import BOS, EOS, UNKNOWN, Pair, collate
from regard.decoding import beam_search, generate_probabilities, greedy, sample, score_targets
from regard.models import build
from regard.models.pointer import CopyFeatures, CopySource, to_known_tokens
from regard.training.loss import PairStep

PAIRS = [Pair([5, 6, 1, 7], [4, 11, 5], [5, 11, 12, 7]), Pair([9], [6, 7, 8], [9]), Pair([4, 1], [11], [4, 11])]
NO_NORMALIZER = "model luong-dot: copy = true requires a normalizer, but normalizer is none"
PRESETS = {
    "simple-attention": {"hidden": 4, "embedding": 3},
    "parameterized-attention": {"hidden": 4, "embedding": 3, "heads": 2},
    "bahdanau": {"hidden": 4, "embedding": 3, "layers": 2},
    "luong-general": {"hidden": 4, "embedding": 3, "tied_embeddings": True},
    "transformer": {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 2},
}


def make(name, **settings):
    torch.manual_seed(2)
    sizes = {"source_vocab_size": 10, "target_vocab_size": 11, "copy": True, "dropout": 0.0}
    model = build(name, **{**sizes, **PRESETS[name], **settings}).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def features(gate=0.0, weights=((0.75, 0.25, 0.0),), ids=((3, 4, 3),), size=5, dtype=torch.float64):
    weights = torch.tensor(weights, dtype=dtype)
    gates = torch.full((len(weights),), gate, dtype=dtype)
    return CopyFeatures(weights, gates, weights, torch.tensor(ids), size)


def test_a_token_is_generated_or_copied():
    mixed = features(math.log(3)).mix(torch.zeros(1, 4, dtype=torch.float64)).exp()  # g is 3/4, each token has 1/4
    torch.testing.assert_close(mixed, torch.tensor([[3, 3, 3, 3 + 3, 1]]).double() / 16)


def test_what_only_other_sources_have_is_never_copied():
    part = features(weights=((1.0,), (1.0,)), ids=((2,), (5,)), size=6)
    mixed = part.mix(torch.zeros(2, 4).double())
    assert mixed[0, 4:].tolist() == [-math.inf] * 2
    assert mixed[1].isfinite().all()
    torch.testing.assert_close(mixed.exp().sum(-1), torch.ones(2).double())


def test_a_step_that_sees_nothing_generates():
    logits = torch.randn(1, 4).double()
    mixed = features(-3.0, weights=((0.0, 0.0, 0.0),)).mix(logits)
    torch.testing.assert_close(mixed[:, :4], logits.log_softmax(-1))


@pytest.mark.parametrize("gate", [-200.0, 0.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mixture_is_finite_and_sums_to_one_at_the_extremes(gate, dtype):
    part = features(gate, dtype=dtype)
    part.weights.requires_grad_()
    part.gate.requires_grad_()
    logits = torch.tensor([[-1e4, 0.0, 50.0, -50.0]], dtype=dtype, requires_grad=True)
    mixed = part.mix(logits)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed.exp().sum(-1), torch.ones(1))
    gradients = torch.autograd.grad(mixed[:, 1:].sum(), [part.weights, part.gate, logits])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_gradients_are_those_of_finite_differences():
    part, torch_logits = features(), torch.randn(1, 4, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    gate = torch.randn(1, dtype=torch.float64, requires_grad=True)

    def mix(scores, gate, logits):
        return CopyFeatures(logits, gate, scores.softmax(-1), part.ids, 5).mix(logits)

    assert torch.autograd.gradcheck(mix, (scores, gate, torch_logits))


def test_copied_tokens_are_read_as_unknown():
    assert to_known_tokens(torch.tensor([4, 9, 10, 12]), 10).tolist() == [4, 9, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("name", PRESETS)
def test_probabilities_sum_to_one(name):
    log_probabilities = make(name)(collate(PAIRS))
    assert log_probabilities.shape == (3, 4, 13)
    torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(3, 4).double())
    assert (log_probabilities[1, :, 11:] == -math.inf).all()  # the second source has no token of its own


def test_a_transformer_copies_by_the_last_cross_attention():
    model, batch = make("transformer"), collate(PAIRS)
    with watch(model, "dense") as seen, torch.no_grad():
        mixed, hidden = model(batch), model.features(batch).hidden
        source = model.encode(batch)
    weights = seen["decoder.layers.1.cross"][0].mean(1)  # of both heads
    embedded = model.target_embedding.weight[to_known_tokens(batch.target_in, 11)] * math.sqrt(8)
    embedded = embedded + model.target_positions(4, embedded).added
    gate = model.pointer.gate(torch.cat([weights @ source, hidden, embedded], -1)).sigmoid()
    expected = torch.zeros(3, 4, 13).double()
    expected[..., :11] = gate * (hidden @ model.target_embedding.weight.T).softmax(-1)
    for row, pair in enumerate(PAIRS):
        for position, token in enumerate([*pair.copy_ids, EOS]):
            expected[row, :, token] += (1 - gate[row, :, 0]) * weights[row, :, position]
    torch.testing.assert_close(mixed.exp(), expected)
    torch.testing.assert_close(generate_probabilities(model, batch).double(), gate[..., 0].float().double())


@pytest.mark.parametrize("name", PRESETS)
def test_a_model_copies_by_the_weights_that_it_shows(name):
    model, batch = make(name), collate(PAIRS)
    with watch(model, "dense") as seen, torch.no_grad():
        mixed, part = model(batch), model.features(batch)
        generated = model.output(part.hidden).softmax(-1)
    calls = seen[model.default_attention[-1]]  # one, or one for each step of each of two passes
    weights = torch.cat(calls[: len(calls) // 2], 2).mean(1)  # of all heads
    gate = generate_probabilities(model, batch).double()
    expected = torch.zeros(3, 4, 13).double()
    expected[..., :11] = gate[..., None] * generated
    for row, pair in enumerate(PAIRS):
        for position, token in enumerate([*pair.copy_ids, EOS]):
            expected[row, :, token] += (1 - gate[row]) * weights[row, :, position]
    torch.testing.assert_close(mixed.exp(), expected, rtol=1e-5, atol=1e-7)  # the gates are in float32


@pytest.mark.parametrize("name", PRESETS)
def test_padding_changes_nothing(name):
    model = make(name)
    alone = [score_targets(model, collate([pair]))[0] for pair in PAIRS]
    assert score_targets(model, collate(PAIRS)) == pytest.approx(alone)


@pytest.mark.parametrize("name", PRESETS)
def test_an_empty_source_copies_only_its_end(name):
    probabilities = make(name)(collate([Pair([], [4, 5], [])])).exp()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(1, 3).double())


@pytest.mark.parametrize("name", PRESETS)
def test_steps_equal_the_whole_also_after_reordering(name):
    model, sources = make(name), collate([pair._replace(target=None) for pair in PAIRS])
    tokens, chosen = torch.full((6,), BOS), [[] for _ in range(6)]
    with torch.no_grad():
        state = model.start(sources, 3, copies=2)
        for _ in range(3):
            logits, state = model.step(tokens, state)
            rows = [PAIRS[row // 2]._replace(target=[*chosen[row], 4]) for row in range(6)]
            torch.testing.assert_close(logits, model(collate(rows))[:, len(chosen[0])])
            order = torch.tensor([1, 0, 2, 2, 5, 5])
            state.select(order)
            tokens = torch.tensor([11, 12, 5, 6, 11, 4])
            chosen = [[*chosen[row], token] for row, token in zip(order.tolist(), tokens.tolist(), strict=True)]


@pytest.mark.parametrize("name", PRESETS)
def test_every_search_scores_its_targets_as_forced_scoring_does(name):
    model, sources = make(name), collate([pair._replace(target=None) for pair in PAIRS])
    with torch.no_grad():
        model.pointer.gate.bias.fill_(-3)  # copy
    torch.manual_seed(0)
    nbest = beam_search(model, sources, width=4, nbest=3, max_length=5)
    results = [greedy(model, sources, max_length=5), sample(model, sources, max_length=5), [b[0] for b in nbest]]
    copied = 0
    for hypotheses in results:
        for pair, hypothesis in zip(PAIRS, hypotheses, strict=True):
            copied += sum(token >= 11 for token in hypothesis.tokens)
            assert all(token < 11 or token in pair.copy_ids for token in hypothesis.tokens)
            if hypothesis.ended:
                (score,) = score_targets(model, collate([pair._replace(target=hypothesis.target)]))
                assert hypothesis.log_probability == pytest.approx(score, rel=1e-5)
    assert copied


@pytest.mark.parametrize("name", PRESETS)
def test_the_loss_smooths_over_what_can_be_generated(name):
    model, batch = make(name), collate(PAIRS)
    log_probabilities = model(batch)
    expected = 0.0
    for row, pair in enumerate(PAIRS):
        for i, token in enumerate([*pair.target, EOS]):
            smoothed = 0.9 * log_probabilities[row, i, token] + 0.1 * log_probabilities[row, i, :11].mean()
            expected -= smoothed.item()
    loss = PairStep(model, 0.1)(batch)
    assert loss.total.item() == pytest.approx(expected)
    assert loss.tokens == 10


@pytest.mark.parametrize("name", PRESETS)
def test_bfloat16_is_finite(name):
    model = make(name).float().train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = PairStep(model, 0.1)(collate(PAIRS)).total
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("seq2seq", {}, "model seq2seq: copy = true requires attention, but attention is none"),
        (
            "luong-dot",
            {"normalizer": "none"},
            NO_NORMALIZER,
        ),
    ],
)
def test_settings_that_do_not_fit_are_said(name, settings, message):
    with pytest.raises(RegardError) as error:
        build(name, source_vocab_size=9, target_vocab_size=9, copy=True, **settings)
    assert str(error.value) == message


def test_a_batch_without_copies_is_said():
    with pytest.raises(RegardError) as error:
        CopySource.of(collate([Pair([5])]), 9)
    assert str(error.value) == "copy: batch has no copy_ids; every source requires the target ids of its tokens"


def test_a_model_that_does_not_copy_has_no_gate():
    model = make("bahdanau", copy=False)
    with pytest.raises(RegardError) as error:
        generate_probabilities(model, collate([Pair([5], [6])]))
    assert str(error.value) == "generate_probabilities: RecurrentSeq2Seq does not copy"
    assert model.pointer is None
    assert not model.copies
