"""Recurrent layers: whole sequences at the speed of torch's own, or one step at a time, with the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.errors import RegardError, refuse_less, unknown_name
from regard.layers.dropout import drop, drop_for_all_steps
from regard.layers.lengths import AnyLengths, SequenceLengths, moved

Cell = Literal["rnn", "gru", "lstm"]

LayerState = tuple[Tensor, ...]
"""What one layer remembers, each (batch, hidden): its output h, and for an LSTM its cell c."""

KINDS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
STEPS: dict[str, Callable[..., Any]] = {"rnn": torch.rnn_tanh_cell, "gru": torch.gru_cell, "lstm": torch.lstm_cell}
RUNS: dict[str, Callable[..., Any]] = {"rnn": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}

HOLDS = {"gru": (0.0, 1e4, 0.0), "lstm": (-1e4, 1e4, 0.0, 0.0)}
"""What is added to each gate of a cell to keep its state: nothing new comes in, all that was there stays."""


class Recurrent(nn.Module):
    """A stack of recurrent layers.

    Args:
        cell: `rnn` (tanh), `gru` or `lstm`.
        inputs: The width of what comes in at each step.
        hidden: The width of a state; one that is read both ways gives twice as much.
        layers: How many.
        bidirectional: Also read from the end to the beginning.
        dropout: The share dropped between layers, in training.
        variational: What is dropped between layers is the same at all steps (Gal and Ghahramani 2016).
        weight_dropout: The share of the matrices from state to state that is dropped in training,
            the same at all steps of a call (DropConnect, as in Merity et al. 2018).
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
        if cell not in KINDS:
            raise unknown_name("cell", cell, KINDS)
        refuse_less("Recurrent", 1, inputs=inputs, hidden=hidden, layers=layers)
        for name, share in (("dropout", dropout), ("weight_dropout", weight_dropout)):
            if not 0 <= share < 1:
                raise RegardError(f"Recurrent: {name} is {share}; a share from 0 to below 1 is needed")
        self.cell, self.layers, self.hidden = cell, layers, hidden
        self.bidirectional, self.dropout = bidirectional, dropout
        self.variational, self.weight_dropout = variational, weight_dropout
        self.directions = 2 if bidirectional else 1
        self.width = self.directions * hidden
        between = dropout if layers > 1 else 0.0
        self.stack = KINDS[cell](inputs, hidden, layers, batch_first=True, dropout=between, bidirectional=bidirectional)
        start_well(self.stack)

    def forward(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: AnyLengths | None = None,
        state: Sequence[LayerState] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """The states at all steps, and what each layer remembers at the end.

        With `lengths` the end is that of each sequence: the padding
        after it is neither read forwards nor backwards, and its states are zero. Of two
        directions the second, which has read the whole from its end, is the one that is
        remembered.
        """
        if would_be_half(inputs):
            with torch.autocast("cuda", enabled=False):
                own = self.stack.all_weights[0][0].dtype
                begin = None if state is None else [tuple(part.to(own) for part in layer) for layer in state]
                return self.forward(inputs.to(own), lengths, begin)
        lengths = None if lengths is None else SequenceLengths.of(lengths, inputs.device)
        if lengths is not None and lengths.fill(inputs.shape[1]):
            lengths = None
        drops = self.training and self.dropout > 0 and self.layers > 1
        faster = inputs.is_cpu and (drops or lengths is not None) and (lengths is None or self.cell in HOLDS)
        if faster or self._drops_for_all_steps():
            return self._by_layer(inputs, lengths, state)
        at_first = None if state is None else self._stacked(state)
        if lengths is None:
            states, last = self.stack(inputs, at_first)
        else:
            states, last = self.stack(packed(inputs, lengths), at_first)
            states = unpacked(states, inputs.shape[1])
        parts = last if isinstance(last, tuple) else (last,)
        ends = (part[self.directions - 1 :: self.directions].unbind() for part in parts)
        return states, list(zip(*ends, strict=True))

    def first_layer(
        self, inputs: Float[Tensor, "batch time inputs"], lengths: AnyLengths | None = None
    ) -> Float[Tensor, "batch time width"]:
        """The states of the first layer at all steps; the layers upon it are not run.

        Of a stack that reads both ways this is the only layer whose first half knows nothing of what follows, and
        whose second half knows nothing of what came before.
        """
        if would_be_half(inputs):
            with torch.autocast("cuda", enabled=False):
                return self.first_layer(inputs.to(self.stack.all_weights[0][0].dtype), lengths)
        lengths = None if lengths is None else SequenceLengths.of(lengths, inputs.device)
        if self.layers == 1:
            return self(inputs, lengths)[0]
        if lengths is None or self.cell in HOLDS:
            return self._by_layer(inputs, lengths, None, layers=1)[0]
        rows = packed(inputs, lengths)
        begin = inputs.new_zeros(self.directions, len(inputs), self.hidden)
        weights = self._weights(0, hold=False)
        states, _ = torch.rnn_tanh(rows.data, rows.batch_sizes, begin, weights, True, 1, 0.0, True, self.bidirectional)
        return unpacked(PackedSequence(states, *rows[1:]), inputs.shape[1])

    def _drops_for_all_steps(self) -> bool:
        """Whether something is dropped now that torch's own stack of layers cannot drop."""
        return self.training and bool(self.weight_dropout or (self.variational and self.dropout and self.layers > 1))

    def _by_layer(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: SequenceLengths | None,
        state: Sequence[LayerState] | None,
        layers: int | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """One layer after the other, all or the first few, with gates held where there is padding.

        What a layer remembers then stays what it was. On a CPU torch takes time quadratic in
        the length to learn from packed sequences. One more input, 1 at padding and 0
        elsewhere, holds the gates; the direction that begins with the padding then begins
        at the end of the sequence.
        """
        if lengths is not None and self.cell not in HOLDS:
            raise RegardError(
                f"Recurrent: the {self.cell} cell cannot pass over padding with variational or weight_dropout; "
                "take gru or lstm"
            )
        real = None if lengths is None else lengths.real(inputs.shape[1])
        found = []
        for layer in range(layers or self.layers):
            inputs = inputs if layer == 0 else self._between(inputs)
            joined = inputs if real is None else torch.cat([inputs, (~real).to(inputs.dtype)], -1)
            first = self.zeros(len(inputs), inputs)[0] if state is None else state[layer]
            inputs, *last = self._run(joined, first, self._weights(layer, hold=lengths is not None))
            h = last[0][-1]
            if lengths is not None and not self.bidirectional:
                h = inputs[torch.arange(len(inputs), device=inputs.device), lengths.on_device - 1]
            found.append((h, *(c[-1] for c in last[1:])))
        return inputs if real is None else inputs * real, found

    def _between(self, inputs: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        """What comes from one layer, as the next one gets it."""
        if self.variational:
            return drop_for_all_steps(inputs, self.dropout, self.training)
        return drop(inputs, self.dropout, self.training)

    def _weights(self, layer: int, *, hold: bool) -> list[Tensor]:
        """The weights of one layer, of both directions where it has them, without those that are dropped."""
        found: list[Tensor] = []
        for direction in range(self.directions):
            from_inputs, from_state, *biases = self.stack.all_weights[self.directions * layer + direction]
            found.append(held(from_inputs, self.cell) if hold else from_inputs)
            found += [drop(from_state, self.weight_dropout, self.training), *biases]
        return in_one_piece(found) if found[0].is_cuda else found

    def _run(self, inputs: Float[Tensor, "batch time inputs"], first: LayerState, weights: list[Tensor]) -> Any:
        """The states of one layer at all steps, and the last h, and c, (directions, batch, hidden)."""
        begin = [part.expand(self.directions, -1, -1).contiguous() for part in first]
        at_first = begin if self.cell == "lstm" else begin[0]
        return RUNS[self.cell](inputs, at_first, weights, True, 1, 0.0, True, self.bidirectional, True)

    def step(
        self, inputs: Float[Tensor, "batch inputs"], state: Sequence[LayerState]
    ) -> tuple[Float[Tensor, "batch hidden"], list[LayerState]]:
        """One step of every layer: what the last one gives, and what each remembers now."""
        if self.bidirectional:
            raise RegardError("Recurrent: a stack that reads both ways cannot go step by step")
        if self._drops_for_all_steps():
            raise RegardError("Recurrent: step by step, nothing can be dropped for all steps; call eval() first")
        found: list[LayerState] = []
        for layer, before in enumerate(state):
            if layer and self.dropout:
                inputs = drop(inputs, self.dropout, self.training)
            weights = self.stack.all_weights[layer]
            after = STEPS[self.cell](inputs, before if self.cell == "lstm" else before[0], *weights)
            found.append(after if isinstance(after, tuple) else (after,))
            inputs = found[-1][0]
        return inputs, found

    def zeros(self, batch: int, like: Float[Tensor, "..."]) -> list[LayerState]:
        """The state before anything was read."""
        parts = 2 if self.cell == "lstm" else 1
        return [tuple(like.new_zeros(batch, self.hidden) for _ in range(parts)) for _ in range(self.layers)]

    def _stacked(self, state: Sequence[LayerState]) -> Tensor | tuple[Tensor, ...]:
        """As torch's layers want it: (layers, batch, hidden), a pair of them for an LSTM."""
        parts = tuple(torch.stack(part) for part in zip(*state, strict=True))
        return parts if self.cell == "lstm" else parts[0]


def would_be_half(inputs: Float[Tensor, "..."]) -> bool:
    """Whether cuDNN's layers would compute in float16, as they do under autocast to any type.

    Its range is too small to learn in without scaling the loss. In the type of the parameters, float32, whose products
    a GPU may take in TF32, they take little longer. A single `step` is done in the type that was asked for.
    """
    return inputs.is_cuda and torch.is_autocast_enabled("cuda")


def packed(inputs: Float[Tensor, "batch time inputs"], lengths: SequenceLengths) -> PackedSequence:
    """Sequences as torch's layers read them without their padding.

    Torch could sort them by length itself, but would wait for the device, then and when it sorts them back.
    """
    ordered, order = torch.sort(lengths.on_host, descending=True)
    there, back = (moved(each, inputs.device) for each in (order, order.argsort()))
    rows = pack_padded_sequence(inputs.index_select(0, there), ordered, batch_first=True)
    return PackedSequence(rows.data, rows.batch_sizes, there, back)


def unpacked(rows: PackedSequence, size: int) -> Float[Tensor, "batch time width"]:
    """The states of packed sequences in the order that these had, with zeros as padding."""
    assert rows.unsorted_indices is not None
    ordered, _ = pad_packed_sequence(PackedSequence(rows.data, rows.batch_sizes), batch_first=True, total_length=size)
    return ordered.index_select(0, rows.unsorted_indices)


def in_one_piece(weights: list[Tensor]) -> list[Tensor]:
    """The same weights as views of one piece of memory, matrices first.

    So cuDNN wants them; it would copy others there itself at every call, and warn of it.
    """
    order = sorted(range(len(weights)), key=lambda place: -weights[place].ndim)
    flat = torch.cat([weights[place].flatten() for place in order])
    parts = dict(zip(order, flat.split([weights[place].numel() for place in order]), strict=True))
    return [parts[place].view_as(weight) for place, weight in enumerate(weights)]


def held(weight: Float[Tensor, "gates inputs"], cell: str) -> Float[Tensor, "gates more_inputs"]:
    """An input matrix with a column more, which holds the gates of a cell."""
    each = len(weight) // len(HOLDS[cell])
    column = torch.cat([weight.new_full((each, 1), gate) for gate in HOLDS[cell]])
    return torch.cat([weight, column], -1)


def start_well(stack: nn.RNNBase) -> None:
    """Start each gate with an orthogonal recurrent matrix, Glorot's input matrix and no bias.

    The forget gate of an LSTM begins at 1, so that it remembers until it learns what to
    forget (Gers et al. 2000).
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
