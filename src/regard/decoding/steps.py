"""What every way of decoding shares: limits, log-probabilities, and the walk from <bos> to <eos>."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD, UNKNOWN, Batch
from regard.decoding.hypothesis import Hypothesis, from_padded
from regard.errors import RegardError
from regard.models.seq2seq import Seq2Seq

NOT_FINITE = "the model gave no finite probabilities; look for NaN or infinity in its parameters and input"

Choose = Callable[[Tensor], Tensor]
"""Log-probabilities (batch, vocabulary) -> the token chosen for each."""


def default_longest(batch: Batch) -> Int[Tensor, " batch"]:
    """The most tokens a target gets unless told otherwise, <eos> included: twice its source and 50 more."""
    return 2 * batch.source_lengths + 50


def limits_of(model: Seq2Seq, batch: Batch, longest: int | Int[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
    """The most tokens of each target: the same for all, one for each, or the default as far as the model can go."""
    if longest is None:
        found = default_longest(batch)
        return found if model.most_places is None else found.clamp(max=model.most_places)
    limits = torch.full_like(batch.source_lengths, longest) if isinstance(longest, int) else longest.to(batch.source)
    if len(limits) and int(limits.min()) < 1:
        raise RegardError(f"decoding: longest is {int(limits.min())}; 1 is the least")
    return limits


def check_settled(model: Seq2Seq) -> None:
    """Refuse a model whose dropout would make every answer another."""
    if model.training:
        raise RegardError("decoding: the model is in training mode; call model.eval() first")


def log_probabilities(logits: Float[Tensor, "*places vocabulary"]) -> Float[Tensor, "*places vocabulary"]:
    """The model's own log-softmax, in float32 at least."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def choices(logits: Float[Tensor, "rows vocabulary"], allow_unknown: bool) -> Float[Tensor, "rows vocabulary"]:
    """The log-probabilities of the tokens that may be chosen; -inf for the others."""
    found = log_probabilities(logits)
    for token in (PAD, BOS) if allow_unknown else (PAD, UNKNOWN, BOS):
        found[:, token] = -torch.inf
    return found


def all_done(done: Bool[Tensor, " batch"], best: Float[Tensor, " batch"], before: Bool[Tensor, " batch"]) -> bool:
    """Whether nothing is left to do: the one place of a step that waits for the device.

    `best` is the log-probability of the best choice of each sentence, which must be
    finite where the sentence was not done before.
    """
    over, broken = torch.stack([done.all(), (~before & ~best.isfinite()).any()]).tolist()
    if broken:
        raise RegardError(f"decoding: {NOT_FINITE}")
    return bool(over)


@torch.no_grad()
def walk(
    model: Seq2Seq,
    batch: Batch,
    choose: Choose,
    *,
    longest: int | Int[Tensor, " batch"] | None,
    allow_unknown: bool,
) -> list[Hypothesis]:
    """Go on with the token chosen at each step until every target has ended or is as long as it may be."""
    check_settled(model)
    if not len(batch):
        return []
    limits = limits_of(model, batch, longest)
    capacity = int(limits.max())
    tokens = batch.source.new_full((len(batch), capacity), PAD)
    totals, done = torch.zeros(len(batch), device=tokens.device), torch.zeros_like(limits, dtype=torch.bool)
    state, last = model.start(batch, capacity), torch.full_like(limits, BOS)
    for place in range(capacity):
        logits, state = model.step(last, state)
        found = choices(logits, allow_unknown)
        chosen = choose(found)
        gained = found.gather(-1, chosen[:, None])[:, 0]
        before, last = done, chosen.masked_fill(done, PAD)
        tokens[:, place] = last
        totals = torch.where(before, totals, totals + gained)
        done = before | (last == EOS) | (limits == place + 1)
        if all_done(done, gained, before):
            break
    return [from_padded(*each) for each in zip(tokens.tolist(), totals.tolist(), strict=True)]
