"""Given targets, read by teacher forcing: their probabilities, and where the model looked for each token."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.watch import Seen, watch
from regard.attention.weights import Weights
from regard.batch import Batch
from regard.decoding.steps import NOT_FINITE, Writer, check_settled, target_log_probabilities
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
    found = target_log_probabilities(model, model.features(batch), out)
    return numbers(found.masked_fill(past_end(lengths, out.shape[1]), 0), "score_targets")


def numbers(found: Float[Tensor, "rows time"], where: str) -> Float[Tensor, "rows time"]:
    """The same log-probabilities, or a `RegardError` where one is not a number."""
    if bool(found.isnan().any()):
        raise RegardError(f"{where}: {NOT_FINITE}")
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
    past = past_end(lengths, target.shape[1])
    return stacked(model, seen, "forced_weights").masked_fill(past[:, None, None, :, None], 0)


def stacked(model: Writer, seen: Seen, where: str) -> Float[Tensor, "batch layers heads queries keys"]:
    """What was seen of all layers of a model's attention, which must have equally many heads."""
    layers = [joined(seen[path]) for path in model.attended]
    heads = [layer.shape[1] for layer in layers]
    if len(set(heads)) > 1:
        raise RegardError(f"{where}: layers of {', '.join(map(str, heads))} heads; all must have equally many")
    return torch.stack(layers, 1)


def joined(calls: list[Weights]) -> Float[Tensor, "batch heads queries keys"]:
    """The weights of one module: of a call for all queries, or of a call for each, which may see ever more keys."""
    dense = [call.dense() for call in calls]
    most = max(each.shape[-1] for each in dense)
    parts = [each.unsqueeze(1) if each.ndim == 3 else each.flatten(1, -3) for each in dense]
    return torch.cat([pad(part, (0, most - part.shape[-1])) for part in parts], -2)


def targets_of(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The targets of a batch as they go in and come out, and their lengths."""
    if batch.target_in is None or batch.target_out is None or batch.target_lengths is None:
        raise RegardError("forced decoding: the batch has no targets; give a target with every source")
    return batch.target_in, batch.target_out, batch.target_lengths


def past_end(lengths: Tensor, longest: int) -> Tensor:
    """Which places (batch, target) come after the end of a target."""
    return torch.arange(longest, device=lengths.device) >= lengths[:, None]
