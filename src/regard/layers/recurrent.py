"""Recurrent layers that run on whole sequences, as fast as torch's own, or one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.attention.shared_context import run_uncompiled
from regard.errors import RegardError, refuse_less, unknown_name
from regard.layers.dropout import drop, drop_for_all_steps
from regard.layers.lengths import AnyLengths, SequenceLengths, to_device

Cell = Literal["rnn", "rnn-sigmoid", "gru", "lstm"]

LayerState = tuple[Tensor, ...]
"""The state of one layer, each tensor (batch, hidden): its output h, and for an LSTM its cell c."""

LAYER_CLASSES: dict[str, Callable[..., nn.RNNBase]] = {
    "rnn": nn.RNN,
    "rnn-sigmoid": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
RUNS: dict[str, Callable[..., Any]] = {"rnn": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}

GATE_HOLDS = {"gru": (0.0, 1e4, 0.0), "lstm": (-1e4, 1e4, 0.0, 0.0)}
"""Values added to the gates of a cell that make it keep its state and ignore its input."""


class Recurrent(nn.Module):
    """A stack of recurrent layers.

    Args:
        cell: `rnn` (tanh), `rnn-sigmoid`, `gru` or `lstm`.
        inputs: Width of the inputs.
        hidden: Width of a state; the outputs of a bidirectional stack are twice as wide.
        layers: Number of layers.
        bidirectional: Whether to read sequences backward, too.
        dropout: Fraction dropped between layers in training.
        variational: Whether dropout between layers uses the same mask at all steps (Gal and
            Ghahramani 2016).
        weight_dropout: Fraction of the state-to-state weights dropped in training, the same at all
            steps of a call (DropConnect, as in Merity et al. 2018).
    """

    def __init__(
        self,
        cell: str,
        inputs: int,
        hidden: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        variational: bool = False,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if cell not in LAYER_CLASSES:
            raise unknown_name("cell", cell, LAYER_CLASSES)
        refuse_less("Recurrent", 1, inputs=inputs, hidden=hidden, layers=layers)
        for name, share in (("dropout", dropout), ("weight_dropout", weight_dropout)):
            if not 0 <= share < 1:
                raise RegardError(f"Recurrent: {name} must be at least 0 and below 1, got {share}")
        self.cell, self.layers, self.hidden = cell, layers, hidden
        self.bidirectional, self.dropout = bidirectional, dropout
        self.variational, self.weight_dropout = variational, weight_dropout
        self.directions = 2 if bidirectional else 1
        self.width = self.directions * hidden
        between = dropout if layers > 1 else 0.0
        self.stack = LAYER_CLASSES[cell](
            inputs, hidden, layers, batch_first=True, dropout=between, bidirectional=bidirectional
        )
        init_parameters(self.stack)

    def forward(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: AnyLengths | None = None,
        state: Sequence[LayerState] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """Return the states at all steps and the last state of each layer.

        With `lengths`, padding is not read in either direction, its states are zero, and the last state
        is that at the end of each sequence. For a bidirectional stack, the last state is that of the
        backward direction, after it has read the whole sequence.
        """
        return run_uncompiled(self._run, inputs, lengths, state)

    def _run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: AnyLengths | None,
        state: Sequence[LayerState] | None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """Run all layers in the fastest way."""
        if runs_in_half(inputs):
            with torch.autocast("cuda", enabled=False):
                dtype = self.stack.all_weights[0][0].dtype
                cast_state = None if state is None else [tuple(part.to(dtype) for part in layer) for layer in state]
                return self._run(inputs.to(dtype), lengths, cast_state)
        lengths = None if lengths is None else SequenceLengths.of(lengths, inputs.device)
        if lengths is not None and lengths.has_no_padding(inputs.shape[1]):
            lengths = None
        if self.cell == "rnn-sigmoid":
            return self._run_sigmoid(inputs, lengths, state)
        drops = self.training and self.dropout > 0 and self.layers > 1
        faster = inputs.is_cpu and (drops or lengths is not None) and (lengths is None or self.cell in GATE_HOLDS)
        if faster or self._drops_for_all_steps():
            return self._run_by_layer(inputs, lengths, state)
        initial_state = None if state is None else self._stack_state(state)
        if lengths is None:
            states, last = self.stack(inputs, initial_state)
        else:
            states, last = self.stack(pack_sequences(inputs, lengths), initial_state)
            states = unpack_sequences(states, inputs.shape[1])
        parts = last if isinstance(last, tuple) else (last,)
        ends = (part[self.directions - 1 :: self.directions].unbind() for part in parts)
        return states, list(zip(*ends, strict=True))

    def run_first_layer(
        self, inputs: Float[Tensor, "batch time inputs"], lengths: AnyLengths | None = None
    ) -> Float[Tensor, "batch time width"]:
        """Return the states of the first layer at all steps, without running the other layers.

        In a bidirectional stack this is the only layer whose forward half depends only on earlier
        steps, and whose backward half depends only on later ones.
        """
        return run_uncompiled(self._run_first_layer, inputs, lengths)

    def _run_first_layer(
        self, inputs: Float[Tensor, "batch time inputs"], lengths: AnyLengths | None
    ) -> Float[Tensor, "batch time width"]:
        """Run the first layer in the fastest way."""
        if runs_in_half(inputs):
            with torch.autocast("cuda", enabled=False):
                return self._run_first_layer(inputs.to(self.stack.all_weights[0][0].dtype), lengths)
        lengths = None if lengths is None else SequenceLengths.of(lengths, inputs.device)
        if self.layers == 1:
            return self(inputs, lengths)[0]
        if self.cell == "rnn-sigmoid":
            return self._run_sigmoid(inputs, lengths, None, layers=1)[0]
        if lengths is None or self.cell in GATE_HOLDS:
            return self._run_by_layer(inputs, lengths, None, layers=1)[0]
        rows = pack_sequences(inputs, lengths)
        initial_state = inputs.new_zeros(self.directions, len(inputs), self.hidden)
        weights = self._get_weights(0, hold=False)
        states, _ = torch.rnn_tanh(
            rows.data, rows.batch_sizes, initial_state, weights, True, 1, 0.0, True, self.bidirectional
        )
        return unpack_sequences(PackedSequence(states, *rows[1:]), inputs.shape[1])

    def _drops_for_all_steps(self) -> bool:
        """Return whether dropout is active that torch's own layers do not support."""
        return self.training and bool(self.weight_dropout or (self.variational and self.dropout and self.layers > 1))

    def _run_by_layer(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: SequenceLengths | None,
        state: Sequence[LayerState] | None,
        layers: int | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """Run all layers, or the first few, one by one, with gates held at padding.

        Held gates leave the state unchanged, so the backward direction effectively starts at the end
        of the sequence. They are held by one more input, which is 1 at padding and 0 elsewhere. On a
        CPU, the backward pass of torch's packed sequences takes time quadratic in the length.
        """
        if lengths is not None:
            self._check_padding()
        real = None if lengths is None else lengths.real(inputs.shape[1])
        last_states = []
        for layer in range(layers or self.layers):
            inputs = inputs if layer == 0 else self._drop_between(inputs)
            joined = inputs if real is None else torch.cat([inputs, (~real).to(inputs.dtype)], -1)
            first = self.zero_state(len(inputs), inputs)[0] if state is None else state[layer]
            inputs, *last = self._run_layer(joined, first, self._get_weights(layer, hold=lengths is not None))
            h = last[0][-1]
            if lengths is not None and not self.bidirectional:
                h = inputs[torch.arange(len(inputs), device=inputs.device), lengths.on_device - 1]
            last_states.append((h, *(c[-1] for c in last[1:])))
        return inputs if real is None else inputs * real, last_states

    def _run_sigmoid(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: SequenceLengths | None,
        state: Sequence[LayerState] | None,
        layers: int | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """Run all layers, or the first few, of the sigmoid cell h = sigmoid(W x + U h + b), which torch lacks.

        With h = (1 + t) / 2 it is t = tanh((W x + U / 2 t + b + U / 2 1) / 2), torch's tanh layer with other weights.
        """
        if lengths is not None and self._drops_for_all_steps():
            self._check_padding()
        last_states: list[LayerState] = []
        for layer in range(layers or self.layers):
            inputs = inputs if layer == 0 else self._drop_between(inputs)
            weights = to_tanh_weights(self._get_weights(layer, hold=False))
            h = self.zero_state(len(inputs), inputs)[0][0] if state is None else state[layer][0]
            first = (2 * h - 1).expand(self.directions, -1, -1)
            options = (True, 1, 0.0, True, self.bidirectional)
            if lengths is None:
                inputs, last = torch.rnn_tanh(inputs, first.contiguous(), weights, *options, True)
                inputs = (1 + inputs) / 2
            else:
                rows = pack_sequences(inputs, lengths)
                assert rows.sorted_indices is not None and rows.unsorted_indices is not None
                states, last = torch.rnn_tanh(
                    rows.data, rows.batch_sizes, first[:, rows.sorted_indices].contiguous(), weights, *options
                )
                inputs = unpack_sequences(PackedSequence((1 + states) / 2, *rows[1:]), inputs.shape[1])
                last = last[:, rows.unsorted_indices]
            last_states.append(((1 + last[-1]) / 2,))
        return inputs, last_states

    def _check_padding(self) -> None:
        """Raise a `RegardError` for a cell that cannot hold its state at padding."""
        if self.cell not in GATE_HOLDS:
            raise RegardError(
                f'Recurrent: cell "{self.cell}" cannot combine padding with variational or weight_dropout; '
                "choose from gru, lstm"
            )

    def _drop_between(self, inputs: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        """Apply dropout between two layers."""
        if self.variational:
            return drop_for_all_steps(inputs, self.dropout, self.training)
        return drop(inputs, self.dropout, self.training)

    def _get_weights(self, layer: int, *, hold: bool) -> list[Tensor]:
        """Return the weights of one layer in all directions, after weight dropout."""
        weights: list[Tensor] = []
        for direction in range(self.directions):
            from_inputs, from_state, *biases = self.stack.all_weights[self.directions * layer + direction]
            weights.append(add_hold_column(from_inputs, self.cell) if hold else from_inputs)
            weights += [drop(from_state, self.weight_dropout, self.training), *biases]
        return flatten_weights(weights) if weights[0].is_cuda else weights

    def _run_layer(self, inputs: Float[Tensor, "batch time inputs"], first: LayerState, weights: list[Tensor]) -> Any:
        """Run one layer: its states at all steps, and the last h and c, (directions, batch, hidden)."""
        initial = [part.expand(self.directions, -1, -1).contiguous() for part in first]
        initial_state = initial if self.cell == "lstm" else initial[0]
        return RUNS[self.cell](inputs, initial_state, weights, True, 1, 0.0, True, self.bidirectional, True)

    def step(
        self, inputs: Float[Tensor, "batch inputs"], state: Sequence[LayerState]
    ) -> tuple[Float[Tensor, "batch hidden"], list[LayerState]]:
        """Run one step of every layer; return the output of the last layer and the new states."""
        return run_uncompiled(self._step, inputs, state)

    def _step(
        self, inputs: Float[Tensor, "batch inputs"], state: Sequence[LayerState]
    ) -> tuple[Float[Tensor, "batch hidden"], list[LayerState]]:
        """Run one step of every layer."""
        if self.bidirectional:
            raise RegardError("Recurrent: step does not support bidirectional layers")
        if self._drops_for_all_steps():
            raise RegardError(
                "Recurrent: step does not support variational or weight_dropout in training; call eval() first"
            )
        new_state: list[LayerState] = []
        for layer, before in enumerate(state):
            if layer and self.dropout:
                inputs = drop(inputs, self.dropout, self.training)
            weights = self.stack.all_weights[layer]
            after = STEPS[self.cell](inputs, before if self.cell == "lstm" else before[0], *weights)
            new_state.append(after if isinstance(after, tuple) else (after,))
            inputs = new_state[-1][0]
        return inputs, new_state

    def zero_state(self, batch: int, like: Float[Tensor, "..."]) -> list[LayerState]:
        """Return the initial state, zeros."""
        parts = 2 if self.cell == "lstm" else 1
        return [tuple(like.new_zeros(batch, self.hidden) for _ in range(parts)) for _ in range(self.layers)]

    def _stack_state(self, state: Sequence[LayerState]) -> Tensor | tuple[Tensor, ...]:
        """Stack states for torch's layers: (layers, batch, hidden), a pair for an LSTM."""
        parts = tuple(torch.stack(part) for part in zip(*state, strict=True))
        return parts if self.cell == "lstm" else parts[0]


def sigmoid_cell(
    inputs: Float[Tensor, "batch inputs"],
    state: Float[Tensor, "batch hidden"],
    from_inputs: Float[Tensor, "hidden inputs"],
    from_state: Float[Tensor, "hidden hidden"],
    *biases: Float[Tensor, " hidden"],
) -> Float[Tensor, "batch hidden"]:
    """Run one step of the sigmoid cell."""
    return torch.sigmoid(inputs @ from_inputs.mT + state @ from_state.mT + sum(biases))


STEPS: dict[str, Callable[..., Any]] = {
    "rnn": torch.rnn_tanh_cell,
    "rnn-sigmoid": sigmoid_cell,
    "gru": torch.gru_cell,
    "lstm": torch.lstm_cell,
}


def to_tanh_weights(weights: Sequence[Tensor]) -> list[Tensor]:
    """Convert the weights of the sigmoid cell, four per direction, to those of the tanh cell that computes 2 h - 1."""
    converted: list[Tensor] = []
    for start in range(0, len(weights), 4):
        from_inputs, from_state, *biases = weights[start : start + 4]
        converted += [from_inputs / 2, from_state / 4, biases[0] / 2, biases[1] / 2 + from_state.sum(1) / 4]
    return flatten_weights(converted) if converted[0].is_cuda else converted


def runs_in_half(inputs: Float[Tensor, "..."]) -> bool:
    """Return whether cuDNN's layers would compute in float16, as they do under autocast to any type.

    The range of float16 is too small for training without loss scaling, and float32, where a GPU may use TF32, takes
    little longer. A single `step` runs in the autocast type.
    """
    return inputs.is_cuda and torch.is_autocast_enabled("cuda")


def pack_sequences(inputs: Float[Tensor, "batch time inputs"], lengths: SequenceLengths) -> PackedSequence:
    """Pack sequences without their padding, sorted by length.

    torch can sort them itself, but would wait for the device when sorting and when restoring the order.
    """
    ordered, order = torch.sort(lengths.on_host, descending=True)
    sorted_indices, unsorted_indices = (to_device(indices, inputs.device) for indices in (order, order.argsort()))
    rows = pack_padded_sequence(inputs.index_select(0, sorted_indices), ordered, batch_first=True)
    return PackedSequence(rows.data, rows.batch_sizes, sorted_indices, unsorted_indices)


def unpack_sequences(rows: PackedSequence, size: int) -> Float[Tensor, "batch time width"]:
    """Unpack states in the original order of the sequences, with zeros at padding."""
    assert rows.unsorted_indices is not None
    ordered, _ = pad_packed_sequence(PackedSequence(rows.data, rows.batch_sizes), batch_first=True, total_length=size)
    return ordered.index_select(0, rows.unsorted_indices)


def flatten_weights(weights: list[Tensor]) -> list[Tensor]:
    """Return the weights as views of one buffer, matrices first.

    cuDNN requires this layout; otherwise it copies the weights at every call and warns.
    """
    order = sorted(range(len(weights)), key=lambda index: -weights[index].ndim)
    flat = torch.cat([weights[index].flatten() for index in order])
    parts = dict(zip(order, flat.split([weights[index].numel() for index in order]), strict=True))
    return [parts[index].view_as(weight) for index, weight in enumerate(weights)]


def add_hold_column(weight: Float[Tensor, "gates inputs"], cell: str) -> Float[Tensor, "gates more_inputs"]:
    """Add a column to an input matrix that holds the gates of a cell."""
    gate_size = len(weight) // len(GATE_HOLDS[cell])
    column = torch.cat([weight.new_full((gate_size, 1), gate) for gate in GATE_HOLDS[cell]])
    return torch.cat([weight, column], -1)


def init_parameters(stack: nn.RNNBase) -> None:
    """Initialize each gate with an orthogonal recurrent matrix, a Glorot input matrix and zero bias.

    The forget gate bias of an LSTM is initialized to 1, so that the cell remembers by default (Gers
    et al. 2000).
    """
    gates = {"GRU": 3, "LSTM": 4}.get(stack.mode, 1)
    with torch.no_grad():
        for name, parameter in stack.named_parameters():
            for gate, part in enumerate(parameter.chunk(gates)):
                if name.startswith("weight_hh"):
                    nn.init.orthogonal_(part)
                elif name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(part)
                else:
                    nn.init.constant_(part, float(gates == 4 and gate == 1 and name.startswith("bias_ih")))
