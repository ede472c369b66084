"""Recurrent layers: whole sequences at the speed of torch's own, or one step at a time, with the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import RegardError, unknown_name

Cell = Literal["rnn", "gru", "lstm"]

LayerState = tuple[Tensor, ...]
"""What one layer remembers, each (batch, hidden): its output h, and for an LSTM its cell c."""

KINDS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
STEPS: dict[str, Callable[..., Any]] = {"rnn": torch.rnn_tanh_cell, "gru": torch.gru_cell, "lstm": torch.lstm_cell}
RUNS: dict[str, Callable[..., Any]] = {"gru": torch.gru, "lstm": torch.lstm}

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
    ) -> None:
        super().__init__()
        if cell not in KINDS:
            raise unknown_name("cell", cell, KINDS)
        for name, size in (("inputs", inputs), ("hidden", hidden), ("layers", layers)):
            if size < 1:
                raise RegardError(f"Recurrent: {name} is {size}; 1 is the least")
        self.cell, self.layers, self.hidden = cell, layers, hidden
        self.bidirectional, self.dropout = bidirectional, dropout
        self.width = 2 * hidden if bidirectional else hidden
        between = dropout if layers > 1 else 0.0
        self.stack = KINDS[cell](inputs, hidden, layers, batch_first=True, dropout=between, bidirectional=bidirectional)
        start_well(self.stack)

    def forward(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: Int[Tensor, " batch"] | None = None,
        state: Sequence[LayerState] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """The states at all steps, and what each layer remembers at the end.

        With `lengths` (best on the CPU) the end is that of each sequence: the padding
        after it is neither read forwards nor backwards, and its states are zero. Of two
        directions the second, which has read the whole from its end, is the one that is
        remembered.
        """
        if lengths is None or not len(lengths) or int(lengths.min()) == inputs.shape[1]:
            states, last = self.stack(inputs, None if state is None else self._stacked(state))
        elif inputs.device.type == "cpu" and self.cell in HOLDS:
            return self._held(inputs, lengths, state)
        else:
            packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
            states, last = self.stack(packed, None if state is None else self._stacked(state))
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=inputs.shape[1])
        parts = last if isinstance(last, tuple) else (last,)
        each = 2 if self.bidirectional else 1
        return states, list(zip(*(part[each - 1 :: each].unbind() for part in parts), strict=True))

    def _held(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        lengths: Int[Tensor, " batch"],
        state: Sequence[LayerState] | None,
    ) -> tuple[Float[Tensor, "batch time width"], list[LayerState]]:
        """Every layer with its gates held where there is padding, so that what it remembers stays what it was.

        On a CPU torch takes time quadratic in the length to learn from packed sequences.
        One more input, 1 at padding and 0 elsewhere, holds the gates; the direction that
        begins with the padding then begins at the end of the sequence.
        """
        real = (torch.arange(inputs.shape[1]) < lengths[:, None])[..., None]
        padding, found = (~real).to(inputs.dtype), []
        each = 2 if self.bidirectional else 1
        for layer in range(self.layers):
            if layer and self.dropout:
                inputs = nn.functional.dropout(inputs, self.dropout, self.training)
            weights = [
                held(weight, self.cell) if place == 0 else weight
                for direction in range(each)
                for place, weight in enumerate(self.stack.all_weights[layer * each + direction])
            ]
            first = self.zeros(len(inputs), inputs)[0] if state is None else state[layer]
            begin = [part.expand(each, -1, -1) for part in first]
            joined = torch.cat([inputs, padding], -1)
            inputs, *last = RUNS[self.cell](
                joined, begin if self.cell == "lstm" else begin[0], weights, True, 1, 0.0, True, each == 2, True
            )
            h = last[0][-1] if self.bidirectional else inputs[torch.arange(len(inputs)), lengths - 1]
            found.append((h, *(c[-1] for c in last[1:])))
        return inputs * real, found

    def step(
        self, inputs: Float[Tensor, "batch inputs"], state: Sequence[LayerState]
    ) -> tuple[Float[Tensor, "batch hidden"], list[LayerState]]:
        """One step of every layer: what the last one gives, and what each remembers now."""
        if self.bidirectional:
            raise RegardError("Recurrent: a stack that reads both ways cannot go step by step")
        found: list[LayerState] = []
        for layer, before in enumerate(state):
            if layer and self.dropout:
                inputs = nn.functional.dropout(inputs, self.dropout, self.training)
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


def held(weight: Float[Tensor, "gates inputs"], cell: str) -> Float[Tensor, "gates more_inputs"]:
    """An input matrix with a column more, which holds the gates of a cell."""
    column = weight.new_tensor(HOLDS[cell]).repeat_interleave(len(weight) // len(HOLDS[cell]))
    return torch.cat([weight, column[:, None]], -1)


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
