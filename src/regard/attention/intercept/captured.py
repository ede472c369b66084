"""What an intercepted function tells about one call of an attention."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from regard.attention.intercept.flex_weights import FlexWeights, RescaledWeights
from regard.attention.intercept.recorded_weights import HeldWeights, RecordedWeights
from regard.attention.weights import Weights

INTERCEPTED = (RecordedWeights, FlexWeights, RescaledWeights, HeldWeights)
"""Weights that refer to tensors of a model, and have `hold`."""


class NotRecordedError(Exception):
    """A call that cannot be recorded; its text is the reason, of the module that makes the call."""


@dataclass(eq=False)
class Captured:
    """One attention call that a model made."""

    weights: Weights | None  # None after they were recorded
    function: str  # the function that was intercepted, such as "scaled_dot_product_attention"
    features: dict[str, object] = field(default_factory=dict)  # what is special to its scores: softcap, window, sinks
    path: str = ""  # below the module that runs, where it is not that module itself
    kind: str | None = None  # "self", "cross" or "pooling"; None until the module returns
    shape: torch.Size = field(init=False)
    how: str = field(init=False)  # "matrix" if the model itself holds the weights, else "lazy"
    groups: int | None = field(init=False)  # groups of heads that share keys, where the function tells

    def __post_init__(self) -> None:
        assert self.weights is not None
        self.shape = self.weights.shape
        self.how = "matrix" if isinstance(self.weights, HeldWeights) else "lazy"
        grouped = isinstance(self.weights, FlexWeights) or getattr(self.weights, "grouped", False)
        self.groups = self.weights.groups if grouped else None  # type: ignore[attr-defined]
