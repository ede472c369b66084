from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
import torch

from regard.api import explain
from regard.attention.watch import watch
from regard.data.labeled import LabeledText
from regard.errors import RegardError
from regard.models import AttentiveClassifier, AttentiveTagger, build
from regard.sentences import EncodedWord, TagBatch, stack_texts
from regard.tasks import to_recipe
from regard.tasks.label.predictor import LabelPredictor
from regard.tasks.tag.predictor import TagPredictor
from regard.text.word_vocabulary import learn_word_vocabulary

WORDS = ["who", "saw", "the", "red", "cat", "in", "old", "York"]
TEXT = "who saw the red cat"
SMALL = {"embedding": 6, "hidden": 4, "attention_heads": 2, "char_encoder": "none"}


def labels(**settings: Any) -> LabelPredictor:
    """A classifier as chance made it."""
    torch.manual_seed(3)
    vocabulary = learn_word_vocabulary([WORDS], ("A", "B", "C"))
    model = build("attentive-classifier", **vocabulary.sizes(), **SMALL | settings)
    assert isinstance(model, AttentiveClassifier)
    torch.nn.init.normal_(model.output.weight)
    return LabelPredictor(model, vocabulary, to_recipe({"model": {"name": "attentive-classifier"}}, "a test"), {})


def tags(**settings: Any) -> TagPredictor:
    """A tagger as chance made it."""
    torch.manual_seed(5)
    vocabulary = learn_word_vocabulary([WORDS], ("O", "B-X", "I-X"))
    model = build("attentive-tagger", **vocabulary.sizes(), **{**SMALL, "scheme": "BIO"} | settings)
    assert isinstance(model, AttentiveTagger)
    torch.nn.init.normal_(model.output.weight)
    return TagPredictor(model, vocabulary, to_recipe({"model": {"name": "attentive-tagger"}}, "a test"), {})


def without(words: list[str], index: int) -> list[str]:
    return words[:index] + words[index + 1 :]


def slope(value, module: torch.nn.Module, token_id: int, step: float = 2e-2) -> float:
    """How fast a value changes as the vectors of one token grow, by two values nearby."""

    def at(scale: float) -> float:
        def grown(_, inputs, given):
            return torch.where((inputs[0] == token_id)[..., None], scale * given, given)

        hook = module.register_forward_hook(grown)
        try:
            return value()
        finally:
            hook.remove()

    return (at(1 + step) - at(1 - step)) / (2 * step)


def test_gradient_x_input_of_a_linear_model():
    predictor = labels(encoder="embedding", pooling="mean")
    explanation = explain(predictor, TEXT, label="B")
    model = predictor.model
    ids = [word.word_id for word in predictor.vocabulary.encode(TEXT.split())]
    vectors, matrix, bias = (
        tensor.detach().numpy()
        for tensor in (model.reader.embedding.words.weight[ids], model.output.weight, model.output.bias)
    )
    logits = matrix @ vectors.mean(0) + bias
    probable = np.exp(logits) / np.exp(logits).sum()
    gradient = (matrix[1] - probable @ matrix) / len(ids)  # of log p(B), the same at every word
    np.testing.assert_allclose(explanation.values["gradient x input"], vectors @ gradient, rtol=1e-4, atol=1e-6)
    assert explanation.log_probability == pytest.approx(log(probable[1]), abs=1e-5)
    assert explanation.description == f"label B, probability {probable[1]:.3g}"
    assert list(explanation.values) == ["gradient x input", "leave one out"]
    assert explanation.notes == ("attention is not shown: attentive-classifier pools words by mean",)


@pytest.mark.parametrize("multi_label", [False, True])
def test_leave_one_out_is_what_the_shorter_text_gets(multi_label):
    predictor = labels(multi_label=multi_label, char_encoder="max")
    explanation = explain(predictor, TEXT)
    ranked = predictor.predict(TEXT).ranked[0]
    assert explanation.description == f"label {ranked.label}, probability {ranked.probability:.3g}"
    shorter = [" ".join(without(TEXT.split(), index)) for index in range(5)]
    probable = predictor.probabilities([LabeledText(text, ()) for text in (TEXT, *shorter)])
    whole, *rest = probable[:, predictor.labels.index(ranked.label)].log().tolist()
    assert explanation.values["leave one out"] == pytest.approx([whole - each for each in rest], abs=2e-5)


def test_attention_is_that_of_the_pooling():
    predictor = labels(queries=2, heads=2)
    explanation = explain(predictor, TEXT)
    assert explanation.values["attention"] == pytest.approx(
        predictor.predict(TEXT, return_weights=True).weights, abs=1e-6
    )
    assert sum(explanation.values["attention"]) == pytest.approx(1)
    assert (explanation.words, explanation.notes) == (tuple(TEXT.split()), ())


@pytest.mark.parametrize("pooling", ["attention", "mean", "max"])
def test_rollout_goes_from_the_pooling_through_the_layers(pooling):
    predictor = labels(encoder="attention", attention_layers=2, pooling=pooling)
    explanation = explain(predictor, TEXT)
    with torch.no_grad(), watch(predictor.model, keep="dense") as seen:
        predictor.model(predictor.build_batch([LabeledText(TEXT, ())]))
    one, two = ((seen[f"reader.stack.layers.{n}.attention"][0][0].mean(0).numpy() + np.eye(5)) / 2 for n in range(2))
    pooled = {"mean": np.full(5, 0.2), "attention": np.array(explanation.values.get("attention", ())), "max": None}[
        pooling
    ]
    if pooled is None:
        assert "attention rollout" not in explanation.values
    else:
        np.testing.assert_allclose(explanation.values["attention rollout"], pooled @ two @ one, rtol=1e-4)


def test_only_the_text_itself_is_explained_though_others_are_the_same():
    predictor = labels(context_size=2, text_pairs=True)
    same = explain(predictor, TEXT, second=TEXT, context=["in old York", TEXT])
    label = predictor.labels.index(same.description.split()[1].rstrip(","))
    example = LabeledText(f" {TEXT}", (), TEXT, ("in old York", TEXT))  # so that the text is read by itself

    def at(index: int, scale: float) -> float:
        def grown(_, sentences, given):
            batch = predictor.build_batch([example])
            if len(given) == 3:  # the texts of five words: the first is the one in question
                given[int(batch.texts[0]) - sum(map(len, batch.groups)) + len(given), index] *= scale
            return given

        with predictor.model.input_embedding.register_forward_hook(grown):
            return float(predictor.model(predictor.build_batch([example])).log_softmax(-1)[0, label])

    with torch.no_grad():
        slopes = [(at(index, 1.02) - at(index, 0.98)) / 0.04 for index in range(5)]
    assert same.values["gradient x input"] == pytest.approx(slopes, abs=2e-3)
    assert len(same.values["attention"]) == 5


@pytest.mark.parametrize("crf", [False, True])
def test_the_gradient_of_a_tag(crf):
    predictor = tags(crf=crf)
    explanation = explain(predictor, TEXT, word=3, label="B-X")
    ids = [word.word_id for word in predictor.vocabulary.encode(TEXT.split())]
    batch = TagBatch(stack_texts([predictor.vocabulary.encode(TEXT.split())]))

    def value():
        with torch.no_grad():
            return float(predictor.model.probabilities(predictor.model(batch), batch)[0, 3, 1].log())

    slopes = [slope(value, predictor.model.reader.embedding.words, word_id) for word_id in ids]
    assert explanation.values["gradient x input"] == pytest.approx(slopes, abs=2e-3)
    assert explanation.log_probability == pytest.approx(value(), abs=1e-6)
    assert explanation.description == f'tag B-X of word 3, "red", probability {np.exp(value()):.3g}'


def test_the_attention_of_a_tagged_word():
    predictor = tags(encoder="both", attention_layers=2)
    explanation = explain(predictor, TEXT, word=2)
    weights = predictor.predict(TEXT, return_weights=True).weights.numpy()
    np.testing.assert_allclose(explanation.values["attention"], weights.mean((0, 1))[2], rtol=1e-5)
    one, two = (weights.mean(1) + np.eye(5)) / 2
    np.testing.assert_allclose(explanation.values["attention rollout"], (two @ one)[2], rtol=1e-5)


def test_leaving_out_words_of_a_tagged_text():
    predictor = tags(encoder="rnn", char_encoder="max")
    explanation = explain(predictor, TEXT, word=3)
    words, tag = TEXT.split(), predictor.predict(TEXT).tags[3]
    tag_id = predictor.tags.index(tag)

    def value(text: tuple[EncodedWord, ...], index: int) -> float:
        batch = TagBatch(stack_texts([text]))
        return float(predictor.model.probabilities(predictor.model(batch), batch)[0, index, tag_id].log())

    with torch.no_grad():
        whole = predictor.vocabulary.encode(words)
        rest = [value(predictor.vocabulary.encode(without(words, index)), 3 - (index < 3)) for index in range(5)]
        rest[3] = value((*whole[:3], EncodedWord(1, (1,)), whole[4]), 3)  # the word itself is made unknown, 1 is <unk>
        falls = [value(whole, 3) - each for each in rest]
    assert explanation.values["leave one out"] == pytest.approx(falls, abs=2e-5)
    assert explanation.notes == ("attention is not shown: attentive-tagger has no self-attention; encoder both has",)


def test_what_a_scheme_forbids_is_as_good_as_impossible():
    predictor = tags()
    explanation = explain(predictor, ["old", "York"], word=1, label="I-X")
    fall = explanation.values["leave one out"][0]  # York alone cannot be I-X
    assert fall == pytest.approx(explanation.log_probability - log(torch.finfo(torch.float32).tiny), abs=1e-4)


def test_the_first_word_with_a_tag_is_explained():
    predictor = tags(encoder="embedding", crf=False)
    with torch.no_grad():
        word_id = predictor.vocabulary.encode(["red"])[0].word_id
        predictor.model.reader.embedding.words.weight.zero_()
        predictor.model.reader.embedding.words.weight[word_id] = predictor.model.output.weight[1]
        predictor.model.output.bias.copy_(torch.tensor([0.1, 0.0, -9.0]))
    assert explain(predictor, TEXT).description.startswith('tag B-X of word 3, "red", probability ')
    assert explain(predictor, "who saw").description.startswith('tag O of word 0, "who", probability ')


def test_one_word_is_explained_too():
    assert len(explain(labels(), "who").values["leave one out"]) == 1
    assert explain(tags(), "who").values["attention"] == pytest.approx((1,))


def test_a_long_text_is_read_in_several_batches(monkeypatch):
    predictor = labels()
    whole = explain(predictor, TEXT)
    monkeypatch.setattr("regard.attribution.methods.TOKENS", 10)
    assert explain(predictor, TEXT).values["leave one out"] == pytest.approx(whole.values["leave one out"], abs=2e-5)


def test_only_the_words_that_are_read_are_explained():
    predictor = labels()
    predictor.recipe = replace(predictor.recipe, data=replace(predictor.recipe.data, max_tokens=3))
    explanation = explain(predictor, TEXT)
    assert explanation.words == ("who", "saw", "the")
    value = predictor.probabilities([LabeledText("who saw the", ()), LabeledText("saw the", ())]).log()
    best = int(value[0].argmax())
    assert explanation.values["leave one out"][0] == pytest.approx(float(value[0, best] - value[1, best]), abs=2e-5)


def test_a_model_stays_as_it_is():
    predictor = labels()
    before = {name: tensor.clone() for name, tensor in predictor.model.state_dict().items()}
    explain(predictor, TEXT)
    assert "embed" not in vars(predictor.model.reader)
    assert all(parameter.grad is None for parameter in predictor.model.parameters())
    torch.testing.assert_close(predictor.model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("make", "text", "options", "message"),
    [
        (labels, TEXT, {"label": "D"}, 'explain: unknown label "D"; choose from A, B, C'),
        (tags, TEXT, {"label": "B-Y"}, 'explain: unknown label "B-Y"; did you mean "B-X"?'),
        (labels, TEXT, {"word": 1}, "explain: word is not an option of attentive-classifier"),
        (tags, TEXT, {"target": "x"}, "explain: target is not an option of attentive-tagger"),
        (tags, TEXT, {"word": 5}, "explain: word must be from 0 to 4, got 5"),
        (tags, TEXT, {"word": -1}, "explain: word must be at least 0, got -1"),
        (tags, " ", {}, "explain: the text has no words"),
        (labels, " ", {}, "explain: the text has no words"),
        (labels, ["who"], {}, "explain: expected a string, got list"),
    ],
)
def test_what_cannot_be_explained(make, text, options, message):
    with pytest.raises(RegardError) as error:
        explain(make(), text, **options)
    assert str(error.value) == message


def test_a_model_without_finite_numbers():
    predictor = labels()
    torch.nn.init.constant_(predictor.model.output.bias, torch.nan)
    with pytest.raises(RegardError, match=r"^explain: probabilities are not finite; "):
        explain(predictor, TEXT)
