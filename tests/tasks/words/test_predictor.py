"""Predictors of trained classifiers and taggers."""

from dataclasses import replace
from typing import Any

import jaxtyping
import pytest
import torch

from regard.data.labeled import LabeledText, read_labeled
from regard.data.tagged import read_tagged
from regard.errors import RegardError
from regard.models import AttentiveClassifier
from regard.schemes import Span, repair_tags
from regard.tasks.label.options import RankOptions
from regard.tasks.label.predictor import Labeling, LabelPredictor
from regard.tasks.loading import load
from regard.tasks.predictor import Request
from regard.tasks.tag.predictor import TagPredictor, to_words
from tests.tiny_labels import LABELS

SENTENCE = "mr ann junior one in bob two kim"
TAGS = ("O", "B-PER", "I-PER", "O", "O", "B-LOC", "O", "O")


@pytest.fixture(scope="module")
def one(label_runs) -> LabelPredictor:
    return load(label_runs["one"])


@pytest.fixture(scope="module")
def several(label_runs) -> LabelPredictor:
    return load(label_runs["several"])


@pytest.fixture(scope="module")
def dialogues(label_runs) -> LabelPredictor:
    return load(label_runs["context"])


@pytest.fixture(scope="module")
def pairs(label_runs) -> LabelPredictor:
    return load(label_runs["pairs"])


@pytest.fixture(scope="module")
def crf(label_runs) -> TagPredictor:
    return load(label_runs["crf"])


# What was learned


def answers(model: LabelPredictor, examples: list[LabeledText], **options: Any) -> list[Labeling]:
    return model.answer([Request(example, RankOptions()) for example in examples], **options)


def accuracy(model: LabelPredictor, examples: list[LabeledText]) -> float:
    answered = answers(model, examples)
    return sum(set(a.labels) == set(b.labels) for a, b in zip(answered, examples, strict=True)) / len(examples)


def test_one_label_is_learned_and_the_word_that_decides_is_looked_at(one, label_runs):
    examples = list(read_labeled(label_runs["one"].parent / "one.tsv"))
    assert accuracy(one, examples) >= 0.99
    answered = answers(one, examples, return_weights=True)
    for labeling in answered:
        assert labeling.weights is not None
        assert sum(labeling.weights) == pytest.approx(1, abs=1e-5)
    hits = sum(
        labeling.words[max(range(len(labeling.words)), key=labeling.weights.__getitem__)] in LABELS
        for labeling in answered
        if labeling.weights is not None
    )
    assert hits / len(answered) >= 0.95


def test_several_labels_are_learned(several, label_runs):
    assert several.model.config.multi_label
    assert accuracy(several, list(read_labeled(label_runs["several"].parent / "several.tsv"))) >= 0.99


def test_the_utterance_before_is_learned_and_looked_at(dialogues, label_runs):
    examples = list(read_labeled(label_runs["context"].parent / "context.tsv", context=2))
    assert accuracy(dialogues, examples) >= 0.99
    answered = answers(dialogues, examples, return_weights=True)
    weights = [each.context_weights for each in answered]
    assert [len(each or ()) for each in weights[:5]] == [0, 1, 2, 2, 2]
    assert weights[1] == (pytest.approx(1),)
    long = [(each, example) for each, example in zip(weights, examples, strict=True) if each and len(each) == 2]
    assert all(sum(each) == pytest.approx(1, abs=1e-5) for each, _ in long)
    differing = [each for each, example in long if len({"good" in text for text in example.context}) == 2]
    assert (
        sum(last for _, last in differing) / len(differing) > 0.7
    )  # the label is that of the last one, where the two differ


def test_pairs_are_learned(pairs, label_runs):
    examples = list(read_labeled(label_runs["pairs"].parent / "pairs.tsv", columns=("1", "3", "2")))
    assert accuracy(pairs, examples) >= 0.98
    same, other = pairs.predict(["one good", "good two"], second=["great", "awful"])
    assert (same.labels, other.labels) == (("same",), ("other",))


@pytest.mark.parametrize("name", ["crf", "no-crf"])
def test_tags_are_learned_from_the_word_before(name, label_runs):
    model = load(label_runs[name])
    sentences = list(read_tagged(label_runs[name].parent / "names.bio"))
    answered = model.predict([sentence.words for sentence in sentences])
    assert sum(a.tags == b.tags for a, b in zip(answered, sentences, strict=True)) / len(sentences) >= 0.98
    tagging = model.predict(SENTENCE)
    assert tagging.tags == TAGS
    assert tagging.spans == (Span("PER", 1, 2), Span("LOC", 5, 5))
    assert min(tagging.probabilities) > 0.5
    assert max(tagging.probabilities) <= 1 + 1e-6


def test_tags_that_mark_no_spans(label_runs):
    model = load(label_runs["plain"])
    tagging = model.predict("one ann two")
    assert (tagging.tags, tagging.spans) == (("WORD", "NAME", "WORD"), ())
    with pytest.raises(RegardError) as caught:
        model.predict("a", return_weights=True)
    line = "attentive-tagger has no self-attention weights to show; train with --encoder both"
    assert str(caught.value) == line


# Labels


def test_one_text_or_several(one):
    answered = one.predict("one good two")
    assert (answered.text, answered.labels, answered.words) == ("one good two", ("plus",), ("one", "good", "two"))
    assert (answered.weights, answered.context_weights) == (None, None)
    assert [each.labels for each in one.predict(["bad", "odd"])] == [("minus",), ("other",)]
    assert one.predict([]) == []
    assert one.predict("").words == ("",)
    assert repr(one).startswith("LabelPredictor(attentive-classifier, 3 labels, ")
    assert sorted(one.labels) == ["minus", "other", "plus"]


def test_labels_are_ranked_by_their_probability(one):
    answered = one.predict("six bad", nbest=3)
    assert answered.ranked[0].label == answered.labels[0] == "minus"
    values = [each.probability for each in answered.ranked]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1, abs=1e-5)
    (row,) = one.probabilities([LabeledText("six bad", ())]).tolist()
    assert {each.label: each.probability for each in answered.ranked} == pytest.approx(
        dict(zip(one.labels, row, strict=True))
    )
    assert one.probabilities([]).shape == (0, 3)


def test_the_threshold_decides_which_labels_there_are(several):
    usual = several.predict("bad one good")
    assert set(usual.labels) == {"plus", "minus"}
    ranked = several.predict("bad one good", nbest=3).ranked
    for minimum in (0.0, 0.5, 1.0, *(each.probability for each in ranked)):  # at least as probable: itself among them
        expected = tuple(each.label for each in ranked if each.probability >= minimum)
        assert several.predict("bad one good", threshold=minimum).labels == expected
    assert len(several.predict("bad one good", threshold=0.0).labels) == 3


def test_a_batch_is_answered_like_one_at_a_time(dialogues, monkeypatch):
    monkeypatch.setattr("regard.tasks.label.predictor.EXAMPLES", 3)
    texts = ["one good", "two", "bad bad six seven", "x", "good"]
    contexts = [("one bad",), (), ("good", "bad", "two good"), ("two",), ("two", "one good")]
    done: list[int] = []
    together = dialogues.predict(texts, context=contexts, nbest=3, return_weights=True, progress=done.append)
    assert done == [3, 5]
    for text, context, answered in zip(texts, contexts, together, strict=True):
        alone = dialogues.predict(text, context=context, nbest=3, return_weights=True)
        assert answered.labels == alone.labels
        assert [each.probability for each in answered.ranked] == pytest.approx(
            [each.probability for each in alone.ranked]
        )
        assert answered.weights == pytest.approx(alone.weights)
        assert answered.context_weights == pytest.approx(alone.context_weights)


def test_more_context_than_is_read_changes_nothing(dialogues):
    long = dialogues.predict("one", context=["good", "two bad", "three good"], return_weights=True)
    short = dialogues.predict("one", context=["two bad", "three good"], return_weights=True)
    assert long.ranked == short.ranked
    assert long.context_weights == short.context_weights


def test_weights_as_a_map(one):
    with pytest.raises(RegardError) as caught:
        one.attention_map(one.predict("good"))
    assert str(caught.value) == "attention_map requires weights; predict with return_weights=True"
    labeling = one.predict("one good two", return_weights=True)
    answered = one.attention_map(labeling)
    assert (tuple(answered.rows), tuple(answered.columns)) == (("plus",), ("one", "good", "two"))
    assert answered.weights.shape == (1, 1, 1, 3)
    assert answered.weights[0, 0, 0].tolist() == pytest.approx(labeling.weights)


def refused(line: str, call, *arguments, **options) -> None:
    with pytest.raises(RegardError) as caught:
        call(*arguments, **options)
    assert str(caught.value) == line


def test_what_is_refused_of_labels(one, several, pairs, dialogues, label_runs):
    refused("nbest must be at least 1, got 0", one.predict, "a", nbest=0)
    assert len(one.predict("a", nbest=4).ranked) == 3  # there are no more
    single = "threshold requires a model with several labels per text"
    refused(single, one.predict, "a", threshold=0.5)
    refused("threshold must be from 0 to 1, got 1.5", several.predict, "a", threshold=1.5)
    refused("predict: expected a string or a list of strings, got int", one.predict, 3)
    refused('text "a": second is required; this model classifies text pairs', pairs.predict, "a")
    refused(
        'text "a": second is required; this model classifies text pairs', pairs.probabilities, [LabeledText("a", ())]
    )
    line = "predict: expected one second text and one context per text, got 2 texts, 1 second texts, 2 contexts"
    refused(line, pairs.predict, ["a", "b"], second=["c"])
    line = "predict: expected one second text and one context per text, got 1 texts, 1 second texts, 2 contexts"
    refused(line, dialogues.predict, ["a"], context=[["b"], ["c"]])
    line = " is not supported; this model was trained without it"
    refused(f"predict: second{line}", one.predict, "a", second="b")
    refused(f"predict: context{line}", one.predict, "a", context=["b"])
    line = 'predict: expected a context of several strings, got "so"'
    refused(line, dialogues.predict, "a", context="so")
    refused(line, dialogues.predict, ["a"], context=["so"])
    mean = load(label_runs["mean"])
    assert mean.predict("good").labels[0] in mean.labels
    line = "attentive-classifier has no attention weights to show: pooling is mean; train with --pooling attention"
    refused(line, mean.predict, "good", return_weights=True)


# Tags


def test_words_of_ones_own_are_tagged_as_they_are(crf):
    (answered,) = crf.predict([["mr", "ann junior", "in", "Bob!"]])
    assert answered.words == ("mr", "ann junior", "in", "Bob!")
    assert len(answered.tags) == len(answered.probabilities) == 4
    assert repair_tags([answered.tags], "BIO") == ([answered.tags], 0)
    assert crf.predict("mr ann.").words == ("mr", "ann", ".")  # a text is cut
    assert to_words("mr ann.") == ("mr", "ann", ".")
    assert repr(crf).startswith("TagPredictor(attentive-tagger, 5 tags, ")


def test_sentences_of_any_length_come_in_their_order(crf):
    texts = ["in kim", "", SENTENCE, "   ", "six", "mr bob"]
    answered = crf.predict(texts)
    assert [each.words for each in answered] == [tuple(text.split()) for text in texts]
    assert (answered[1].tags, answered[1].probabilities, answered[1].spans) == ((), (), ())
    for text, together in zip(texts, answered, strict=True):
        alone = crf.predict(text)
        assert alone.tags == together.tags
        assert alone.probabilities == pytest.approx(together.probabilities, abs=1e-5)
    done: list[int] = []
    crf.predict(texts, progress=done.append)
    assert done[-1] == 6
    assert crf.predict([]) == []


def test_weights_are_among_the_words_of_each_sentence(crf):
    answered = crf.predict([SENTENCE, "in kim"], return_weights=True)
    for tagging in answered:
        size = len(tagging.words)
        assert tagging.weights is not None
        assert tagging.weights.shape == (1, 2, size, size)  # layers, heads
        torch.testing.assert_close(tagging.weights.sum(-1), torch.ones(1, 2, size))
    drawn = crf.attention_map(answered[1])
    assert tuple(drawn.rows) == tuple(drawn.columns) == ("in", "kim")
    refused("attention_map requires weights; predict with return_weights=True", crf.attention_map, crf.predict("a"))


def test_what_is_refused_of_tags(crf):
    refused("predict: expected words as non-empty strings, got ''", crf.predict, [["a", ""]])


# Loading


def test_each_run_is_loaded_as_what_it_does(label_runs):
    assert type(load(label_runs["pairs"])) is LabelPredictor
    assert type(load(label_runs["plain"])) is TagPredictor


def test_both_texts_of_a_pair_have_weights(pairs):
    answered = pairs.predict("one two", second="three four five", return_weights=True)
    assert answered.second_words == ("three", "four", "five")
    assert len(answered.second_weights) == 3
    assert sum(answered.second_weights) == pytest.approx(1)
    alone = pairs.predict("three four five", second="one two", return_weights=True)
    assert alone.weights == pytest.approx(answered.second_weights)
    assert alone.second_weights == pytest.approx(answered.weights)


def test_weights_that_are_no_shares_are_not_shown(one):
    config = replace(one.model.config, normalizer="none")
    model = AttentiveClassifier(config)
    predictor = LabelPredictor(model, one.vocabulary, one.recipe, one.card)
    assert not predictor.has_word_weights
    refused(
        "attentive-classifier has no attention weights to show: normalizer is none",
        predictor.predict,
        "one",
        return_weights=True,
    )


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (5, "predict: expected a string or a list of strings or of lists of words, got int"),
        ([5], "predict: expected a string or a list of words, got int"),
        ([["a", 5]], "predict: expected words as non-empty strings, got 5"),
    ],
)
def test_what_is_no_sentence(crf, value, line, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    with pytest.raises(RegardError, match=f"^{line}$"):
        crf.predict(value)
