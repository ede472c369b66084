import numpy as np
import pytest
import torch

from regard import RegardError, watch
from regard.api import look, train
from regard.batch import BOS, collate
from regard.data.labeled import LabeledText
from regard.tasks.loading import load
from tests.sizes import Sizes


def dense_of(model, run):
    """What is seen at each path while a function runs."""
    with torch.no_grad(), watch(model, "dense") as seen:
        run()
    return {path: np.concatenate([call[0].numpy() for call in calls], -2) for path, calls in seen.items()}


def test_a_target_looks_at_its_source(reverse_run):
    model = load(reverse_run)
    picture = look(model, "a b c")
    expected = model.predict("a b c", return_weights=True)
    assert (picture.rows, picture.columns) == (("c", "b", "a", "<eos>"), ("a", "b", "c", "<eos>"))
    assert (picture.title, picture.merged) == ("bahdanau: a b c → c b a", "tokens")
    np.testing.assert_allclose(picture.weights, expected.weights.numpy(), atol=1e-6)


def test_a_given_target(reverse_run):
    model = load(reverse_run)
    picture = look(model, "a b c", target="d d")
    (expected,) = model.force(["a b c"], ["d d"], return_weights=True)
    assert picture.rows == ("d", "d", "<eos>")
    np.testing.assert_allclose(picture.weights, expected.weights.numpy(), atol=1e-6)


def test_a_target_that_may_not_become_long(reverse_run):
    model = load(reverse_run)
    picture, expected = look(model, "a b c", max_length=2), model.predict("a b c", max_length=2, return_weights=True)
    assert picture.rows == expected.target_tokens
    assert len(picture.alternatives) == len(picture.rows) == 2
    np.testing.assert_allclose(picture.weights, expected.weights.numpy(), atol=1e-6)


def test_each_attention_of_a_transformer(transformer_run):
    model = load(transformer_run)
    (forced,) = model.force(["a b c"], ["d a"])
    seen = dense_of(model.model, lambda: model.model.features(collate([forced.pair])))
    source, target, read = ("a", "b", "c", "<eos>"), ("d", "a", "<eos>"), ("<bos>", "d", "a")
    sides = {"cross": (target, source), "encoder": (source, source), "decoder": (target, read)}
    paths = {
        "cross": ["decoder.layers.0.cross", "decoder.layers.1.cross"],
        "encoder": ["encoder.layers.0.attention"],
        "decoder": ["decoder.layers.0.attention", "decoder.layers.1.attention"],
    }
    titles = {"cross": ": a b c → d a", "encoder": ", encoder: a b c", "decoder": ", decoder: d a"}
    for kind, (rows, columns) in sides.items():
        picture = look(model, "a b c", target="d a", kind=kind)
        assert (picture.rows, picture.columns) == (rows, columns)
        assert picture.title == "transformer" + titles[kind]
        np.testing.assert_allclose(picture.weights, np.stack([seen[path] for path in paths[kind]]), atol=1e-6)
    assert look(model, "a b c", target="d a") == look(model, "a b c", target="d a", kind="cross")
    above = np.triu(np.ones((3, 3)), 1)
    assert not (look(model, "a b c", target="d a", kind="decoder").weights * above).any()  # none looks ahead


def test_parts_of_words_are_merged_by_hand(subword_run):
    model = load(subword_run)
    (forced,) = model.force(["The cats sleep"], ["sleep cats"], return_weights=True)
    assert forced.source_tokens == ("▁the", "▁cats", "▁slee", "p", "<eos>")
    assert forced.target_tokens == ("▁slee", "p", "▁cats", "<eos>")
    weights = forced.weights.numpy()[0, 0]
    columns = np.stack([weights[:, 0], weights[:, 1], weights[:, 2] + weights[:, 3], weights[:, 4]], 1)
    expected = np.stack([(columns[0] + columns[1]) / 2, columns[2], columns[3]])
    picture = look(model, "The cats sleep", target="sleep cats")
    assert (picture.rows, picture.columns) == (("sleep", "cats", "<eos>"), ("the", "cats", "sleep", "<eos>"))
    assert (picture.merged, picture.alternatives) == ("words", None)
    np.testing.assert_allclose(picture.weights, expected[None, None], atol=1e-6)
    tokens = look(model, "The cats sleep", target="sleep cats", words=False)
    assert (tokens.rows, tokens.columns, tokens.merged) == (forced.target_tokens, forced.source_tokens, "tokens")
    np.testing.assert_allclose(tokens.weights, forced.weights.numpy(), atol=1e-6)


def test_a_text_looks_back(gpt_run):
    model = load(gpt_run)
    picture = look(model, "the cat")
    ids = torch.tensor([[BOS, *model.tokenizer.encode("the cat")]])
    seen = dense_of(model.model, lambda: model.model.read(ids))
    assert picture.rows == picture.columns == ("<bos>", "t", "h", "e", "▁", "c", "a", "t")
    assert picture.title == "gpt: the cat"
    np.testing.assert_allclose(
        picture.weights, np.stack([seen[path] for path in model.model.default_attention]), atol=1e-6
    )
    assert look(model, "the cat", kind="self") == picture


def test_words_that_are_tagged(label_runs):
    model = load(label_runs["crf"])
    picture = look(model, "mr ann went")
    expected = model.predict("mr ann went", return_weights=True)
    assert (picture.rows, picture.merged) == (("mr", "ann", "went"), "words")
    np.testing.assert_allclose(picture.weights, expected.weights.numpy(), atol=1e-6)


def test_what_a_classifier_looks_at(label_runs):
    model = load(label_runs["one"])
    picture = look(model, "one good two")
    expected = model.predict("one good two", return_weights=True)
    assert (picture.rows, picture.columns) == (expected.labels, ("one", "good", "two"))
    np.testing.assert_allclose(picture.weights.ravel(), expected.weights, atol=1e-6)
    assert look(model, "one good two", top=1).weights.indices.ravel() == [1]


def test_second_texts_and_texts_before(label_runs):
    pairs, dialogues = load(label_runs["pairs"]), load(label_runs["context"])
    expected = pairs.predict("one good", second="bad", return_weights=True)
    assert look(pairs, "one good", second="bad") == pairs.attention_map(expected)
    expected = dialogues.predict("one two", context=["good one"], return_weights=True)
    assert look(dialogues, "one two", context=["good one"]) == dialogues.attention_map(expected)


def test_the_layers_of_a_classifier(tmp_path):
    (tmp_path / "texts.tsv").write_text("who is she\tperson\nwhere is he\tplace\nwho sees\tperson\nwhere\tplace\n" * 5)
    recipe = {
        "data": {"train": str(tmp_path / "texts.tsv"), "task": "label", "validation_share": 0.2},
        "model": {"name": "attentive-classifier", "embedding": 6, "hidden": 4, "encoder": "attention"},
        "training": {"steps": 1, "batch_tokens": 100, "validate_every": 1},
    }
    recipe["model"] |= {"attention_heads": 2, "pooling": "mean", "char_width": 4}
    train(recipe, tmp_path / "run", quiet=True)
    model = load(tmp_path / "run")
    batch = model.build_batch([LabeledText("who is he", ())])
    seen = dense_of(model.model, lambda: model.model(batch))
    picture = look(model, "who is he")  # it pools by the mean, so that these are all that it has
    assert (picture.rows, picture.columns) == (("who", "is", "he"),) * 2
    np.testing.assert_allclose(picture.weights[0], seen["reader.stack.layers.0.attention"], atol=1e-6)
    with pytest.raises(RegardError, match=r'^look: attentive-classifier: unknown kind "pooling"; choose from self$'):
        look(model, "who is he", kind="pooling")


def test_a_long_text_makes_no_matrix(transformer_run, monkeypatch):
    monkeypatch.setattr("regard.maps.weights.AT_ONCE", 2**15)
    model, source, target = load(transformer_run), "a b c d " * 75, "d c " * 150
    dense = model.force([source], [target], return_weights=True)[0].weights.numpy()
    with Sizes() as sizes:
        picture = look(model, source, target=target, top=8)
    assert picture.weights.shape == dense.shape == (2, 2, 301, 301)
    np.testing.assert_allclose(picture.weights.values, np.sort(dense, -1)[..., :-9:-1], atol=1e-5)
    np.testing.assert_allclose(picture.received(), dense.sum(-2).mean((0, 1)), rtol=1e-3)
    assert sizes.most < 301 * 301 / 2


@pytest.mark.parametrize("run", ["reverse_run", "gpt_run"])
def test_a_long_text_is_shown_by_the_largest_weights(run, request, monkeypatch):
    monkeypatch.setattr("regard.maps.weights.LONG", 3)
    monkeypatch.setattr("regard.maps.weights.LEAST_KEPT", 2)
    monkeypatch.setattr("regard.maps.weights.MOST_KEPT", 2)
    model = load(request.getfixturevalue(run))
    picture = look(model, "a b c")
    monkeypatch.undo()
    whole = look(model, "a b c").keep_top(2)
    assert picture.weights.top_k == 2
    np.testing.assert_array_equal(picture.weights.indices, whole.weights.indices)
    np.testing.assert_allclose(picture.weights.values, whole.weights.values, atol=1e-6)
    np.testing.assert_allclose(picture.weights.received, whole.weights.received, atol=1e-6)
    assert (picture.rows, picture.alternatives) == (whole.rows, whole.alternatives)


def test_what_a_model_does_not_have(reverse_run, plain_run, text_run, gpt_run, label_runs):
    cases = [
        (reverse_run, {"kind": "self"}, 'look: bahdanau: unknown kind "self"; choose from cross'),
        (reverse_run, {"second": "x"}, "look: second is not an option of bahdanau"),
        (gpt_run, {"target": "x"}, "look: target is not an option of gpt"),
        (
            label_runs["crf"],
            {"context": ["x"]},
            "look: context is not an option of attentive-tagger",
        ),
        (
            plain_run,
            {},
            "seq2seq has no attention from target to source",
        ),
        (text_run, {}, "gru-lm has no attention weights to show"),
        (
            label_runs["mean"],
            {},
            "attentive-classifier has no attention weights to show: pooling is mean; train with --pooling attention",
        ),
        (
            label_runs["plain"],
            {},
            "attentive-tagger has no self-attention weights to show; train with --encoder both",
        ),
        (
            label_runs["pairs"],
            {},
            'text "a b": second is required; this model classifies text pairs',
        ),
        (reverse_run, {"top": 0}, "look: top must be at least 1, got 0"),
        (reverse_run, {"max_length": 0}, "look: max_length must be at least 1, got 0"),
        (gpt_run, {"max_length": 3}, "look: max_length is not an option of gpt"),
    ]
    for run, options, line in cases:
        with pytest.raises(RegardError) as error:
            look(load(run), "a b", **options)
        assert str(error.value) == line
    with pytest.raises(RegardError) as error:
        look(load(gpt_run), "the cat sees the dog")
    assert str(error.value) == "look: text must have at most 16 tokens, got 21"
