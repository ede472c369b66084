"""The fixed-window model against its formula, written out for each position."""

import math

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.batch import PAD
from regard.models.neural_lm import NeuralLm, NeuralLmConfig

SETTINGS = [
    {},
    {"direct": True},
    {"tied": True},
    {"tied": True, "direct": True},
    {"window": 1},
    {"window": 9, "direct": True},
]
TOKENS = torch.tensor([[2, 5, 4, 9, 6, 6], [2, 7, 8, 4, 5, 1]])


def make(**settings):
    """A small model in float64, in which no parameter is zero but the vector of padding; tied, not even that."""
    torch.manual_seed(6)
    sizes = {"vocab_size": 10, "window": 3, "embedding": 4, "hidden": 5, "dropout": 0.0}
    model = NeuralLm(NeuralLmConfig(**{**sizes, **settings})).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    if not model.config.tied:
        model.vocabulary.embedding.weight.data[PAD] = 0
    return model


def by_formula(model, row):
    """b + U tanh(d + H x) + W x of one text, token by token."""
    window, vocabulary = model.config.window, model.vocabulary
    actual = []
    for end in range(1, len(row) + 1):
        seen = row[max(0, end - window) : end]
        scale = math.sqrt(model.config.embedding) if model.config.tied else 1
        vectors = [scale * vocabulary.embedding.weight[token] for token in seen]
        x = torch.cat([torch.zeros((window - len(seen)) * model.config.embedding).double(), *vectors])
        h = torch.tanh(model.hidden.bias + model.hidden.weight @ x)
        if model.config.tied:
            project = getattr(vocabulary.project, "weight", torch.eye(4).double())
            matrix, bias = vocabulary.embedding.weight @ project, vocabulary.bias
        else:
            matrix, bias = vocabulary.output.weight, vocabulary.output.bias
        logits = bias + matrix[:, :5] @ h
        actual.append(logits + matrix[:, 5:] @ x if model.config.direct else logits)
    return torch.stack(actual)


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_model_follows_its_formula(settings):
    model = make(**settings)
    logits, (carried,) = model(TOKENS)
    expected = torch.stack([by_formula(model, row) for row in TOKENS])
    torch.testing.assert_close(logits, expected)
    assert carried.shape == (2, model.config.window - 1)
    actual = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
    torch.testing.assert_close(actual, torch.autograd.grad(expected.square().sum(), list(model.parameters())))
    assert all(tensor.any() for tensor in actual)


@pytest.mark.parametrize("settings", SETTINGS)
def test_segments_are_as_the_whole(settings):
    model = make(**settings)
    expected, last = model(TOKENS)
    actual, carried = [], None
    for part in TOKENS.split([1, 3, 2], 1):
        logits, carried = model(part, carried)
        actual.append(logits)
    torch.testing.assert_close(torch.cat(actual, 1), expected)
    assert torch.equal(carried[0], last[0])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prefix", [1, 4])
def test_steps_are_as_the_whole(settings, prefix):
    model = make(**settings)
    expected, _ = model(TOKENS)
    state = model.start(TOKENS[:, :prefix], capacity=9, copies=2)
    for position in range(prefix - 1, 6):
        logits, state = model.step(TOKENS[:, position].repeat_interleave(2), state)
        torch.testing.assert_close(logits, expected[:, position].repeat_interleave(2, 0))


def test_rows_are_selected():
    model = make()
    state = model.start(TOKENS[:, :4], 9, copies=2)
    _, state = model.step(torch.tensor([4, 5, 6, 7]), state)
    state.select(torch.tensor([1, 1, 3, 2]))
    logits, _ = model.step(torch.tensor([8, 9, 8, 9]), state)
    for row, (text, *more) in enumerate([(0, 5, 8), (0, 5, 9), (1, 7, 8), (1, 6, 9)]):
        expected = by_formula(model, [*TOKENS[text, :3].tolist(), *more])[-1]
        torch.testing.assert_close(logits[row], expected)


def test_no_logit_depends_on_a_later_token_nor_on_one_before_the_window():
    model = make()
    changed = TOKENS.clone()
    changed[:, 3:] = 1
    before, after = model(TOKENS)[0], model(changed)[0]
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])
    changed = TOKENS.clone()
    changed[:, 0] = 1
    after = model(changed)[0]
    assert torch.equal(before[:, 3:], after[:, 3:])  # three tokens are seen
    assert not torch.equal(before[:, 2], after[:, 2])


def test_dropout_is_for_training():
    model = make(dropout=0.5)
    assert not torch.equal(model(TOKENS)[0], model(TOKENS)[0])
    model.eval()
    assert torch.equal(model(TOKENS)[0], model(TOKENS)[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"hidden": -2}, "hidden must be at least 1, got -2"),
        ({"dropout": 1.5}, "dropout must be at least 0 and below 1, got 1.5"),
    ],
)
def test_what_cannot_be_is_said(settings, message):
    with pytest.raises(RegardError) as raised:
        NeuralLmConfig(vocab_size=10, **settings)
    assert str(raised.value) == message
