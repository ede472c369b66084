"""Exact hard alignment: sums over all alignments of a target to a source, by dynamic programming in log space.

Each target token i is written by one source position a_i, and p(y) is the sum over all alignments a of
the products of p(a_i | a_{i-1}) p(y_i | a_i) (Wu et al. 2018; monotonic in Wu and Cotterell 2019). The alignment
starts at the first position. All tables are logarithms in float32 or higher precision; `NEVER` stands for log 0,
finite so that sums and gradients are never NaN.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.shared_context import run_uncompiled

NEVER = -1e30


def normalize_transitions(
    scores: Float[Tensor, "batch target source"],
    jumps: Float[Tensor, "batch target jumps"],
    visible: Bool[Tensor, "batch 1 source"],
    *,
    monotonic: bool,
) -> Float[Tensor, "batch target source source"]:
    """Return log p(a_i = j | a_{i-1} = k) at index [i, k, j]: a softmax over j of the score of j plus that of j - k.

    Args:
        scores: The score of each source position.
        jumps: The score of each distance j - k: 0, 1, ... if monotonic, else centered; the last stands for all
            beyond. A single one is the same for all.
        visible: Which source positions are real.
        monotonic: Whether the alignment never moves back.
    """
    distances = find_distances(scores.shape[-1], jumps.shape[-1], scores.device, monotonic=monotonic)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    total = scores.to(dtype)[:, :, None] + jumps.to(dtype)[..., distances]
    allowed = visible[:, :, None]
    if monotonic:
        allowed = allowed & torch.ones_like(distances, dtype=torch.bool).triu()
    return total.masked_fill(~allowed, NEVER).log_softmax(-1).masked_fill(~allowed, NEVER)


def find_distances(size: int, jumps: int, device: torch.device, *, monotonic: bool) -> Int[Tensor, "source source"]:
    """Return the index into the jump scores of the way from each source position (row) to each other (column)."""
    positions = torch.arange(size, device=device)
    distances = positions - positions[:, None]
    return distances.clamp(0, jumps - 1) if monotonic else (distances + jumps // 2).clamp(0, jumps - 1)


def start_alignment(transitions: Float[Tensor, "*rows source source"]) -> Float[Tensor, "*rows source"]:
    """Return the distribution of the first position, given the transitions of the first step."""
    return transitions[..., 0, :]


def move_alignment(
    before: Float[Tensor, "*rows source"],
    emissions: Float[Tensor, "*rows source"],
    transitions: Float[Tensor, "*rows source source"],
) -> Float[Tensor, "*rows source"]:
    """Return log p(a_i | y_1 ... y_{i-1}), one step of the forward algorithm.

    Args:
        before: log p(a_{i-1} | y_1 ... y_{i-2}).
        emissions: log p(y_{i-1} | a_{i-1}).
        transitions: log p(a_i | a_{i-1}).
    """
    filtered = (before + emissions).log_softmax(-1)  # given y_{i-1}, too
    return (filtered[..., None] + transitions).logsumexp(-2)


def predict_alignment(
    transitions: Float[Tensor, "batch target source source"], emissions: Float[Tensor, "batch target source"]
) -> Float[Tensor, "batch target source"]:
    """Return log p(a_i | y_1 ... y_{i-1}) of every step, by the forward algorithm.

    Args:
        transitions: As in `normalize_transitions`.
        emissions: log p(y_i | a_i); that of the last step is not used.
    """
    return run_uncompiled(walk_forward, transitions, emissions)


def walk_forward(
    transitions: Float[Tensor, "batch target source source"], emissions: Float[Tensor, "batch target source"]
) -> Float[Tensor, "batch target source"]:
    """Run the forward algorithm step by step."""
    steps = [start_alignment(transitions[:, 0])]
    for index in range(1, transitions.shape[1]):
        steps.append(move_alignment(steps[-1], emissions[:, index - 1], transitions[:, index]))
    return torch.stack(steps, 1)


def compute_posterior(
    transitions: Float[Tensor, "batch target source source"], emissions: Float[Tensor, "batch target source"]
) -> Float[Tensor, "batch target source"]:
    """Return p(a_i | y_1 ... y_n), by the forward-backward algorithm; emissions past the end of a target must be 0."""
    ahead = torch.zeros_like(emissions[:, 0])  # log p(y_{i+1} ... y_n | a_i)
    backward = [ahead]
    for index in range(transitions.shape[1] - 1, 0, -1):
        ahead = (transitions[:, index] + (emissions[:, index] + ahead)[:, None]).logsumexp(-1)
        backward.append(ahead)
    forward = predict_alignment(transitions, emissions) + emissions
    return (forward + torch.stack(backward[::-1], 1)).softmax(-1)
