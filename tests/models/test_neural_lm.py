"""The model of a fixed window against its formula, written out for each place."""

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
    sizes = {"size": 10, "window": 3, "embedding": 4, "hidden": 5, "dropout": 0.0}
    model = NeuralLm(NeuralLmConfig(**{**sizes, **settings})).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    if not model.config.tied:
        model.vocabulary.embedding.weight.data[PAD] = 0
    return model


def by_formula(model, row):
    """b + U tanh(d + H x) + W x of one text, token by token."""
    window, vocabulary = model.config.window, model.vocabulary
    found = []
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
        found.append(logits + matrix[:, 5:] @ x if model.config.direct else logits)
    return torch.stack(found)


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_model_follows_its_formula(settings):
    model = make(**settings)
    logits, (carried,) = model(TOKENS)
    wanted = torch.stack([by_formula(model, row) for row in TOKENS])
    torch.testing.assert_close(logits, wanted)
    assert carried.shape == (2, model.config.window - 1)
    found = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, torch.autograd.grad(wanted.square().sum(), list(model.parameters())))
    assert all(each.any() for each in found)


@pytest.mark.parametrize("settings", SETTINGS)
def test_segments_are_as_the_whole(settings):
    model = make(**settings)
    wanted, last = model(TOKENS)
    found, carried = [], None
    for part in TOKENS.split([1, 3, 2], 1):
        logits, carried = model(part, carried)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), wanted)
    assert torch.equal(carried[0], last[0])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("begun", [1, 4])
def test_steps_are_as_the_whole(settings, begun):
    model = make(**settings)
    wanted, _ = model(TOKENS)
    state = model.start(TOKENS[:, :begun], capacity=9, copies=2)
    for place in range(begun - 1, 6):
        logits, state = model.step(TOKENS[:, place].repeat_interleave(2), state)
        torch.testing.assert_close(logits, wanted[:, place].repeat_interleave(2, 0))


def test_rows_are_selected():
    model = make()
    state = model.start(TOKENS[:, :4], 9, copies=2)
    _, state = model.step(torch.tensor([4, 5, 6, 7]), state)
    state.select(torch.tensor([1, 1, 3, 2]))
    logits, _ = model.step(torch.tensor([8, 9, 8, 9]), state)
    for row, (text, *more) in enumerate([(0, 5, 8), (0, 5, 9), (1, 7, 8), (1, 6, 9)]):
        wanted = by_formula(model, [*TOKENS[text, :3].tolist(), *more])[-1]
        torch.testing.assert_close(logits[row], wanted)


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
        ({"window": 0}, "window is 0; 1 is the least"),
        ({"hidden": -2}, "hidden is -2; 1 is the least"),
        ({"dropout": 1.5}, "dropout is 1.5; a share from 0 to below 1 is needed"),
    ],
)
def test_what_cannot_be_is_said(settings, message):
    with pytest.raises(RegardError) as raised:
        NeuralLmConfig(size=10, **settings)
    assert str(raised.value) == message
