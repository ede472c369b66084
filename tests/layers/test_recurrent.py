import pytest
import torch
from torch import nn

from regard import RegardError
from regard.layers.recurrent import Recurrent

CELLS = ["rnn", "gru", "lstm"]


def stack(cell, **settings):
    """In float64, with biases that are not zero."""
    torch.manual_seed(3)
    layer = Recurrent(cell, 3, 5, **settings).double()
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize("cell", CELLS)
def test_steps_are_torchs_own_sequence(cell):
    layer = stack(cell, layers=2)
    inputs = torch.randn(4, 6, 3, dtype=torch.float64)
    kind = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell]
    twin = kind(3, 5, 2, batch_first=True).double()
    twin.load_state_dict(layer.stack.state_dict())
    wanted, last = twin(inputs)
    state, found = layer.zeros(4, inputs), []
    for each in inputs.unbind(1):
        top, state = layer.step(each, state)
        found.append(top)
    torch.testing.assert_close(torch.stack(found, 1), wanted)
    h, *c = last if cell == "lstm" else (last,)
    torch.testing.assert_close(torch.stack([part[0] for part in state]), h)
    assert len(state[0]) == 1 + len(c)
    if c:
        torch.testing.assert_close(torch.stack([part[1] for part in state]), c[0])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_padding_is_not_read(cell, bidirectional):
    layer = stack(cell, layers=2, bidirectional=bidirectional)
    inputs, lengths = torch.randn(3, 7, 3, dtype=torch.float64), [4, 7, 1]
    states, last = layer(inputs, torch.tensor(lengths))
    alone = [layer(inputs[i : i + 1, :n]) for i, n in enumerate(lengths)]
    for i, (n, (wanted, end)) in enumerate(zip(lengths, alone, strict=True)):
        torch.testing.assert_close(states[i, :n], wanted[0])
        assert not states[i, n:].any()
        for found, expected in zip(last, end, strict=True):
            torch.testing.assert_close([part[i] for part in found], [part[0] for part in expected])
    sums = [sum(out.square().sum() for out in (s, *(p for e in end for p in e))) for s, end in [(states, last), *alone]]
    found = torch.autograd.grad(sums[0], list(layer.parameters()))
    torch.testing.assert_close(found, torch.autograd.grad(sum(sums[1:]), list(layer.parameters())))


@pytest.mark.parametrize("cell", CELLS)
def test_a_given_state_is_where_padded_sequences_begin_too(cell):
    layer = stack(cell, layers=2)
    inputs = torch.randn(2, 4, 3, dtype=torch.float64)
    begin = [tuple(torch.randn_like(part) for part in each) for each in layer.zeros(2, inputs)]
    wanted, _ = layer(inputs, state=begin)
    found, _ = layer(inputs, torch.tensor([4, 2]), begin)
    torch.testing.assert_close(found[0], wanted[0])
    torch.testing.assert_close(found[1, :2], wanted[1, :2])


def test_of_two_directions_the_one_that_ends_at_the_beginning_is_remembered():
    layer = stack("gru", bidirectional=True)
    states, ((h,),) = layer(torch.randn(2, 4, 3, dtype=torch.float64))
    torch.testing.assert_close(h, states[:, 0, 5:])


def test_dropout_falls_between_layers_in_training_alone():
    layer = stack("gru", layers=2, dropout=0.5)
    inputs = torch.ones(2, 3, 3, dtype=torch.float64)
    for lengths in (None, torch.tensor([3, 2])):
        assert not torch.equal(layer(inputs, lengths)[0], layer(inputs, lengths)[0])
    state = layer.zeros(2, inputs)
    assert not torch.equal(layer.step(inputs[:, 0], state)[0], layer.step(inputs[:, 0], state)[0])
    layer.eval()
    assert torch.equal(layer(inputs)[0], layer(inputs)[0])
    assert torch.equal(layer.step(inputs[:, 0], state)[0], layer.step(inputs[:, 0], state)[0])


def test_the_start_is_orthogonal_and_remembers():
    layer = Recurrent("lstm", 3, 5)
    for gate in layer.stack.weight_hh_l0.chunk(4):
        torch.testing.assert_close(gate @ gate.mT, torch.eye(5))
    assert (layer.stack.bias_ih_l0 + layer.stack.bias_hh_l0).tolist() == [0] * 5 + [1] * 5 + [0] * 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recurrent("gnu", 3, 5), 'cell: there is no "gnu"; did you mean "gru"?'),
        (lambda: Recurrent("gru", 3, 5, 0), "Recurrent: layers is 0; 1 is the least"),
        (
            lambda: stack("gru", bidirectional=True).step(torch.zeros(1, 3), []),
            "Recurrent: a stack that reads both ways cannot go step by step",
        ),
    ],
)
def test_what_cannot_be_is_said(make, message):
    with pytest.raises(RegardError) as raised:
        make()
    assert str(raised.value) == message
