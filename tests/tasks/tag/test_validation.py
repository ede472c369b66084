"""Validation of taggers against a report of its own."""

import math

import pytest
import torch

from regard.data.label_batches import build_tag_batch
from regard.data.tagged import TaggedSentence
from regard.sentences import TagBatch
from regard.tasks.tag.validation import TagValidation, to_tag_names
from tests.training.test_label_loss import lexicon, sure_tagger


def test_tags_are_judged_by_loss_accuracy_and_the_f1_of_spans():
    known = lexicon(["O", "B-X", "I-X"])
    scores = [[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]]  # a O, b B-X, c I-X
    gold = [("O", "B-X", "I-X"), ("B-X", "B-Y"), ("O", "O")]
    sentences = [
        TaggedSentence(("a", "b", "c"), gold[0]),
        TaggedSentence(("b", "a"), ("B-X", "O")),
        TaggedSentence(("a", "b"), gold[2]),
    ]
    model = sure_tagger(known, scores, scheme="BIO", crf=False)
    with torch.no_grad():
        metrics, _ = TagValidation(sentences, gold, known, "cpu")(model)
    assert metrics["accuracy"] == 5 / 7
    assert metrics["f1"] == pytest.approx(2 * 2 / (3 + 3))  # of 3 spans predicted and 3 gold, 2 are right
    right = math.log(1 + 2 * math.exp(-9))
    assert metrics["loss"] == pytest.approx((7 * right + 9) / 7, rel=1e-5)


def test_a_long_sentence_does_not_make_the_others_long(monkeypatch):
    known = lexicon(["N", "V"])
    model = sure_tagger(known, [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], crf=False)
    gold = [("N",) * 50, ("V",), ("N", "V"), ("V",)]
    sentences = [TaggedSentence(tuple("a" if tag == "N" else "b" for tag in tags), tags) for tags in gold]
    shapes = []
    model.register_forward_hook(lambda _, __, scores: shapes.append(tuple(scores.shape)))
    monkeypatch.setattr("regard.tasks.tag.validation.TOKENS", 20)
    with torch.no_grad():
        metrics, _ = TagValidation(sentences, gold, known, "cpu")(model)
    assert sorted(shapes) == [(1, 50, 2), (3, 2, 2)]
    assert metrics["accuracy"] == 1.0
    assert metrics["loss"] == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-5)


def test_tags_that_mark_no_spans_have_no_f1():
    known = lexicon(["N", "V"])
    model = sure_tagger(known, [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], crf=False)
    with torch.no_grad():
        metrics, _ = TagValidation([TaggedSentence(("a", "b"), ("N", "V"))], [("N", "V")], known, "cpu")(model)
    assert metrics.keys() == {"loss", "accuracy"}
    assert metrics["accuracy"] == 1.0


def test_tags_by_their_names():
    known = lexicon(["N", "V"])
    batch: TagBatch = build_tag_batch([TaggedSentence(("a", "b"), ("N", "V")), TaggedSentence(("c",), ("V",))], known)
    assert batch.tags is not None
    assert to_tag_names(batch.tags, batch, known) == [["N", "V"], ["V"]]
