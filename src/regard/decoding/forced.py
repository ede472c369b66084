"""Teacher forcing: probabilities of given targets, and the attention weights of each step."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.watch import AttentionRecording, watch
from regard.attention.weights import Weights
from regard.batch import Batch
from regard.decoding.steps import NOT_FINITE, GenerativeModel, check_eval_mode, target_log_probabilities
from regard.errors import RegardError
from regard.models.pointer import CopyFeatures
from regard.models.seq2seq import Seq2Seq


def score_targets(model: Seq2Seq, batch: Batch) -> list[float]:
    """Return the log-probability of each target, including <eos>.

    Args:
        model: A model in evaluation mode.
        batch: Pairs with targets, on the model's device.
    """
    return token_log_probabilities(model, batch).sum(-1).tolist()


@torch.no_grad()
def token_log_probabilities(model: Seq2Seq, batch: Batch) -> Float[Tensor, "batch target"]:
    """Return the log-probability of each target token, including <eos>; zero past the end."""
    check_eval_mode(model)
    _, out, lengths = get_targets(batch)
    log_probabilities = target_log_probabilities(model, model.features(batch), out)
    return check_no_nan(log_probabilities.masked_fill(build_past_end(lengths, out.shape[1]), 0), "score_targets")


def check_no_nan(log_probabilities: Float[Tensor, "rows time"], caller: str) -> Float[Tensor, "rows time"]:
    """Return the log-probabilities unchanged; raise a `RegardError` if one is NaN."""
    if bool(log_probabilities.isnan().any()):
        raise RegardError(f"{caller}: {NOT_FINITE}")
    return log_probabilities


@torch.no_grad()
def generate_probabilities(model: Seq2Seq, batch: Batch) -> Float[Tensor, "batch target"]:
    """Return the probability of each step to generate its token rather than copy one.

    Args:
        model: A model that copies, in evaluation mode.
        batch: Pairs with targets, on the model's device.
    """
    check_eval_mode(model)
    features = model.features(batch)
    if not isinstance(features, CopyFeatures):
        raise RegardError(f"generate_probabilities: {type(model).__name__} does not copy")
    return features.gate.float().sigmoid()


@torch.no_grad()
def forced_weights(model: Seq2Seq, batch: Batch) -> Float[Tensor, "batch layers heads target source"]:
    """Return the attention weights from targets to sources, from one teacher-forced pass.

    Row t is the step that predicts token t of the target, including <eos>; rows past the end
    of a target are zero.

    Args:
        model: A model with attention, in evaluation mode.
        batch: Pairs with targets, on the model's device.

    Raises:
        RegardError: The model has no attention or is in training mode, or the batch has no targets.
    """
    check_eval_mode(model)
    if not model.default_attention:
        raise RegardError(f"forced_weights: {type(model).__name__} has no attention from target to source")
    target, _, lengths = get_targets(batch)
    with watch(model) as recorded:
        model.features(batch)
    past = build_past_end(lengths, target.shape[1])
    return stack_layers(model, recorded, "forced_weights").masked_fill(past[:, None, None, :, None], 0)


def stack_layers(
    model: GenerativeModel, recorded: AttentionRecording, caller: str
) -> Float[Tensor, "batch layers heads queries keys"]:
    """Stack the recorded weights of all layers, which must have the same number of heads."""
    layers = [join_call_weights(recorded[path]) for path in model.default_attention]
    heads = [layer.shape[1] for layer in layers]
    if len(set(heads)) > 1:
        raise RegardError(f"{caller}: all layers must have the same number of heads, got {', '.join(map(str, heads))}")
    return torch.stack(layers, 1)


def join_call_weights(calls: list[Weights]) -> Float[Tensor, "batch heads queries keys"]:
    """Join the weights of one module: one call for all queries, or one per query with a growing number of keys."""
    dense = [call.dense() for call in calls]
    max_keys = max(tensor.shape[-1] for tensor in dense)
    parts = [tensor.unsqueeze(1) if tensor.ndim == 3 else tensor.flatten(1, -3) for tensor in dense]
    return torch.cat([pad(part, (0, max_keys - part.shape[-1])) for part in parts], -2)


def get_targets(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input targets, output targets and target lengths of a batch."""
    if batch.target_in is None or batch.target_out is None or batch.target_lengths is None:
        raise RegardError("forced decoding: batch has no targets; every source requires a target")
    return batch.target_in, batch.target_out, batch.target_lengths


def build_past_end(lengths: Tensor, max_length: int) -> Tensor:
    """Return a mask (batch, target) of the positions after the end of each target."""
    return torch.arange(max_length, device=lengths.device) >= lengths[:, None]
