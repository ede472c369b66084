"""Losses by hand, weights of classes by hand, and validation against a report of its own."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from regard.data.label_batches import label_batch, tag_batch
from regard.data.labelled import Labelled
from regard.data.tagged import Tagged
from regard.models.attentive_classifier import AttentiveClassifier, ClassifierConfig
from regard.models.attentive_tagger import AttentiveTagger, TaggerConfig
from regard.sentences import TagBatch
from regard.text.lexicon import Lexicon, learn_lexicon
from regard.training.label_loss import (
    LabelStep,
    LabelValidation,
    TagStep,
    TagValidation,
    class_weights,
    label_logits,
    positive_weights,
    tags_in_words,
)

LETTERS = ["a", "b", "c"]


def lexicon(labels: list[str]) -> Lexicon:
    return learn_lexicon([LETTERS], labels)


def sure_classifier(known: Lexicon, logits: list[list[float]], *, several: bool = False) -> AttentiveClassifier:
    """A model whose logits for the text "a" are the first row, for "b" the second, for "c" the third."""
    plain: dict[str, Any] = {
        "encoder": "embedding",
        "spelling": "none",
        "pooling": "mean",
        "embedding": 3,
        "dropout": 0.0,
    }
    model = AttentiveClassifier(ClassifierConfig(**known.sizes("label"), several=several, word_dropout=0.0, **plain))
    with torch.no_grad():
        model.reader.words.weight[4:] = torch.eye(3)
        model.output.weight.copy_(torch.tensor(logits).T)
        model.output.bias.zero_()
    return model


def sure_tagger(known: Lexicon, scores: list[list[float]], **settings: Any) -> AttentiveTagger:
    plain: dict[str, Any] = {
        "encoder": "embedding",
        "spelling": "none",
        "embedding": 3,
        "dropout": 0.0,
        "word_dropout": 0.0,
    }
    model = AttentiveTagger(TaggerConfig(**known.sizes("tag"), **plain, **settings))
    with torch.no_grad():
        model.reader.words.weight[4:] = torch.eye(3)
        model.output.weight.copy_(torch.tensor(scores).T)
        model.output.bias.zero_()
    return model


# Weights


def test_class_weights_by_hand():
    assert class_weights([8, 2], 0.0) is None
    # 1/8 and 1/2, which weigh both labels alike; 10 examples count as 10: times 10 / 2
    assert_close(class_weights([8, 2], 1.0), torch.tensor([0.625, 2.5]))
    # 1/3 and 1/2 at a power of a half; 9 / 3 + 4 / 2 = 5 for 13 examples
    assert_close(class_weights([9, 4], 0.5), torch.tensor([13 / 5 / 3, 13 / 5 / 2]))
    assert_close(class_weights([5, 5], 1.0), torch.ones(2))
    found = class_weights([6, 0], 1.0)  # one that is not seen does not divide by nothing
    assert found is not None
    assert_close(found, torch.tensor([1.0, 6.0]))


def test_positive_weights_by_hand():
    assert positive_weights([3, 1], 4, 0.0) is None
    assert_close(positive_weights([2, 5, 8], 10, 1.0), torch.tensor([4.0, 1.0, 0.25]))
    assert_close(positive_weights([2, 5, 8], 10, 0.5), torch.tensor([2.0, 1.0, 0.5]))
    assert_close(positive_weights([0, 10], 10, 1.0), torch.tensor([9.0, 0.1]))


# Steps


def test_a_step_gives_the_summed_loss_and_how_many_examples_there_are():
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    batch = label_batch(
        [Labelled("a", ("x",)), Labelled("b", ("x",)), Labelled("c", ("?",))], known, before=0, pairs=False, longest=9
    )
    loss, count, _ = LabelStep(model)(batch)
    wanted = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    assert count.item() == 3
    step = LabelStep(model, 0.2, torch.tensor([3.0, 1.0]))
    smoothed = functional.cross_entropy(
        torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), label_smoothing=0.2, reduction="sum"
    )
    assert_close(step(batch)[0], 3 * smoothed)
    assert "weights" in dict(step.named_buffers())  # so that they go to the device of the model


@pytest.mark.parametrize("crf", [True, False])
def test_a_step_of_tags_counts_words(crf):
    known = lexicon(["N", "V"])
    model = sure_tagger(known, [[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]], crf=crf)
    batch = tag_batch([Tagged(("a", "b", "c"), ("N", "N", "V")), Tagged(("b",), ("V",))], known)
    loss, count, _ = TagStep(model)(batch)
    assert count.item() == 4
    softplus = [math.log(1 + math.exp(x)) for x in (-2, 1, 0, -1)]
    assert loss.item() == pytest.approx(sum(softplus), rel=1e-5)  # a field whose transitions are zero is no field
    assert all(p.grad is None for p in model.parameters())
    loss.backward()
    assert model.output.weight.grad is not None


# Validation


def test_the_logits_of_many_come_in_their_order(monkeypatch):
    monkeypatch.setattr("regard.training.label_loss.EXAMPLES", 2)
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    examples = [Labelled(text, ("x",)) for text in "cabba"]
    parts = list(label_logits(model, examples, known, longest=9, device="cpu"))
    assert [len(batch) for batch, _ in parts] == [2, 2, 1]
    assert [batch.targets for batch, _ in parts] == [None] * 3
    assert torch.cat([logits for _, logits in parts])[:, 0].tolist() == [3.0, 1.0, 2.0, 2.0, 1.0]


def test_one_label_is_judged_by_loss_accuracy_and_macro_f1():
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    examples = [Labelled("a", ("x",)), Labelled("b", ("y",)), Labelled("c", ("y",)), Labelled("a", ("new",))]
    with torch.no_grad():
        found, fitted = LabelValidation(examples, known, 9, "cpu")(model)
    losses = [math.log(1 + math.exp(-2))] * 2 + [math.log(1 + math.exp(1)), 0.0]  # of a new label nothing is known
    assert found["loss"] == pytest.approx(sum(losses) / 4, rel=1e-5)
    assert found["accuracy"] == 0.5  # but it is wrong
    # x: 1 right, 3 predicted, 1 gold; y: 1 right, 1 predicted, 2 gold; new: none right, 1 gold
    assert found["macro_f1"] == pytest.approx((2 / 4 + 2 / 3 + 0) / 3)
    assert fitted == {}


def test_several_labels_are_judged_at_the_best_threshold_which_is_returned():
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[-1.0, -3.0], [-3.0, -1.0], [-1.0, -1.0]], several=True)
    examples = [Labelled("a", ("x",)), Labelled("b", ("y",)), Labelled("c", ("x", "y"))]
    with torch.no_grad():
        found, fitted = LabelValidation(examples, known, 9, "cpu")(model)
    assert found.keys() == {"loss", "f1"}
    assert found["f1"] == 1.0  # at a threshold between sigmoid(-3) and sigmoid(-1)
    low, high = (1 / (1 + math.exp(x)) for x in (3, 1))
    assert fitted == {"threshold": pytest.approx((low + high) / 2)}
    assert model.threshold.item() == 0.5  # the loop sets it
    assert found["loss"] == pytest.approx(
        (4 * math.log(1 + math.exp(1)) + 2 * math.log(1 + math.exp(-3))) / 3, rel=1e-5
    )


def test_tags_are_judged_by_loss_accuracy_and_the_f1_of_spans():
    known = lexicon(["O", "B-X", "I-X"])
    scores = [[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]]  # a O, b B-X, c I-X
    gold = [("O", "B-X", "I-X"), ("B-X", "B-Y"), ("O", "O")]
    sentences = [Tagged(("a", "b", "c"), gold[0]), Tagged(("b", "a"), ("B-X", "O")), Tagged(("a", "b"), gold[2])]
    model = sure_tagger(known, scores, scheme="BIO", crf=False)
    with torch.no_grad():
        found, _ = TagValidation(sentences, gold, known, "cpu")(model)
    assert found["accuracy"] == 5 / 7
    assert found["f1"] == pytest.approx(2 * 2 / (3 + 3))  # of 3 spans predicted and 3 gold, 2 are right
    right = math.log(1 + 2 * math.exp(-9))
    assert found["loss"] == pytest.approx((7 * right + 9) / 7, rel=1e-5)


def test_a_long_sentence_does_not_make_the_others_long(monkeypatch):
    known = lexicon(["N", "V"])
    model = sure_tagger(known, [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], crf=False)
    gold = [("N",) * 50, ("V",), ("N", "V"), ("V",)]
    sentences = [Tagged(tuple("a" if tag == "N" else "b" for tag in tags), tags) for tags in gold]
    shapes = []
    model.register_forward_hook(lambda _, __, scores: shapes.append(tuple(scores.shape)))
    monkeypatch.setattr("regard.training.label_loss.TOKENS", 20)
    with torch.no_grad():
        found, _ = TagValidation(sentences, gold, known, "cpu")(model)
    assert sorted(shapes) == [(1, 50, 2), (3, 2, 2)]
    assert found["accuracy"] == 1.0
    assert found["loss"] == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-5)


def test_tags_that_mark_no_spans_have_no_f1():
    known = lexicon(["N", "V"])
    model = sure_tagger(known, [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], crf=False)
    with torch.no_grad():
        found, _ = TagValidation([Tagged(("a", "b"), ("N", "V"))], [("N", "V")], known, "cpu")(model)
    assert found.keys() == {"loss", "accuracy"}
    assert found["accuracy"] == 1.0


def test_tags_by_their_names():
    known = lexicon(["N", "V"])
    batch: TagBatch = tag_batch([Tagged(("a", "b"), ("N", "V")), Tagged(("c",), ("V",))], known)
    assert batch.tags is not None
    assert tags_in_words(batch.tags, batch, known) == [["N", "V"], ["V"]]
