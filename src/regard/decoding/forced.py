"""Given targets, read by teacher forcing: their probabilities, and where the model looked for each token."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.watch import watch
from regard.attention.weights import Weights
from regard.batch import Batch
from regard.decoding.steps import NOT_FINITE, check_settled, log_probabilities
from regard.errors import RegardError
from regard.models.seq2seq import Seq2Seq


def score_targets(model: Seq2Seq, batch: Batch) -> list[float]:
    """The log-probability of each target, <eos> included."""
    return token_log_probabilities(model, batch).sum(-1).tolist()


@torch.no_grad()
def token_log_probabilities(model: Seq2Seq, batch: Batch) -> Float[Tensor, "batch target"]:
    """The log-probability of each token of the targets, <eos> included, after those before it; zero past the end."""
    check_settled(model)
    _, out, lengths = targets_of(batch)
    found = log_probabilities(model(batch)).gather(-1, out[:, :, None])[:, :, 0]
    found = found.masked_fill(past_end(lengths, out.shape[1]), 0)
    if bool(found.isnan().any()):
        raise RegardError(f"score_targets: {NOT_FINITE}")
    return found


@torch.no_grad()
def forced_weights(model: Seq2Seq, batch: Batch) -> Float[Tensor, "batch layers heads target source"]:
    """The attention from targets to sources, taken from one teacher-forced pass.

    Row t is the step that produced token t of the target, <eos> included; rows past the
    end of a target are zero.
    """
    check_settled(model)
    if not model.attended:
        raise RegardError(f"forced_weights: {type(model).__name__} has no attention from target to source to show")
    target, _, lengths = targets_of(batch)
    with watch(model) as seen:
        model.features(batch)
    layers = [joined(seen[path]) for path in model.attended]
    heads = [layer.shape[1] for layer in layers]
    if len(set(heads)) > 1:
        raise RegardError(f"forced_weights: layers of {', '.join(map(str, heads))} heads; all must have equally many")
    past = past_end(lengths, target.shape[1])
    return torch.stack(layers, 1).masked_fill(past[:, None, None, :, None], 0)


def joined(calls: list[Weights]) -> Float[Tensor, "batch heads target source"]:
    """The weights of one module: of a call for the whole target, or of a call for each step."""
    dense = [call.dense() for call in calls]
    return torch.cat([each.unsqueeze(1) if each.ndim == 3 else each.flatten(1, -3) for each in dense], -2)


def targets_of(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The targets of a batch as they go in and come out, and their lengths."""
    if batch.target_in is None or batch.target_out is None or batch.target_lengths is None:
        raise RegardError("forced decoding: the batch has no targets; give a target with every source")
    return batch.target_in, batch.target_out, batch.target_lengths


def past_end(lengths: Tensor, longest: int) -> Tensor:
    """Which places (batch, target) come after the end of a target."""
    return torch.arange(longest, device=lengths.device) >= lengths[:, None]
