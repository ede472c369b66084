"""Follow the output of flex_attention to a product with a factor of its log-sum-exp, as attention sinks apply one.

A sink adds one logit to the denominator of the softmax. flex_attention has none, so models multiply its output by the
share of the keys, exp(log-sum-exp - log-sum-exp with the sink). The same factor belongs to the weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.attention.intercept.captured import Captured
from regard.attention.intercept.flex_weights import RescaledWeights
from regard.attention.intercept.functions import MULTIPLIED, VIEWS, iter_tensors
from regard.attention.intercept.tracks import FunctionCall
from regard.attention.intercept.weak_tensors import WeakTensors


class Rescaling:
    """The outputs of flex_attention and what a model computes from their log-sum-exp.

    Args:
        grad: Whether the weights keep their gradient.
    """

    def __init__(self, *, grad: bool) -> None:
        self.grad = grad
        self.outputs: WeakTensors[Captured] = WeakTensors()
        self.factors: WeakTensors[Captured] = WeakTensors()

    def __bool__(self) -> bool:
        return bool(self.factors)

    def start(self, captured: Captured, output: tuple[Tensor, ...]) -> None:
        """Follow the output and the log-sum-exp of a call."""
        self.outputs[output[0]], self.factors[output[1]] = captured, captured

    def follow(self, call: FunctionCall, output: Any) -> None:
        """Follow what a function makes of a log-sum-exp, and note where the output is multiplied by it."""
        outputs = {id(captured): part for _, _, part in iter_tensors(call.args) if (captured := self.outputs.get(part))}
        factors = [(captured, part) for _, _, part in iter_tensors(call.args) if (captured := self.factors.get(part))]
        for captured, factor in factors:
            attended = outputs.get(id(captured))
            if attended is None:
                for _, _, result in iter_tensors((output,)):
                    self.factors[result] = captured
            elif call.name in MULTIPLIED and factor.shape == (*attended.shape[:-1], 1):
                rescale(captured, factor if self.grad else factor.detach())
        if not factors and call.name in VIEWS and isinstance(output, Tensor):
            for part in outputs.values():
                if output.shape == part.shape and (captured := self.outputs.get(part)):
                    self.outputs[output] = captured


def rescale(captured: Captured, factor: Tensor) -> None:
    """Multiply the weights of a call by a factor for each query."""
    assert captured.weights is not None
    captured.weights = RescaledWeights(captured.weights, factor.to(torch.promote_types(factor.dtype, torch.float32)))
    captured.features["sinks"] = True
