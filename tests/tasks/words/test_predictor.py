"""Models that have learnt what decides a label or a tag, and what can be asked of them."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.data.labelled import Labelled, read_labelled
from regard.data.tagged import read_tagged
from regard.errors import RegardError
from regard.models import AttentiveClassifier
from regard.schemes import Span, repair
from regard.tasks.label.options import RankOptions
from regard.tasks.label.predictor import Labelling, LabelPredictor
from regard.tasks.loading import load
from regard.tasks.predictor import Request
from regard.tasks.tag.predictor import TagPredictor, words_to_tag
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


# What was learnt


def answers(model: LabelPredictor, examples: list[Labelled], **options: Any) -> list[Labelling]:
    return model.answer([Request(example, RankOptions()) for example in examples], **options)


def accuracy(model: LabelPredictor, examples: list[Labelled]) -> float:
    found = answers(model, examples)
    return sum(set(a.labels) == set(b.labels) for a, b in zip(found, examples, strict=True)) / len(examples)


def test_one_label_is_learnt_and_the_word_that_decides_is_looked_at(one, label_runs):
    examples = list(read_labelled(label_runs["one"].parent / "one.tsv"))
    assert accuracy(one, examples) >= 0.99
    found = answers(one, examples, return_weights=True)
    for labelling in found:
        assert labelling.weights is not None
        assert sum(labelling.weights) == pytest.approx(1, abs=1e-5)
    hits = sum(
        labelling.words[max(range(len(labelling.words)), key=labelling.weights.__getitem__)] in LABELS
        for labelling in found
        if labelling.weights is not None
    )
    assert hits / len(found) >= 0.95


def test_several_labels_are_learnt(several, label_runs):
    assert several.model.config.several
    assert accuracy(several, list(read_labelled(label_runs["several"].parent / "several.tsv"))) >= 0.99


def test_the_utterance_before_is_learnt_and_looked_at(dialogues, label_runs):
    examples = list(read_labelled(label_runs["context"].parent / "context.tsv", context=2))
    assert accuracy(dialogues, examples) >= 0.99
    found = answers(dialogues, examples, return_weights=True)
    weights = [each.context_weights for each in found]
    assert [len(each or ()) for each in weights[:5]] == [0, 1, 2, 2, 2]
    assert weights[1] == (pytest.approx(1),)
    long = [(each, example) for each, example in zip(weights, examples, strict=True) if each and len(each) == 2]
    assert all(sum(each) == pytest.approx(1, abs=1e-5) for each, _ in long)
    told = [each for each, example in long if len({"good" in text for text in example.context}) == 2]
    assert sum(last for _, last in told) / len(told) > 0.7  # the label is that of the last one, where the two differ


def test_pairs_are_learnt(pairs, label_runs):
    examples = list(read_labelled(label_runs["pairs"].parent / "pairs.tsv", columns=("1", "3", "2")))
    assert accuracy(pairs, examples) >= 0.98
    same, other = pairs.predict(["one good", "good two"], second=["great", "awful"])
    assert (same.labels, other.labels) == (("same",), ("other",))


@pytest.mark.parametrize("name", ["crf", "no-crf"])
def test_tags_are_learnt_from_the_word_before(name, label_runs):
    model = load(label_runs[name])
    sentences = list(read_tagged(label_runs[name].parent / "names.bio"))
    found = model.predict([sentence.words for sentence in sentences])
    assert sum(a.tags == b.tags for a, b in zip(found, sentences, strict=True)) / len(sentences) >= 0.98
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
    line = "attentive-tagger: has no self-attention, so no weights to show; train it with --encoder both"
    assert str(caught.value) == line


# Labels


def test_one_text_or_several(one):
    found = one.predict("one good two")
    assert (found.text, found.labels, found.words) == ("one good two", ("plus",), ("one", "good", "two"))
    assert (found.weights, found.context_weights) == (None, None)
    assert [each.labels for each in one.predict(["bad", "odd"])] == [("minus",), ("other",)]
    assert one.predict([]) == []
    assert one.predict("").words == ("",)
    assert repr(one).startswith("LabelPredictor(attentive-classifier, 3 labels, ")
    assert sorted(one.labels) == ["minus", "other", "plus"]


def test_labels_are_ranked_by_their_probability(one):
    found = one.predict("six bad", nbest=3)
    assert found.ranked[0].label == found.labels[0] == "minus"
    values = [each.probability for each in found.ranked]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1, abs=1e-5)
    (row,) = one.probabilities([Labelled("six bad", ())]).tolist()
    assert {each.label: each.probability for each in found.ranked} == pytest.approx(
        dict(zip(one.labels, row, strict=True))
    )
    assert one.probabilities([]).shape == (0, 3)


def test_the_threshold_decides_which_labels_there_are(several):
    usual = several.predict("bad one good")
    assert set(usual.labels) == {"plus", "minus"}
    ranked = several.predict("bad one good", nbest=3).ranked
    for least in (0.0, 0.5, 1.0, *(each.probability for each in ranked)):  # at least as probable: itself among them
        wanted = tuple(each.label for each in ranked if each.probability >= least)
        assert several.predict("bad one good", threshold=least).labels == wanted
    assert len(several.predict("bad one good", threshold=0.0).labels) == 3


def test_a_batch_is_answered_like_one_at_a_time(dialogues, monkeypatch):
    monkeypatch.setattr("regard.tasks.label.predictor.EXAMPLES", 3)
    texts = ["one good", "two", "bad bad six seven", "x", "good"]
    contexts = [("one bad",), (), ("good", "bad", "two good"), ("two",), ("two", "one good")]
    done: list[int] = []
    together = dialogues.predict(texts, context=contexts, nbest=3, return_weights=True, progress=done.append)
    assert done == [3, 5]
    for text, context, found in zip(texts, contexts, together, strict=True):
        alone = dialogues.predict(text, context=context, nbest=3, return_weights=True)
        assert found.labels == alone.labels
        assert [each.probability for each in found.ranked] == pytest.approx([each.probability for each in alone.ranked])
        assert found.weights == pytest.approx(alone.weights)
        assert found.context_weights == pytest.approx(alone.context_weights)


def test_more_context_than_is_read_changes_nothing(dialogues):
    long = dialogues.predict("one", context=["good", "two bad", "three good"], return_weights=True)
    short = dialogues.predict("one", context=["two bad", "three good"], return_weights=True)
    assert long.ranked == short.ranked
    assert long.context_weights == short.context_weights


def test_weights_as_a_map(one):
    with pytest.raises(RegardError) as caught:
        one.attention_map(one.predict("good"))
    assert str(caught.value) == "attention_map: there are no weights; predict with return_weights=True"
    labelling = one.predict("one good two", return_weights=True)
    found = one.attention_map(labelling)
    assert (tuple(found.rows), tuple(found.columns)) == (("plus",), ("one", "good", "two"))
    assert found.weights.shape == (1, 1, 1, 3)
    assert found.weights[0, 0, 0].tolist() == pytest.approx(labelling.weights)


def refused(line: str, call, *arguments, **options) -> None:
    with pytest.raises(RegardError) as caught:
        call(*arguments, **options)
    assert str(caught.value) == line


def test_what_is_refused_of_labels(one, several, pairs, dialogues, label_runs):
    refused("nbest is 0; 1 is the least", one.predict, "a", nbest=0)
    assert len(one.predict("a", nbest=4).ranked) == 3  # there are no more
    single = "threshold: is for models of several labels; this one tells one of each text"
    refused(single, one.predict, "a", threshold=0.5)
    refused("threshold is 1.5; a number from 0 to 1 is needed", several.predict, "a", threshold=1.5)
    refused("predict: found int; one text or several are needed", one.predict, 3)
    refused('text: "a" has no second text; this model labels pairs of texts', pairs.predict, "a")
    refused('text: "a" has no second text; this model labels pairs of texts', pairs.probabilities, [Labelled("a", ())])
    line = "predict: 2 texts, 1 second ones, 2 contexts; each has its own"
    refused(line, pairs.predict, ["a", "b"], second=["c"])
    line = "predict: 1 texts, 1 second ones, 2 contexts; each has its own"
    refused(line, dialogues.predict, ["a"], context=[["b"], ["c"]])
    line = " is given; this model was trained without, so leave it out"
    refused(f"predict: second{line}", one.predict, "a", second="b")
    refused(f"predict: context{line}", one.predict, "a", context=["b"])
    line = 'predict: found the context "so"; a sequence of texts is needed'
    refused(line, dialogues.predict, "a", context="so")
    refused(line, dialogues.predict, ["a"], context=["so"])
    mean = load(label_runs["mean"])
    assert mean.predict("good").labels[0] in mean.labels
    line = "attentive-classifier: pools words by mean, so has no weights to show; train it with --pooling attention"
    refused(line, mean.predict, "good", return_weights=True)


# Tags


def test_words_of_ones_own_are_tagged_as_they_are(crf):
    (found,) = crf.predict([["mr", "ann junior", "in", "Bob!"]])
    assert found.words == ("mr", "ann junior", "in", "Bob!")
    assert len(found.tags) == len(found.probabilities) == 4
    assert repair([found.tags], "BIO") == ([found.tags], 0)
    assert crf.predict("mr ann.").words == ("mr", "ann", ".")  # a text is cut
    assert words_to_tag("mr ann.") == ("mr", "ann", ".")
    assert repr(crf).startswith("TagPredictor(attentive-tagger, 5 tags, ")


def test_sentences_of_any_length_come_in_their_order(crf):
    texts = ["in kim", "", SENTENCE, "   ", "six", "mr bob"]
    found = crf.predict(texts)
    assert [each.words for each in found] == [tuple(text.split()) for text in texts]
    assert (found[1].tags, found[1].probabilities, found[1].spans) == ((), (), ())
    for text, together in zip(texts, found, strict=True):
        alone = crf.predict(text)
        assert alone.tags == together.tags
        assert alone.probabilities == pytest.approx(together.probabilities, abs=1e-5)
    done: list[int] = []
    crf.predict(texts, progress=done.append)
    assert done[-1] == 6
    assert crf.predict([]) == []


def test_weights_are_among_the_words_of_each_sentence(crf):
    found = crf.predict([SENTENCE, "in kim"], return_weights=True)
    for tagging in found:
        size = len(tagging.words)
        assert tagging.weights is not None
        assert tagging.weights.shape == (1, 2, size, size)  # layers, heads
        torch.testing.assert_close(tagging.weights.sum(-1), torch.ones(1, 2, size))
    drawn = crf.attention_map(found[1])
    assert tuple(drawn.rows) == tuple(drawn.columns) == ("in", "kim")
    refused(
        "attention_map: there are no weights; predict with return_weights=True", crf.attention_map, crf.predict("a")
    )


def test_what_is_refused_of_tags(crf):
    refused("predict: found '' among the words of a sentence; each is a text", crf.predict, [["a", ""]])


# Loading


def test_each_run_is_loaded_as_what_it_does(label_runs):
    assert type(load(label_runs["pairs"])) is LabelPredictor
    assert type(load(label_runs["plain"])) is TagPredictor


def test_both_texts_of_a_pair_have_weights(pairs):
    found = pairs.predict("one two", second="three four five", return_weights=True)
    assert found.second_words == ("three", "four", "five")
    assert len(found.second_weights) == 3
    assert sum(found.second_weights) == pytest.approx(1)
    alone = pairs.predict("three four five", second="one two", return_weights=True)
    assert alone.weights == pytest.approx(found.second_weights)
    assert alone.second_weights == pytest.approx(found.weights)


def test_weights_that_are_no_shares_are_not_shown(one):
    config = replace(one.model.config, normaliser="none")
    model = AttentiveClassifier(config)
    predictor = LabelPredictor(model, one.lexicon, one.recipe, one.card)
    assert not predictor.weighs
    refused(
        "attentive-classifier: its weights are not normalised, so they are no shares to show",
        predictor.predict,
        "one",
        return_weights=True,
    )
