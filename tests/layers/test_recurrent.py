import pytest
import torch
from torch import nn

from regard import RegardError
from regard.layers.dropout import VariationalDropout
from regard.layers.recurrent import Recurrent, flatten_weights

CELLS = ["rnn", "gru", "lstm"]
ALL_CELLS = [*CELLS, "rnn-sigmoid"]


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
    expected, last = twin(inputs)
    state, states = layer.zero_state(4, inputs), []
    for each in inputs.unbind(1):
        top, state = layer.step(each, state)
        states.append(top)
    torch.testing.assert_close(torch.stack(states, 1), expected)
    h, *c = last if cell == "lstm" else (last,)
    torch.testing.assert_close(torch.stack([part[0] for part in state]), h)
    assert len(state[0]) == 1 + len(c)
    if c:
        torch.testing.assert_close(torch.stack([part[1] for part in state]), c[0])


@pytest.mark.parametrize("backward", [False, True])
def test_the_sigmoid_cell_follows_its_formula(backward):
    """The states of h = sigmoid(W x + U h + b + c), of which torch has no sequence, and of its steps."""
    layer = stack("rnn-sigmoid", layers=2, bidirectional=backward)
    inputs = expected = torch.randn(4, 6, 3, dtype=torch.float64)
    for number in range(2):
        sides = []
        for w, u, b, c in layer.stack.all_weights[number * (1 + backward) : (number + 1) * (1 + backward)]:
            state, states = torch.zeros(4, 5, dtype=torch.float64), []
            for x in (expected.flip(1) if sides else expected).unbind(1):
                state = torch.sigmoid(x @ w.T + state @ u.T + b + c)
                states.append(state)
            sides.append(torch.stack(states, 1).flip(1) if sides else torch.stack(states, 1))
        expected = torch.cat(sides, -1)
    states, last = layer(inputs)
    torch.testing.assert_close(states, expected)
    torch.testing.assert_close(last[1][0], expected[:, 0, 5:] if backward else expected[:, -1])
    gradients = [torch.autograd.grad(x.square().sum(), list(layer.parameters())) for x in (states, expected)]
    torch.testing.assert_close(*gradients)
    if not backward:
        state = layer.zero_state(4, inputs)
        for place, x in enumerate(inputs.unbind(1)):
            top, state = layer.step(x, state)
            torch.testing.assert_close(top, expected[:, place])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ALL_CELLS)
def test_padding_is_not_read(cell, bidirectional):
    layer = stack(cell, layers=2, bidirectional=bidirectional)
    inputs, lengths = torch.randn(3, 7, 3, dtype=torch.float64), [4, 7, 1]
    states, last = layer(inputs, torch.tensor(lengths))
    alone = [layer(inputs[i : i + 1, :n]) for i, n in enumerate(lengths)]
    for i, (n, (expected, end)) in enumerate(zip(lengths, alone, strict=True)):
        torch.testing.assert_close(states[i, :n], expected[0])
        assert not states[i, n:].any()
        for state, expected_state in zip(last, end, strict=True):
            torch.testing.assert_close([part[i] for part in state], [part[0] for part in expected_state])
    sums = [sum(out.square().sum() for out in (s, *(p for e in end for p in e))) for s, end in [(states, last), *alone]]
    gradients = torch.autograd.grad(sums[0], list(layer.parameters()))
    torch.testing.assert_close(gradients, torch.autograd.grad(sum(sums[1:]), list(layer.parameters())))


@pytest.mark.parametrize("cell", ALL_CELLS)
def test_a_given_state_is_where_padded_sequences_begin_too(cell):
    layer = stack(cell, layers=2)
    inputs = torch.randn(2, 4, 3, dtype=torch.float64)
    begin = [tuple(torch.randn_like(part) for part in each) for each in layer.zero_state(2, inputs)]
    expected, _ = layer(inputs, state=begin)
    states, _ = layer(inputs, torch.tensor([4, 2]), begin)
    torch.testing.assert_close(states[0], expected[0])
    torch.testing.assert_close(states[1, :2], expected[1, :2])


def test_of_two_directions_the_one_that_ends_at_the_beginning_is_remembered():
    layer = stack("gru", bidirectional=True)
    states, ((h,),) = layer(torch.randn(2, 4, 3, dtype=torch.float64))
    torch.testing.assert_close(h, states[:, 0, 5:])


def test_dropout_falls_between_layers_in_training_alone():
    layer = stack("gru", layers=2, dropout=0.5)
    inputs = torch.ones(2, 3, 3, dtype=torch.float64)
    for lengths in (None, torch.tensor([3, 2])):
        assert not torch.equal(layer(inputs, lengths)[0], layer(inputs, lengths)[0])
    state = layer.zero_state(2, inputs)
    assert not torch.equal(layer.step(inputs[:, 0], state)[0], layer.step(inputs[:, 0], state)[0])
    layer.eval()
    assert torch.equal(layer(inputs)[0], layer(inputs)[0])
    assert torch.equal(layer.step(inputs[:, 0], state)[0], layer.step(inputs[:, 0], state)[0])


def test_the_start_is_orthogonal_and_remembers():
    layer = Recurrent("lstm", 3, 5)
    for gate in layer.stack.weight_hh_l0.chunk(4):
        torch.testing.assert_close(gate @ gate.mT, torch.eye(5))
    assert (layer.stack.bias_ih_l0 + layer.stack.bias_hh_l0).tolist() == [0] * 5 + [1] * 5 + [0] * 10


def by_cells(layer, inputs, masks, weights):
    """torch's cells, step by step and layer by layer, with masks applied to the inputs of each layer."""
    kind = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[layer.cell]
    rows, ends = list(inputs.unbind(1)), []
    for number in range(layer.layers):
        cell = kind(rows[0].shape[-1], layer.hidden).double()
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict(dict(zip(names, weights[number], strict=True)))
        state, states = None, []
        for x in rows:
            state = cell(x * masks[number], state)
            states.append(state[0] if layer.cell == "lstm" else state)
        rows = states
        ends.append(state if layer.cell == "lstm" else (state,))
    return torch.stack(rows, 1), ends


def drawn(shape, share):
    """A scaled dropout mask of a shape."""
    return (torch.rand(shape) >= share).double() / (1 - share)


@pytest.mark.parametrize("cell", CELLS)
def test_what_is_dropped_for_all_steps_is_what_torchs_cells_miss(cell):
    layer = stack(cell, layers=2, dropout=0.5, variational=True, weight_dropout=0.4)
    inputs = torch.randn(4, 6, 3, dtype=torch.float64)
    torch.manual_seed(9)
    states, last = layer(inputs)
    torch.manual_seed(9)  # in the order in which they are drawn
    weights = [list(each) for each in layer.stack.all_weights]
    weights[0][1] = weights[0][1].detach() * drawn(weights[0][1].shape, 0.4)
    between = drawn((4, 1, 5), 0.5)[:, 0]
    weights[1][1] = weights[1][1].detach() * drawn(weights[1][1].shape, 0.4)
    expected, ends = by_cells(layer, inputs, [1, between], weights)
    torch.testing.assert_close(states, expected)
    torch.testing.assert_close(last, ends)
    expected, ends = by_cells(layer, inputs, [1, 1], layer.stack.all_weights)
    states, last = layer.eval()(inputs)
    torch.testing.assert_close(states, expected)
    torch.testing.assert_close(last, ends)


@pytest.mark.parametrize("settings", [{"variational": True}, {"weight_dropout": 0.3}])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_with_nothing_left_to_drop_it_is_torchs_own_stack(settings, bidirectional, monkeypatch):
    plain = stack("gru", layers=2, bidirectional=bidirectional)
    layer = stack("gru", layers=2, bidirectional=bidirectional, dropout=0.5, **settings)
    inputs = torch.randn(3, 4, 3, dtype=torch.float64)
    zeros = None if bidirectional else layer.zero_state(3, inputs)
    begin = zeros and [tuple(torch.randn_like(part) for part in each) for each in zeros]
    for module in ("dropout", "recurrent"):
        monkeypatch.setattr(f"regard.layers.{module}.drop", lambda x, *_: x)
    for lengths in (None, torch.tensor([4, 2, 3])):
        torch.testing.assert_close(layer(inputs, lengths, begin), plain(inputs, lengths, begin))


def test_weights_are_dropped_from_state_to_state_alone():
    layer = stack("gru", weight_dropout=0.5)
    one = torch.randn(2, 1, 3, dtype=torch.float64)
    nothing = layer.eval()(one)[0]
    layer.train()
    torch.testing.assert_close(layer(one)[0], nothing)  # a state of zeros contributes nothing
    two = one.expand(2, 2, 3)
    assert not torch.equal(layer(two)[0], layer(two)[0])
    (gradient,) = torch.autograd.grad(layer(two)[0].sum(), layer.stack.weight_hh_l0)
    assert 0 < (gradient == 0).sum() < gradient.numel()


def test_gradients_pass_what_is_dropped():
    layer = stack("lstm", layers=2, dropout=0.5, variational=True, weight_dropout=0.4)
    inputs = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)

    def run(*_):
        torch.manual_seed(4)
        return layer(inputs)[0]

    assert torch.autograd.gradcheck(run, (inputs, *layer.parameters()))


def test_variational_dropout_is_the_same_at_all_steps():
    torch.manual_seed(5)
    layer = VariationalDropout(0.25)
    dropped = layer(torch.ones(200, 3, 7))
    assert torch.equal(dropped[:, :1].expand_as(dropped), dropped)
    assert dropped.unique().tolist() == [0, pytest.approx(4 / 3)]
    assert dropped[:, 0].mean().item() == pytest.approx(1, abs=0.07)  # four standard deviations
    assert not torch.equal(layer(torch.ones(200, 3, 7)), dropped)
    assert torch.equal(layer.eval()(dropped), dropped)


def test_weights_lie_in_one_piece_matrices_first():
    weights = [torch.randn(6, 3), torch.randn(6, 2), torch.randn(6), torch.randn(6), torch.randn(6, 3)]
    flat = flatten_weights(weights)
    torch.testing.assert_close(flat, weights)
    assert [weight.storage_offset() for weight in flat] == [0, 18, 48, 54, 30]
    assert len({weight.untyped_storage().data_ptr() for weight in flat}) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_a_gpu_does_the_same_without_a_warning(cell, bidirectional, monkeypatch):
    layer = stack(cell, layers=2, dropout=0.5, variational=True, weight_dropout=0.4, bidirectional=bidirectional)
    inputs = torch.randn(3, 4, 3, dtype=torch.float64)
    for module in ("dropout", "recurrent"):
        monkeypatch.setattr(f"regard.layers.{module}.drop", lambda x, *_: x)
    expected = layer(inputs)[0].detach()
    states = layer.cuda()(inputs.cuda())[0]
    states.sum().backward()
    torch.testing.assert_close(states.detach().cpu(), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", [{}, {"weight_dropout": 0.4}])
@pytest.mark.parametrize("cell", CELLS)
def test_under_autocast_gradients_may_pass_what_float16_holds(cell, settings):
    layer = stack(cell, layers=2, **settings).float().cuda()
    inputs = torch.randn(3, 4, 3, device="cuda").bfloat16()
    begin = [tuple(part.bfloat16() for part in each) for each in layer.zero_state(3, inputs)]
    with torch.autocast("cuda", torch.bfloat16):
        states, last = layer(inputs, state=begin)
        first = layer.run_first_layer(inputs)
    assert {states.dtype, first.dtype, *(part.dtype for each in last for part in each)} == {torch.float32}
    (states.sum() * 1e6).backward()
    assert all(weight.grad.isfinite().all() for weight in layer.stack.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_under_autocast_a_layer_keeps_the_type_of_its_parameters():
    layer = stack("lstm", layers=2).cuda()
    inputs = torch.randn(3, 4, 3, dtype=torch.float64, device="cuda")
    expected = layer(inputs, torch.tensor([4, 2, 1]))[0]
    with torch.autocast("cuda", torch.bfloat16):
        states = layer(inputs.float(), torch.tensor([4, 2, 1]))[0]
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recurrent("gnu", 3, 5), 'unknown cell "gnu"; did you mean "gru"?'),
        (lambda: Recurrent("gru", 3, 5, 0), "Recurrent: layers must be at least 1, got 0"),
        (
            lambda: stack("gru", bidirectional=True).step(torch.zeros(1, 3), []),
            "Recurrent: step does not support bidirectional layers",
        ),
        (
            lambda: Recurrent("gru", 3, 5, dropout=1.0),
            "Recurrent: dropout must be at least 0 and below 1, got 1.0",
        ),
        (
            lambda: Recurrent("gru", 3, 5, weight_dropout=-0.1),
            "Recurrent: weight_dropout must be at least 0 and below 1, got -0.1",
        ),
        (
            lambda: stack("gru", weight_dropout=0.1).step(torch.zeros(1, 3), []),
            "Recurrent: step does not support variational or weight_dropout in training; call eval() first",
        ),
        (
            lambda: stack("rnn", weight_dropout=0.1)(torch.zeros(2, 3, 3).double(), torch.tensor([3, 1])),
            'Recurrent: cell "rnn" cannot combine padding with variational or weight_dropout; choose from gru, lstm',
        ),
    ],
)
def test_what_cannot_be_is_said(make, message):
    with pytest.raises(RegardError) as raised:
        make()
    assert str(raised.value) == message


@pytest.mark.parametrize("lengths", [None, [4, 7, 1]])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ALL_CELLS)
def test_the_first_layer_alone_is_a_stack_of_one_with_its_parameters(cell, layers, lengths):
    layer, one = stack(cell, layers=layers, bidirectional=True, dropout=0.5), stack(cell, bidirectional=True)
    first_layer = {name: parameter for name, parameter in layer.stack.named_parameters() if "_l0" in name}
    one.stack.load_state_dict(first_layer)
    inputs = torch.randn(3, 7, 3, dtype=torch.float64)
    given = None if lengths is None else torch.tensor(lengths)
    states, expected = layer.run_first_layer(inputs, given), one(inputs, given)[0]
    torch.testing.assert_close(states, expected)
    states.square().sum().backward()
    expected.square().sum().backward()
    for name, parameter in layer.stack.named_parameters():
        if name in first_layer:
            torch.testing.assert_close(parameter.grad, one.stack.get_parameter(name).grad)
        else:
            assert parameter.grad is None, name
