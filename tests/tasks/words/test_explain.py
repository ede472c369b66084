from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
import torch

from regard.api import explain
from regard.attention.watch import watch
from regard.data.labelled import Labelled
from regard.errors import RegardError
from regard.models import AttentiveClassifier, AttentiveTagger, build
from regard.sentences import TagBatch, Word, side_by_side
from regard.tasks import to_recipe
from regard.tasks.label.predictor import LabelPredictor
from regard.tasks.tag.predictor import TagPredictor
from regard.text.lexicon import learn_lexicon

WORDS = ["who", "saw", "the", "red", "cat", "in", "old", "York"]
TEXT = "who saw the red cat"
SMALL = {"embedding": 6, "hidden": 4, "attention_heads": 2, "spelling": "none"}


def labels(**settings: Any) -> LabelPredictor:
    """A classifier as chance made it."""
    torch.manual_seed(3)
    lexicon = learn_lexicon([WORDS], ("A", "B", "C"))
    model = build("attentive-classifier", **lexicon.sizes(), **SMALL | settings)
    assert isinstance(model, AttentiveClassifier)
    torch.nn.init.normal_(model.output.weight)
    return LabelPredictor(model, lexicon, to_recipe({"model": {"name": "attentive-classifier"}}, "a test"), {})


def tags(**settings: Any) -> TagPredictor:
    """A tagger as chance made it."""
    torch.manual_seed(5)
    lexicon = learn_lexicon([WORDS], ("O", "B-X", "I-X"))
    model = build("attentive-tagger", **lexicon.sizes(), **{**SMALL, "scheme": "BIO"} | settings)
    assert isinstance(model, AttentiveTagger)
    torch.nn.init.normal_(model.output.weight)
    return TagPredictor(model, lexicon, to_recipe({"model": {"name": "attentive-tagger"}}, "a test"), {})


def without(words: list[str], place: int) -> list[str]:
    return words[:place] + words[place + 1 :]


def slope(value, module: torch.nn.Module, number: int, step: float = 2e-2) -> float:
    """How fast a value changes as the vectors of one token grow, by two values nearby."""

    def at(scale: float) -> float:
        def grown(_, asked, given):
            return torch.where((asked[0] == number)[..., None], scale * given, given)

        hook = module.register_forward_hook(grown)
        try:
            return value()
        finally:
            hook.remove()

    return (at(1 + step) - at(1 - step)) / (2 * step)


def test_gradient_x_input_of_a_linear_model():
    predictor = labels(encoder="embedding", pooling="mean")
    found = explain(predictor, TEXT, label="B")
    model = predictor.model
    numbers = [word.number for word in predictor.lexicon.encode(TEXT.split())]
    vectors, matrix, bias = (
        tensor.detach().numpy()
        for tensor in (model.reader.embedding.words.weight[numbers], model.output.weight, model.output.bias)
    )
    logits = matrix @ vectors.mean(0) + bias
    probable = np.exp(logits) / np.exp(logits).sum()
    gradient = (matrix[1] - probable @ matrix) / len(numbers)  # of log p(B), the same at every word
    np.testing.assert_allclose(found.values["gradient x input"], vectors @ gradient, rtol=1e-4, atol=1e-6)
    assert found.log_probability == pytest.approx(log(probable[1]), abs=1e-5)
    assert found.what == f"label B, probability {probable[1]:.3g}"
    assert list(found.values) == ["gradient x input", "leave one out"]
    assert found.notes == ("no attention is shown: attentive-classifier pools words by mean",)


@pytest.mark.parametrize("several", [False, True])
def test_leave_one_out_is_what_the_shorter_text_gets(several):
    predictor = labels(several=several, spelling="max")
    found = explain(predictor, TEXT)
    ranked = predictor.predict(TEXT).ranked[0]
    assert found.what == f"label {ranked.label}, probability {ranked.probability:.3g}"
    shorter = [" ".join(without(TEXT.split(), place)) for place in range(5)]
    probable = predictor.probabilities([Labelled(text, ()) for text in (TEXT, *shorter)])
    whole, *rest = probable[:, predictor.labels.index(ranked.label)].log().tolist()
    assert found.values["leave one out"] == pytest.approx([whole - each for each in rest], abs=2e-5)


def test_attention_is_that_of_the_pooling():
    predictor = labels(queries=2, heads=2)
    found = explain(predictor, TEXT)
    assert found.values["attention"] == pytest.approx(predictor.predict(TEXT, return_weights=True).weights, abs=1e-6)
    assert sum(found.values["attention"]) == pytest.approx(1)
    assert (found.words, found.notes) == (tuple(TEXT.split()), ())


@pytest.mark.parametrize("pooling", ["attention", "mean", "max"])
def test_rollout_goes_from_the_pooling_through_the_layers(pooling):
    predictor = labels(encoder="attention", attention_layers=2, pooling=pooling)
    found = explain(predictor, TEXT)
    with torch.no_grad(), watch(predictor.model, keep="dense") as seen:
        predictor.model(predictor.batch([Labelled(TEXT, ())]))
    one, two = ((seen[f"reader.stack.layers.{n}.attention"][0][0].mean(0).numpy() + np.eye(5)) / 2 for n in range(2))
    pooled = {"mean": np.full(5, 0.2), "attention": np.array(found.values.get("attention", ())), "max": None}[pooling]
    if pooled is None:
        assert "attention rollout" not in found.values
    else:
        np.testing.assert_allclose(found.values["attention rollout"], pooled @ two @ one, rtol=1e-4)


def test_only_the_text_itself_is_explained_though_others_are_the_same():
    predictor = labels(before=2, pairs=True)
    same = explain(predictor, TEXT, second=TEXT, context=["in old York", TEXT])
    label = predictor.labels.index(same.what.split()[1].rstrip(","))
    example = Labelled(f" {TEXT}", (), TEXT, ("in old York", TEXT))  # so that the text is read by itself

    def at(place: int, scale: float) -> float:
        def grown(_, sentences, given):
            batch = predictor.batch([example])
            if len(given) == 3:  # the texts of five words: the first is the one in question
                given[int(batch.texts[0]) - sum(map(len, batch.groups)) + len(given), place] *= scale
            return given

        with predictor.model.input_embedding.register_forward_hook(grown):
            return float(predictor.model(predictor.batch([example])).log_softmax(-1)[0, label])

    with torch.no_grad():
        slopes = [(at(place, 1.02) - at(place, 0.98)) / 0.04 for place in range(5)]
    assert same.values["gradient x input"] == pytest.approx(slopes, abs=2e-3)
    assert len(same.values["attention"]) == 5


@pytest.mark.parametrize("crf", [False, True])
def test_the_gradient_of_a_tag(crf):
    predictor = tags(crf=crf)
    found = explain(predictor, TEXT, word=3, label="B-X")
    own = [word.number for word in predictor.lexicon.encode(TEXT.split())]
    batch = TagBatch(side_by_side([predictor.lexicon.encode(TEXT.split())]))

    def value():
        with torch.no_grad():
            return float(predictor.model.probabilities(predictor.model(batch), batch)[0, 3, 1].log())

    slopes = [slope(value, predictor.model.reader.embedding.words, number) for number in own]
    assert found.values["gradient x input"] == pytest.approx(slopes, abs=2e-3)
    assert found.log_probability == pytest.approx(value(), abs=1e-6)
    assert found.what == f'tag B-X of word 3, "red", probability {np.exp(value()):.3g}'


def test_the_attention_of_a_tagged_word():
    predictor = tags(encoder="both", attention_layers=2)
    found = explain(predictor, TEXT, word=2)
    weights = predictor.predict(TEXT, return_weights=True).weights.numpy()
    np.testing.assert_allclose(found.values["attention"], weights.mean((0, 1))[2], rtol=1e-5)
    one, two = (weights.mean(1) + np.eye(5)) / 2
    np.testing.assert_allclose(found.values["attention rollout"], (two @ one)[2], rtol=1e-5)


def test_leaving_out_words_of_a_tagged_text():
    predictor = tags(encoder="rnn", spelling="max")
    found = explain(predictor, TEXT, word=3)
    words, tag = TEXT.split(), predictor.predict(TEXT).tags[3]
    number = predictor.tags.index(tag)

    def value(text: tuple[Word, ...], place: int) -> float:
        batch = TagBatch(side_by_side([text]))
        return float(predictor.model.probabilities(predictor.model(batch), batch)[0, place, number].log())

    with torch.no_grad():
        whole = predictor.lexicon.encode(words)
        rest = [value(predictor.lexicon.encode(without(words, place)), 3 - (place < 3)) for place in range(5)]
        rest[3] = value((*whole[:3], Word(1, (1,)), whole[4]), 3)  # the word itself is made unknown, 1 is <unk>
        falls = [value(whole, 3) - each for each in rest]
    assert found.values["leave one out"] == pytest.approx(falls, abs=2e-5)
    assert found.notes == ("no attention is shown: attentive-tagger has no self-attention; encoder both has",)


def test_what_a_scheme_forbids_is_as_good_as_impossible():
    predictor = tags()
    found = explain(predictor, ["old", "York"], word=1, label="I-X")
    fall = found.values["leave one out"][0]  # York alone cannot be I-X
    assert fall == pytest.approx(found.log_probability - log(torch.finfo(torch.float32).tiny), abs=1e-4)


def test_the_first_word_with_a_tag_is_explained():
    predictor = tags(encoder="embedding", crf=False)
    with torch.no_grad():
        number = predictor.lexicon.encode(["red"])[0].number
        predictor.model.reader.embedding.words.weight.zero_()
        predictor.model.reader.embedding.words.weight[number] = predictor.model.output.weight[1]
        predictor.model.output.bias.copy_(torch.tensor([0.1, 0.0, -9.0]))
    assert explain(predictor, TEXT).what.startswith('tag B-X of word 3, "red", probability ')
    assert explain(predictor, "who saw").what.startswith('tag O of word 0, "who", probability ')


def test_one_word_is_explained_too():
    assert len(explain(labels(), "who").values["leave one out"]) == 1
    assert explain(tags(), "who").values["attention"] == (1,)


def test_a_long_text_is_read_in_several_batches(monkeypatch):
    predictor = labels()
    whole = explain(predictor, TEXT)
    monkeypatch.setattr("regard.explaining.methods.TOKENS", 10)
    assert explain(predictor, TEXT).values["leave one out"] == pytest.approx(whole.values["leave one out"], abs=2e-5)


def test_only_the_words_that_are_read_are_explained():
    predictor = labels()
    predictor.recipe = replace(predictor.recipe, data=replace(predictor.recipe.data, most_tokens=3))
    found = explain(predictor, TEXT)
    assert found.words == ("who", "saw", "the")
    value = predictor.probabilities([Labelled("who saw the", ()), Labelled("saw the", ())]).log()
    best = int(value[0].argmax())
    assert found.values["leave one out"][0] == pytest.approx(float(value[0, best] - value[1, best]), abs=2e-5)


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
        (labels, TEXT, {"label": "D"}, 'explain: label: there is no "D"; there are: A, B, C'),
        (tags, TEXT, {"label": "B-Y"}, 'explain: label: there is no "B-Y"; did you mean "B-X"?'),
        (labels, TEXT, {"word": 1}, "explain: word is for other models than attentive-classifier; leave it out"),
        (tags, TEXT, {"target": "x"}, "explain: target is for other models than attentive-tagger; leave it out"),
        (tags, TEXT, {"word": 5}, "explain: there is no word 5; there are 5 words, counted from 0"),
        (tags, TEXT, {"word": -1}, "explain: there is no word -1; there are 5 words, counted from 0"),
        (tags, " ", {}, "explain: the text has no words"),
        (labels, " ", {}, "explain: the text has no words"),
        (labels, ["who"], {}, "explain: found list; a text is needed"),
    ],
)
def test_what_cannot_be_explained(make, text, options, message):
    with pytest.raises(RegardError) as error:
        explain(make(), text, **options)
    assert str(error.value) == message


def test_a_model_without_finite_numbers():
    predictor = labels()
    torch.nn.init.constant_(predictor.model.output.bias, torch.nan)
    with pytest.raises(RegardError, match=r"^explain: the model gave no finite probabilities; "):
        explain(predictor, TEXT)
