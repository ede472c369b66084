"""Attention sinks: one more logit per head in the denominator of the softmax, which belongs to no key.

A row then sums to less than one, and a query may attend to nothing (OpenAI 2025, gpt-oss; Miller 2023).
Only the statistic of a row changes: with the log-sum-exp over keys *and* sink, the weights of any tile
and their gradients follow as without a sink. So no kernel needs to know about sinks: its output and its
log-sum-exp over the keys are all it takes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def include_sink(
    output: Float[Tensor, "*batch queries width"],
    statistic: Float[Tensor, "*batch queries 1"],
    sink: Float[Tensor, "*#batch 1 1"],
) -> tuple[Float[Tensor, "*batch queries width"], Float[Tensor, "*batch queries 1"]]:
    """Return output and log-sum-exp with a sink, from those over the keys alone."""
    share = share_of_keys(statistic, sink)
    return (output * share).to(output.dtype), torch.logaddexp(statistic, sink)


def share_of_keys(
    statistic: Float[Tensor, "*batch queries 1"], sink: Float[Tensor, "*#batch 1 1"]
) -> Float[Tensor, "*batch queries 1"]:
    """Return what the weights of each row sum to, from the log-sum-exp over its keys."""
    return torch.sigmoid(statistic - sink)


def sink_gradient(
    sink: Float[Tensor, "*#batch 1 1"],
    statistic: Float[Tensor, "*batch rows 1"],
    mean: Float[Tensor, "*batch rows 1"],
) -> Float[Tensor, "*#batch 1 1"]:
    """Return the gradient of a sink: minus its own weight times the mean gradient of the weights of each row.

    `statistic` includes the sink; `mean` is the sum of each weight times its gradient.
    """
    return -((sink - statistic).exp() * mean).sum_to_size(sink.shape)
