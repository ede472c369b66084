"""Shared parts of all decoding methods: limits, log-probabilities and the decoding loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD, UNKNOWN, Batch
from regard.decoding.hypothesis import Hypothesis, from_padded
from regard.errors import RegardError
from regard.models.features import Features
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State

NOT_FINITE = "probabilities are not finite; check the model's parameters and input for NaN or infinity"

MAX_POSITIONS = 1024
"""Maximum number of positions whose logits are computed at a time: 200 MB for a vocabulary of 50,000."""

GenerativeModel = Seq2Seq | LanguageModel
"""A model that generates one token at a time; `step` and `State` are the same for both."""

TokenChooser = Callable[[Tensor], Tensor]
"""Log-probabilities (rows, vocabulary) -> the token chosen for each row."""


def default_max_length(batch: Batch) -> Int[Tensor, " batch"]:
    """Return the default maximum length of each target, including <eos>: twice the source length plus 50."""
    return 2 * batch.source_lengths.on_device + 50


def resolve_limits(
    model: Seq2Seq, batch: Batch, max_length: int | Int[Tensor, " batch"] | None
) -> Int[Tensor, " batch"]:
    """Return the maximum length of each target; the default is capped at the model's own limit."""
    if max_length is None:
        default = default_max_length(batch)
        return default if model.max_length is None else default.clamp(max=model.max_length)
    limits = (
        batch.source.new_full((len(batch),), max_length) if isinstance(max_length, int) else max_length.to(batch.source)
    )
    if len(limits) and int(limits.min()) < 1:
        raise RegardError(f"decoding: max_length must be at least 1, got {int(limits.min())}")
    return limits


def check_eval_mode(model: GenerativeModel) -> None:
    """Raise a `RegardError` if the model is in training mode, where dropout makes results random."""
    if model.training:
        raise RegardError("decoding: model is in training mode; call model.eval() first")


def log_probabilities(logits: Float[Tensor, "*places vocabulary"]) -> Float[Tensor, "*places vocabulary"]:
    """Return the log-softmax of the logits, in float32 or higher precision."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def target_log_probabilities(
    model: GenerativeModel, features: Float[Tensor, "rows time width"] | Features, targets: Int[Tensor, "rows time"]
) -> Float[Tensor, "rows time"]:
    """Return the log-probability of each target given the features at its position; 0 where it is PAD.

    Logits are computed only where there are targets and for at most `MAX_POSITIONS` positions
    at a time, which bounds the memory of long texts and large vocabularies.
    """
    has_target = targets != PAD
    flat_features: Any = features[has_target]
    flat_targets = targets[has_target]
    parts = [slice(start, start + MAX_POSITIONS) for start in range(0, max(1, len(flat_targets)), MAX_POSITIONS)]
    logs = [
        log_probabilities(model.output(flat_features[part])).gather(-1, flat_targets[part, None])[:, 0]
        for part in parts
    ]
    flat_log_probabilities = torch.cat(logs)
    return flat_log_probabilities.new_zeros(targets.shape).masked_scatter(has_target, flat_log_probabilities)


def allowed_log_probabilities(
    logits: Float[Tensor, "rows vocabulary"], allow_unknown: bool
) -> Float[Tensor, "rows vocabulary"]:
    """Return the log-probabilities, with -inf for tokens that are never generated."""
    allowed = log_probabilities(logits)
    for token in (PAD, BOS) if allow_unknown else (PAD, UNKNOWN, BOS):
        allowed[:, token] = -torch.inf
    return allowed


def all_done(done: Bool[Tensor, " batch"], best: Float[Tensor, " batch"], before: Bool[Tensor, " batch"]) -> bool:
    """Return whether all sentences are done; this is the only part of a step that waits for the device.

    `best` is the log-probability of the best choice of each sentence, which must be finite
    for sentences that were not done `before`.
    """
    over, broken = torch.stack([done.all(), (~before & ~best.isfinite()).any()]).tolist()
    if broken:
        raise RegardError(f"decoding: {NOT_FINITE}")
    return bool(over)


def iter_decoding(
    model: GenerativeModel,
    state: State,
    last: Int[Tensor, " rows"],
    limits: Int[Tensor, " rows"],
    choose: TokenChooser,
    *,
    allow_unknown: bool,
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]]:
    """Yield the token chosen for each row and its log-probability; PAD and 0 after the end of a row.

    The first step reads `last`, each later one the token chosen before. Stops when every row
    has ended or reached its limit. Between steps gradients are enabled as usual, so you can
    stop iterating at any time.
    """
    done = torch.zeros_like(limits, dtype=torch.bool)
    for position in range(int(limits.max()) if len(limits) else 0):
        chosen, gained, state = choose_next_tokens(model, last, state, choose, allow_unknown)
        before, last = done, chosen.masked_fill(done, PAD)
        done = before | (last == EOS) | (limits == position + 1)
        over = all_done(done, gained, before)
        yield last, gained.masked_fill(before, 0)
        if over:
            return


@torch.no_grad()
def choose_next_tokens(
    model: GenerativeModel, last: Int[Tensor, " rows"], state: State, choose: TokenChooser, allow_unknown: bool
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"], State]:
    """Read one token of each row; return the next token, its log-probability and the new state."""
    logits, state = model.step(last, state)
    allowed = allowed_log_probabilities(logits, allow_unknown)
    chosen = choose(allowed)
    return chosen, allowed.gather(-1, chosen[:, None])[:, 0], state


def collect_hypotheses(steps: Iterable[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]]) -> list[Hypothesis]:
    """Collect the steps of `iter_decoding` into one hypothesis per row."""
    all_steps = list(steps)
    if not all_steps:
        return []
    totals = torch.zeros_like(all_steps[0][1])
    for _, gained in all_steps:
        totals = totals + gained
    tokens = torch.stack([chosen for chosen, _ in all_steps], 1)
    return [from_padded(*row) for row in zip(tokens.tolist(), totals.tolist(), strict=True)]


@torch.no_grad()
def decode_targets(
    model: Seq2Seq,
    batch: Batch,
    choose: TokenChooser,
    *,
    max_length: int | Int[Tensor, " batch"] | None,
    allow_unknown: bool,
) -> list[Hypothesis]:
    """Decode each source from <bos>."""
    check_eval_mode(model)
    if not len(batch):
        return []
    limits = resolve_limits(model, batch, max_length)
    state = model.start(batch, int(limits.max()))
    return collect_hypotheses(
        iter_decoding(model, state, torch.full_like(limits, BOS), limits, choose, allow_unknown=allow_unknown)
    )
