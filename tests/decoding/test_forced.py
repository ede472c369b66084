import math

import pytest
import torch

from regard import RegardError, watch
from regard.batch import EOS, Pair, collate
from regard.decoding import beam_search, forced_weights, greedy, score_targets, token_log_probabilities
from regard.layers import MultiHeadAttention
from regard.models import build
from tests.decoding.tiny import AttentiveModel, Headless, log_probability, random_model, sources, two_layers

PAIRS = [Pair((4, 5), (5, 4, 4)), Pair((5,), ()), Pair((4, 4, 6), (5,))]


def test_scores_are_the_sums_of_the_definition():
    model = random_model(4, ordinary=3)
    expected = [log_probability(model, pair.source, (*pair.target, EOS)) for pair in PAIRS]
    assert score_targets(model, collate(PAIRS)) == pytest.approx(expected, abs=1e-5)


def test_each_token_has_its_own():
    model = random_model(4, ordinary=3)
    actual = token_log_probabilities(model, collate(PAIRS))
    assert actual.shape == (3, 4)
    tokens = (5, 4, 4, EOS)
    sums = [log_probability(model, (4, 5), tokens[:length]) for length in range(1, 5)]
    torch.testing.assert_close(actual[0].cumsum(0), torch.tensor(sums))
    assert actual[1, 1:].tolist() == [0, 0, 0]  # past the end
    assert actual[1, 0] < 0


@pytest.mark.parametrize("seed", range(5))
def test_what_was_decoded_has_the_log_probability_it_was_decoded_with(seed):
    model, rows = random_model(seed, ordinary=3), [(4, 5), (5,), (4, 4, 6)]
    actual = [best for (best,) in beam_search(model, sources(*rows), 4)]
    actual = [a if a.ended else b for a, b in zip(actual, greedy(model, sources(*rows)), strict=True)]
    kept = [(row, hypothesis) for row, hypothesis in zip(rows, actual, strict=True) if hypothesis.ended]
    again = score_targets(model, collate([Pair(row, hypothesis.target) for row, hypothesis in kept]))
    assert again == pytest.approx([hypothesis.log_probability for _, hypothesis in kept], abs=1e-4)


def test_weights_without_heads_follow_the_formula():
    torch.manual_seed(0)
    model = AttentiveModel([Headless()])
    weights = forced_weights(model, collate(PAIRS))
    assert weights.shape == (3, 1, 1, 4, 4)
    embedding = model.embedding.weight.detach()
    query = embedding[[2, 5, 4, 4]].cumsum(0)  # <bos> 5 4 4, which produce 5 4 4 <eos>
    by_hand = (query @ embedding[[4, 5, EOS]].T).softmax(-1)
    torch.testing.assert_close(weights[0, 0, 0, :, :3], by_hand)
    assert not weights[0, ..., 3].any()  # padding of the source


def test_layers_and_heads_have_their_places():
    model, batch = two_layers(), collate(PAIRS)
    weights = forced_weights(model, batch)
    assert weights.shape == (3, 2, 2, 4, 4)
    first, second = model.layers
    query, keys = model.embedding(batch.target_in).cumsum(1), model.embedding(batch.source)
    visible = (torch.arange(4) < batch.source_lengths.on_device[:, None])[:, None, :]
    out, of_first = first(query, keys, visible=visible, return_weights=True)
    _, of_second = second(query + out, keys, visible=visible, return_weights=True)
    torch.testing.assert_close(weights[0, 0], of_first.dense()[0].detach())
    torch.testing.assert_close(weights[0, 1], of_second.dense()[0].detach())
    assert not weights.requires_grad


def test_rows_sum_to_one_up_to_the_end_of_the_target():
    totals = forced_weights(two_layers(), collate(PAIRS)).sum(-1)
    for row, length in zip(totals, [4, 1, 2], strict=True):
        torch.testing.assert_close(row[..., :length], torch.ones(2, 2, length))
        assert not row[..., length:].any()


def test_steps_are_joined():
    batch = collate(PAIRS)
    torch.testing.assert_close(forced_weights(two_layers(by_steps=True), batch), forced_weights(two_layers(), batch))


def test_a_batch_is_its_sentences_one_by_one():
    together = forced_weights(two_layers(), collate(PAIRS))
    for pair, weights in zip(PAIRS, together, strict=True):
        alone = forced_weights(two_layers(), collate([pair]))[0]
        torch.testing.assert_close(weights[..., : len(pair.target) + 1, : len(pair.source) + 1], alone)


def test_groups_are_heads_too():
    torch.manual_seed(0)
    grouped = MultiHeadAttention(6, 6, groups=2)
    assert forced_weights(AttentiveModel([grouped]), collate(PAIRS)).shape == (3, 1, 6, 4, 4)


def test_unequal_heads():
    model = AttentiveModel([MultiHeadAttention(6, 2), MultiHeadAttention(6, 3)])
    with pytest.raises(RegardError, match=r"^forced_weights: all layers must have the same number of heads, got 2, 3$"):
        forced_weights(model, collate(PAIRS))


def test_a_model_without_attention():
    with pytest.raises(RegardError) as error:
        forced_weights(random_model(), collate(PAIRS))
    assert str(error.value) == "forced_weights: TableModel has no attention from target to source"


def test_targets_are_needed():
    for function, model in ((score_targets, random_model()), (forced_weights, two_layers())):
        with pytest.raises(RegardError) as error:
            function(model, sources((4,)))
        assert str(error.value) == "forced decoding: batch has no targets; every source requires a target"


def test_a_model_in_training_is_refused():
    for function, model in ((score_targets, random_model()), (forced_weights, two_layers())):
        with pytest.raises(RegardError, match=r"^decoding: model is in training mode; call model\.eval\(\) first$"):
            function(model.train(), collate(PAIRS))


def test_no_finite_probabilities():
    model = random_model(0, ordinary=3)
    model.table[:, :, 4] = math.nan
    with pytest.raises(RegardError) as error:
        score_targets(model, collate(PAIRS))
    assert str(error.value) == (
        "score_targets: probabilities are not finite; check the model's parameters and input for NaN or infinity"
    )


@pytest.mark.parametrize("name", ["simple-attention", "bahdanau", "luong-general", "transformer"])
def test_the_weights_of_a_given_target_are_those_of_the_steps_that_write_it(name):
    torch.manual_seed(0)
    settings = {"width": 8, "heads": 2} if name == "transformer" else {"hidden": 8, "embedding": 6, "heads": 2}
    model = build(name, source_vocab_size=11, target_vocab_size=9, **settings).eval()
    batch = collate([Pair([4, 5, 6, 7, 8], [5, 4, 8]), Pair([9, 4], [6, 7, 5, 4])])
    whole = forced_weights(model, batch)
    state = model.start(batch, capacity=5)
    with torch.no_grad(), watch(model, keep="dense") as seen:
        for tokens in batch.target_in.T:
            _, state = model.step(tokens, state)
    for layer, path in enumerate(model.default_attention):
        steps = torch.cat(seen[path], dim=-2)
        for row, length in enumerate(batch.target_lengths):
            torch.testing.assert_close(whole[row, layer, :, :length], steps[row, :, :length])
