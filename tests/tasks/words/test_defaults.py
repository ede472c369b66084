"""What is chosen for labels and tags, where nothing is asked for."""

from typing import Any

import pytest

from regard.errors import RegardError
from regard.models import build
from regard.schemes import Scheme
from regard.tasks.label.defaults import choose_label_settings
from regard.tasks.label.settings import LabelData, LabelRecipe
from regard.tasks.settings import TextSettings
from regard.tasks.tag.defaults import choose_tag_settings
from regard.tasks.tag.settings import TagRecipe
from regard.tasks.words.settings import WordTraining

ASKED: dict[str, Any] = {
    "steps": 7,
    "tokens": 300,
    "rate": 0.5,
    "warmup": 0,
    "validate_every": 3,
    "smoothing": 0.25,
    "metric": "loss",
    "precision": "bfloat16",
}


def recipe(
    model: dict[str, Any] | None = None, *, context: int = 0, kind: Any = "auto", **training: Any
) -> LabelRecipe:
    return LabelRecipe(
        data=LabelData(context=context),
        text=TextSettings(kind=kind),
        model=model or {},
        training=WordTraining(**training),
    )


def tags_of(scheme: Scheme, words: int = 5000, **training: Any) -> TagRecipe:
    return choose_tag_settings(TagRecipe(model={"crf": False}, training=WordTraining(**training)), words, scheme)


def labels(found: LabelRecipe, words: int = 50_000, *, several: bool = False, pairs: bool = False) -> LabelRecipe:
    return choose_label_settings(found, words, several=several, pairs=pairs)


@pytest.mark.parametrize("words", [10, 10_000, 10_000_000])
def test_nothing_is_left_open_and_both_models_can_be_built(words):
    for found in (labels(recipe(), words), tags_of("BIO", words)):
        settings = vars(found.training)
        assert all(settings[name] is not None for name in ASKED)
        assert "auto" not in settings.values()
        assert found.training.validate_every <= found.training.steps
        assert found.training.warmup < found.training.steps
        build(**found.model, words=9, pieces=9, labels=("O", "B-X"))


def test_more_words_are_read_in_larger_batches_and_more_often():
    tokens, steps = zip(
        *((found.tokens, found.steps) for found in (labels(recipe(), words).training for words in (10, 10**5, 10**7))),
        strict=True,
    )
    assert list(tokens) == sorted(tokens)
    assert list(steps) == sorted(steps)
    assert tokens[0] < tokens[-1]


def test_what_is_asked_for_stays():
    for found in (labels(recipe(**ASKED)), tags_of("plain", **ASKED)):
        assert {name: getattr(found.training, name) for name in ASKED} == ASKED
    model = {"hidden": 6, "encoder": "attention", "pooling": "max"}
    found = labels(recipe(model)).model
    assert {name: found[name] for name in model} == model
    assert found["name"] == "attentive-classifier"


def test_the_data_say_what_is_labelled():
    found = labels(recipe(context=3), several=True, pairs=True).model
    assert {name: found[name] for name in ("several", "pairs", "before")} == {
        "several": True,
        "pairs": True,
        "before": 3,
    }
    tags = tags_of("BIOES").model
    assert (tags["name"], tags["scheme"]) == ("attentive-tagger", "BIOES")


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"several": True}, "model.several is true, but by the data it is false; data of the same form are needed"),
        ({"pairs": True}, "model.pairs is true, but by the data it is false; data of the same form are needed"),
        ({"before": 1}, "model.before is 1, but by the data it is 2; give the same --context"),
    ],
)
def test_what_the_data_say_is_not_said_otherwise(asked, line):
    with pytest.raises(RegardError) as caught:
        labels(recipe(asked, context=2))
    assert str(caught.value) == line
    labels(recipe({"several": False, "pairs": False, "before": 2}, context=2))


def test_what_is_best_by():
    assert labels(recipe()).training.metric == "accuracy"
    assert labels(recipe(metric="macro_f1")).training.metric == "macro_f1"
    assert labels(recipe(), several=True).training.metric == "f1"
    assert tags_of("plain").training.metric == "accuracy"
    assert tags_of("IO").training.metric == "f1"


@pytest.mark.parametrize(
    ("choose", "metric", "line"),
    [
        (lambda metric: labels(recipe(metric=metric)), "f1",
         "training.metric: f1 is not found here; there are accuracy, macro_f1, loss"),
        (lambda metric: labels(recipe(metric=metric), several=True), "accuracy",
         "training.metric: accuracy is not found here; there are f1, loss"),
        (lambda metric: tags_of("plain", metric=metric), "f1",
         "training.metric: f1 is not found here; there are accuracy, loss"),
        (lambda metric: tags_of("BIO", metric=metric), "bleu",
         "training.metric: bleu is not found here; there are f1, accuracy, loss"),
    ],
)  # fmt: skip
def test_what_cannot_be_found_is_not_best_by(choose, metric, line):
    with pytest.raises(RegardError) as caught:
        choose(metric)
    assert str(caught.value) == line


def test_words_that_are_not_spelt_have_no_letters_to_read():
    assert labels(recipe(kind="words")).model["spelling"] == "none"
    assert labels(recipe({"spelling": "max"}, kind="words")).model["spelling"] == "max"
    assert "spelling" not in labels(recipe()).model
