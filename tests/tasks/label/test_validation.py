"""Validation of classifiers against a report of its own."""

import math

import pytest
import torch

from regard.data.labeled import LabeledText
from regard.tasks.label.validation import LabelValidation
from tests.training.test_label_loss import lexicon, sure_classifier


def test_many_are_judged_in_batches_as_at_once(monkeypatch):
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    examples = [LabeledText(text, (label,)) for text, label in zip("cabba", "xyyxx", strict=True)]
    with torch.no_grad():
        at_once, _ = LabelValidation(examples, known, 9, "cpu")(model)
        monkeypatch.setattr("regard.tasks.label.validation.EXAMPLES", 2)
        in_batches, _ = LabelValidation(examples, known, 9, "cpu")(model)
    assert in_batches == pytest.approx(at_once)
    assert at_once["accuracy"] == 0.6


def test_one_label_is_judged_by_loss_accuracy_and_macro_f1():
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    examples = [
        LabeledText("a", ("x",)),
        LabeledText("b", ("y",)),
        LabeledText("c", ("y",)),
        LabeledText("a", ("new",)),
    ]
    with torch.no_grad():
        metrics, fitted = LabelValidation(examples, known, 9, "cpu")(model)
    losses = [math.log(1 + math.exp(-2))] * 2 + [math.log(1 + math.exp(1)), 0.0]  # of a new label nothing is known
    assert metrics["loss"] == pytest.approx(sum(losses) / 4, rel=1e-5)
    assert metrics["accuracy"] == 0.5  # but it is wrong
    # x: 1 right, 3 predicted, 1 gold; y: 1 right, 1 predicted, 2 gold; new: none right, 1 gold
    assert metrics["macro_f1"] == pytest.approx((2 / 4 + 2 / 3 + 0) / 3)
    assert fitted == {}


def test_several_labels_are_judged_at_the_best_threshold_which_is_kept():
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[-1.0, -3.0], [-3.0, -1.0], [-1.0, -1.0]], multi_label=True)
    examples = [LabeledText("a", ("x",)), LabeledText("b", ("y",)), LabeledText("c", ("x", "y"))]
    with torch.no_grad():
        metrics, fitted = LabelValidation(examples, known, 9, "cpu")(model)
    assert metrics.keys() == {"loss", "f1"}
    assert metrics["f1"] == 1.0  # at a threshold between sigmoid(-3) and sigmoid(-1)
    low, high = (1 / (1 + math.exp(x)) for x in (3, 1))
    assert fitted == {"threshold": pytest.approx((low + high) / 2)}
    assert model.threshold.item() == 0.5  # the loop sets it
    assert metrics["loss"] == pytest.approx(
        (4 * math.log(1 + math.exp(1)) + 2 * math.log(1 + math.exp(-3))) / 3, rel=1e-5
    )
