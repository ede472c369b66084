"""Recurrent language models against torch's own cells, token by token."""

import math

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.models.recurrent_lm import RecurrentLm, RecurrentLmConfig

CELLS = ["rnn", "gru", "lstm"]
SETTINGS = [
    {"cell": "rnn", "tied": False},
    {"cell": "gru", "tied": False, "layers": 2, "learn_initial_state": True},
    {"cell": "lstm", "layers": 2},
    {"cell": "lstm", "embedding": 5, "learn_initial_state": True},
]
TOKENS = torch.tensor([[2, 5, 4, 9, 6, 6], [2, 7, 8, 4, 5, 1]])


def make(**settings):
    """A small model in float64, in which no parameter is zero."""
    torch.manual_seed(6)
    sizes = {"vocab_size": 10, "embedding": 4, "hidden": 5, "dropout": 0.0}
    model = RecurrentLm(RecurrentLmConfig(**{**sizes, **settings})).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def build_cells(model):
    """Torch's own cells, with the parameters of the model's layers."""
    kind = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[model.config.cell]
    actual = []
    for weights in model.stack.layers.stack.all_weights:
        cell = kind(weights[0].shape[1], model.config.hidden).double()
        for name, weight in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True):
            delattr(cell, name)
            setattr(cell, name, weight)  # the very parameter, for its gradient
        actual.append(cell)
    return actual


def by_cells(model, tokens):
    """The logits of some texts, and the last states of all layers."""
    config, vocabulary = model.config, model.vocabulary
    zero, cells = torch.zeros(len(tokens), config.hidden).double(), build_cells(model)
    starts = [zero + h for h in model.stack.start] if config.learn_initial_state else [zero] * config.layers
    states = [(h, zero) if config.cell == "lstm" else h for h in starts]
    scale, actual = math.sqrt(config.embedding) if config.tied else 1, []
    for column in tokens.unbind(1):
        x = scale * vocabulary.embedding.weight[column]
        for layer, cell in enumerate(cells):
            states[layer] = cell(x, states[layer])
            x = states[layer][0] if config.cell == "lstm" else states[layer]
        if config.tied:
            x = x @ vocabulary.project.weight.mT if config.embedding != config.hidden else x
            actual.append(x @ vocabulary.embedding.weight.mT + vocabulary.bias)
        else:
            actual.append(x @ vocabulary.output.weight.mT + vocabulary.output.bias)
    return torch.stack(actual, 1), [part for s in states for part in (s if config.cell == "lstm" else (s,))]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_model_is_made_of_torchs_cells(settings):
    model = make(**settings)
    logits, carried = model(TOKENS)
    expected, states = by_cells(model, TOKENS)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(list(carried), states)
    actual = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
    torch.testing.assert_close(actual, torch.autograd.grad(expected.square().sum(), list(model.parameters())))
    assert all(tensor.any() for tensor in actual)


@pytest.mark.parametrize("settings", SETTINGS)
def test_segments_are_as_the_whole_with_their_gradient(settings):
    model = make(**settings)
    expected, last = model(TOKENS)
    actual, carried = [], None
    for part in TOKENS.split([1, 3, 2], 1):
        logits, carried = model(part, carried)
        actual.append(logits)
    torch.testing.assert_close(torch.cat(actual, 1), expected)
    torch.testing.assert_close(carried, last)
    gradients = [
        torch.autograd.grad(x.square().sum(), list(model.parameters())) for x in (torch.cat(actual, 1), expected)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prefix", [1, 4])
def test_steps_are_as_the_whole(settings, prefix):
    model = make(**settings)
    expected, _ = model(TOKENS)
    state = model.start(TOKENS[:, :prefix], capacity=9, copies=2)
    for position in range(prefix - 1, 6):
        logits, state = model.step(TOKENS[:, position].repeat_interleave(2), state)
        torch.testing.assert_close(logits, expected[:, position].repeat_interleave(2, 0))


@pytest.mark.parametrize("cell", CELLS)
def test_rows_are_selected(cell):
    model = make(cell=cell, layers=2)
    state = model.start(TOKENS[:, :4], 9, copies=2)
    _, state = model.step(torch.tensor([4, 5, 6, 7]), state)
    state.select(torch.tensor([1, 1, 3, 2]))
    logits, _ = model.step(torch.tensor([8, 9, 8, 9]), state)
    texts = [[*TOKENS[text, :3].tolist(), *more] for text, *more in [(0, 5, 8), (0, 5, 9), (1, 7, 8), (1, 6, 9)]]
    torch.testing.assert_close(logits, by_cells(model, torch.tensor(texts))[0][:, -1].detach())


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_logit_depends_on_a_later_token(settings):
    model = make(**settings)
    changed = TOKENS.clone()
    changed[:, 3:] = 1
    before, after = model(TOKENS)[0], model(changed)[0]
    torch.testing.assert_close(before[:, :3], after[:, :3], rtol=0, atol=1e-12)
    assert not torch.isclose(before[:, 3], after[:, 3]).any()


@pytest.mark.parametrize("name", ["input_dropout", "output_dropout", "embedding_dropout", "weight_dropout", "dropout"])
def test_each_dropout_can_be_had_alone_and_in_training_alone(name):
    none = {"dropout": 0.0, "input_dropout": 0.0, "output_dropout": 0.0}
    model = make(layers=2, **{**none, name: 0.5})
    assert not torch.equal(model(TOKENS)[0], model(TOKENS)[0])
    model.eval()
    assert torch.equal(model(TOKENS)[0], model(TOKENS)[0])
    torch.testing.assert_close(model(TOKENS)[0], make(layers=2)(TOKENS)[0])


def test_dropout_is_that_of_input_and_output_unless_they_say_otherwise():
    model = RecurrentLm(RecurrentLmConfig(vocab_size=10, dropout=0.25, output_dropout=0.5))
    assert (model.input_dropout.share, model.output_dropout.share) == (0.25, 0.5)


@pytest.mark.parametrize("variational", [True, False])
def test_variational_features_miss_the_same_at_all_steps(variational):
    model = make(output_dropout=0.5, variational_dropout=variational)
    features, _ = model.read(TOKENS)
    missing = features == 0
    assert missing.any()
    assert (missing == missing[:, :1]).all() == variational


def test_a_text_of_no_tokens_leaves_what_is_carried():
    model = make(layers=2, learn_initial_state=True)
    features, carried = model.read(TOKENS[:, :0])
    assert features.shape == (2, 0, 5)
    torch.testing.assert_close([h[1] for h in carried[::2]], list(model.stack.start))
    assert not any(c.any() for c in carried[1::2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"input_dropout": 1.0}, "input_dropout must be at least 0 and below 1, got 1.0"),
        ({"weight_dropout": -0.5}, "weight_dropout must be at least 0 and below 1, got -0.5"),
    ],
)
def test_what_cannot_be_is_said(settings, message):
    with pytest.raises(RegardError) as raised:
        RecurrentLmConfig(vocab_size=10, **settings)
    assert str(raised.value) == message
