"""A projection from a bidirectional encoder to the initial state of a recurrent decoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from regard.layers.attention import new_linear
from regard.layers.recurrent import LayerState


class Bridge(nn.Module):
    """A projection from the last states of a bidirectional encoder to the initial decoder state.

    s_0 = tanh(W h) per layer, where h is the backward state (Bahdanau et al. 2015, A.2.2);
    the cell of an LSTM is W' c.

    Args:
        cell: The cell of both sides, as in `Recurrent`.
        hidden: Width of a state.
        layers: Number of layers of the decoder.
    """

    def __init__(self, cell: str, hidden: int, layers: int) -> None:
        super().__init__()
        self.states = nn.ModuleList(new_linear(hidden, hidden, True) for _ in range(layers))
        self.cells = nn.ModuleList(new_linear(hidden, hidden, True) for _ in range(layers if cell == "lstm" else 0))

    def forward(self, layers: Sequence[LayerState]) -> list[LayerState]:
        """Return the initial state of every decoder layer."""
        states: list[LayerState] = [
            (torch.tanh(bridge(layer[0])),) for bridge, layer in zip(self.states, layers, strict=True)
        ]
        if not self.cells:
            return states
        return [(*part, bridge(layer[1])) for part, bridge, layer in zip(states, self.cells, layers, strict=True)]
