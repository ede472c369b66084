"""Default settings of classifiers and taggers."""

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

CHOSEN: dict[str, Any] = {
    "steps": 7,
    "batch_tokens": 300,
    "learning_rate": 0.5,
    "warmup_steps": 0,
    "validate_every": 3,
    "label_smoothing": 0.25,
    "metric": "loss",
    "precision": "bfloat16",
}


def recipe(
    model: dict[str, Any] | None = None, *, context: int = 0, kind: Any = "auto", **training: Any
) -> LabelRecipe:
    return LabelRecipe(
        data=LabelData(context=context),
        text=TextSettings(tokenizer=kind),
        model=model or {},
        training=WordTraining(**training),
    )


def tags_of(scheme: Scheme, words: int = 5000, **training: Any) -> TagRecipe:
    return choose_tag_settings(TagRecipe(model={"crf": False}, training=WordTraining(**training)), words, scheme)


def labels(recipe: LabelRecipe, words: int = 50_000, *, multi_label: bool = False, pairs: bool = False) -> LabelRecipe:
    return choose_label_settings(recipe, words, multi_label=multi_label, pairs=pairs)


@pytest.mark.parametrize("words", [10, 10_000, 10_000_000])
def test_nothing_is_left_open_and_both_models_can_be_built(words):
    for chosen in (labels(recipe(), words), tags_of("BIO", words)):
        settings = vars(chosen.training)
        assert all(settings[name] is not None for name in CHOSEN)
        assert "auto" not in settings.values()
        assert chosen.training.validate_every <= chosen.training.steps
        assert chosen.training.warmup_steps < chosen.training.steps
        build(**chosen.model, words=9, pieces=9, labels=("O", "B-X"))


def test_more_words_are_read_in_larger_batches_and_more_often():
    tokens, steps = zip(
        *(
            (chosen.batch_tokens, chosen.steps)
            for chosen in (labels(recipe(), words).training for words in (10, 10**5, 10**7))
        ),
        strict=True,
    )
    assert list(tokens) == sorted(tokens)
    assert list(steps) == sorted(steps)
    assert tokens[0] < tokens[-1]


def test_what_is_asked_for_stays():
    for chosen in (labels(recipe(**CHOSEN)), tags_of("plain", **CHOSEN)):
        assert {name: getattr(chosen.training, name) for name in CHOSEN} == CHOSEN
    model = {"hidden": 6, "encoder": "attention", "pooling": "max"}
    chosen = labels(recipe(model)).model
    assert {name: chosen[name] for name in model} == model
    assert chosen["name"] == "attentive-classifier"


def test_the_data_say_what_is_labeled():
    chosen = labels(recipe(context=3), multi_label=True, pairs=True).model
    assert {name: chosen[name] for name in ("multi_label", "text_pairs", "context_size")} == {
        "multi_label": True,
        "text_pairs": True,
        "context_size": 3,
    }
    tags = tags_of("BIOES").model
    assert (tags["name"], tags["scheme"]) == ("attentive-tagger", "BIOES")


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"multi_label": True}, "model.multi_label is true, but for these data it must be false"),
        ({"text_pairs": True}, "model.text_pairs is true, but for these data it must be false"),
        ({"context_size": 1}, "model.context_size is 1, but for these data it must be 2; pass the same --context"),
    ],
)
def test_what_the_data_say_is_not_said_otherwise(model, line):
    with pytest.raises(RegardError) as caught:
        labels(recipe(model, context=2))
    assert str(caught.value) == line
    labels(recipe({"multi_label": False, "text_pairs": False, "context_size": 2}, context=2))


def test_what_is_best_by():
    assert labels(recipe()).training.metric == "accuracy"
    assert labels(recipe(metric="macro_f1")).training.metric == "macro_f1"
    assert labels(recipe(), multi_label=True).training.metric == "f1"
    assert tags_of("plain").training.metric == "accuracy"
    assert tags_of("IO").training.metric == "f1"


@pytest.mark.parametrize(
    ("choose", "metric", "line"),
    [
        (lambda metric: labels(recipe(metric=metric)), "f1",
         "training.metric f1 is not available for this task; choose from accuracy, macro_f1, loss"),
        (lambda metric: labels(recipe(metric=metric), multi_label=True), "accuracy",
         "training.metric accuracy is not available for this task; choose from f1, loss"),
        (lambda metric: tags_of("plain", metric=metric), "f1",
         "training.metric f1 is not available for this task; choose from accuracy, loss"),
        (lambda metric: tags_of("BIO", metric=metric), "bleu",
         "training.metric bleu is not available for this task; choose from f1, accuracy, loss"),
    ],
)  # fmt: skip
def test_what_cannot_be_found_is_not_best_by(choose, metric, line):
    with pytest.raises(RegardError) as caught:
        choose(metric)
    assert str(caught.value) == line


def test_words_that_are_not_spelt_have_no_letters_to_read():
    assert labels(recipe(kind="words")).model["char_encoder"] == "none"
    assert labels(recipe({"char_encoder": "max"}, kind="words")).model["char_encoder"] == "max"
    assert "char_encoder" not in labels(recipe()).model
