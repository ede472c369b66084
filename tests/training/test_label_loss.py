"""Losses by hand, and weights of classes by hand."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from regard.data.label_batches import build_label_batch, build_tag_batch
from regard.data.labeled import LabeledText
from regard.data.tagged import TaggedSentence
from regard.models.attentive_classifier import AttentiveClassifier, ClassifierConfig
from regard.models.attentive_tagger import AttentiveTagger, TaggerConfig
from regard.text.word_vocabulary import WordVocabulary, learn_word_vocabulary
from regard.training.label_loss import LabelStep, TagStep, compute_class_weights, compute_positive_weights

LETTERS = ["a", "b", "c"]


def lexicon(labels: list[str]) -> WordVocabulary:
    return learn_word_vocabulary([LETTERS], labels)


def sure_classifier(
    known: WordVocabulary, logits: list[list[float]], *, multi_label: bool = False
) -> AttentiveClassifier:
    """A model whose logits for the text "a" are the first row, for "b" the second, for "c" the third."""
    plain: dict[str, Any] = {
        "encoder": "embedding",
        "char_encoder": "none",
        "pooling": "mean",
        "embedding": 3,
        "dropout": 0.0,
    }
    model = AttentiveClassifier(ClassifierConfig(**known.sizes(), multi_label=multi_label, word_dropout=0.0, **plain))
    with torch.no_grad():
        model.reader.embedding.words.weight[4:] = torch.eye(3)
        model.output.weight.copy_(torch.tensor(logits).T)
        model.output.bias.zero_()
    return model


def sure_tagger(known: WordVocabulary, scores: list[list[float]], **settings: Any) -> AttentiveTagger:
    plain: dict[str, Any] = {
        "encoder": "embedding",
        "char_encoder": "none",
        "embedding": 3,
        "dropout": 0.0,
        "word_dropout": 0.0,
    }
    model = AttentiveTagger(TaggerConfig(**known.sizes(), **plain, **settings))
    with torch.no_grad():
        model.reader.embedding.words.weight[4:] = torch.eye(3)
        model.output.weight.copy_(torch.tensor(scores).T)
        model.output.bias.zero_()
    return model


# Weights


def test_class_weights_by_hand():
    assert compute_class_weights([8, 2], 0.0) is None
    # 1/8 and 1/2 give both labels the same weight; times 10 / 2 so that 10 examples count as 10
    assert_close(compute_class_weights([8, 2], 1.0), torch.tensor([0.625, 2.5]))
    # 1/3 and 1/2 at a power of a half; 9 / 3 + 4 / 2 = 5 for 13 examples
    assert_close(compute_class_weights([9, 4], 0.5), torch.tensor([13 / 5 / 3, 13 / 5 / 2]))
    assert_close(compute_class_weights([5, 5], 1.0), torch.ones(2))
    actual = compute_class_weights([6, 0], 1.0)  # a label that never occurs does not divide by zero
    assert actual is not None
    assert_close(actual, torch.tensor([1.0, 6.0]))


def test_positive_weights_by_hand():
    assert compute_positive_weights([3, 1], 4, 0.0) is None
    assert_close(compute_positive_weights([2, 5, 8], 10, 1.0), torch.tensor([4.0, 1.0, 0.25]))
    assert_close(compute_positive_weights([2, 5, 8], 10, 0.5), torch.tensor([2.0, 1.0, 0.5]))
    assert_close(compute_positive_weights([0, 10], 10, 1.0), torch.tensor([9.0, 0.1]))


# Steps


def test_a_step_gives_the_summed_loss_and_how_many_examples_there_are():
    known = lexicon(["x", "y"])
    model = sure_classifier(known, [[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    batch = build_label_batch(
        [LabeledText("a", ("x",)), LabeledText("b", ("x",)), LabeledText("c", ("?",))],
        known,
        context_size=0,
        text_pairs=False,
        max_length=9,
    )
    loss, count, _ = LabelStep(model)(batch)
    expected = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))
    assert loss.item() == pytest.approx(expected, rel=1e-5)
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
    batch = build_tag_batch([TaggedSentence(("a", "b", "c"), ("N", "N", "V")), TaggedSentence(("b",), ("V",))], known)
    loss, count, _ = TagStep(model)(batch)
    assert count.item() == 4
    softplus = [math.log(1 + math.exp(x)) for x in (-2, 1, 0, -1)]
    assert loss.item() == pytest.approx(
        sum(softplus), rel=1e-5
    )  # a CRF with zero transitions scores words independently
    assert all(p.grad is None for p in model.parameters())
    loss.backward()
    assert model.output.weight.grad is not None
