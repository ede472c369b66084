"""The position-wise feed-forward network (Vaswani et al. 2017, 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import unknown_name
from regard.layers.attention import new_linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}
"""The activations by name; `gelu-tanh` is the approximation of gelu used by GPT."""


class FeedForward(nn.Module):
    """A feed-forward network applied to each position: linear, activation, linear."""

    def __init__(self, width: int, hidden: int, *, activation: str = "relu", bias: bool = True) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise unknown_name("activation", activation, ACTIVATIONS)
        self.activation = activation
        self.wider = new_linear(width, hidden, bias)
        self.back = new_linear(hidden, width, bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Return back(activation(wider(x)))."""
        return self.back(ACTIVATIONS[self.activation](self.wider(x)))
