"""What every way of decoding shares, whatever the model reads: limits, log-probabilities, and the walk to <eos>."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD, UNKNOWN, Batch
from regard.decoding.hypothesis import Hypothesis, from_padded
from regard.errors import RegardError
from regard.models.language import LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State

NOT_FINITE = "the model gave no finite probabilities; look for NaN or infinity in its parameters and input"

AT_ONCE = 1024
"""Places whose logits exist at a time: those of 50,000 words are 200 MB."""

Writer = Seq2Seq | LanguageModel
"""What writes one token after another: `step` and `State` are the same for both."""

Choose = Callable[[Tensor], Tensor]
"""Log-probabilities (rows, vocabulary) -> the token chosen for each."""


def default_longest(batch: Batch) -> Int[Tensor, " batch"]:
    """The most tokens a target gets unless told otherwise, <eos> included: twice its source and 50 more."""
    return 2 * batch.source_lengths.on_device + 50


def limits_of(model: Seq2Seq, batch: Batch, longest: int | Int[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
    """The most tokens of each target: the same for all, one for each, or the default as far as the model can go."""
    if longest is None:
        found = default_longest(batch)
        return found if model.most_places is None else found.clamp(max=model.most_places)
    limits = batch.source.new_full((len(batch),), longest) if isinstance(longest, int) else longest.to(batch.source)
    if len(limits) and int(limits.min()) < 1:
        raise RegardError(f"decoding: longest is {int(limits.min())}; 1 is the least")
    return limits


def check_settled(model: Writer) -> None:
    """Refuse a model whose dropout would make every answer another."""
    if model.training:
        raise RegardError("decoding: the model is in training mode; call model.eval() first")


def log_probabilities(logits: Float[Tensor, "*places vocabulary"]) -> Float[Tensor, "*places vocabulary"]:
    """The model's own log-softmax, in float32 at least."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def target_log_probabilities(
    model: Writer, features: Float[Tensor, "rows time width"], targets: Int[Tensor, "rows time"]
) -> Float[Tensor, "rows time"]:
    """The log-probability of each target by what the model thinks at its place; 0 where it is PAD.

    Logits are made only where there are targets, for `AT_ONCE` places at a time, so that
    neither long texts nor a large vocabulary need memory for all of them.
    """
    asked = targets != PAD
    parts = zip(features[asked].split(AT_ONCE), targets[asked].split(AT_ONCE), strict=True)
    logs = [log_probabilities(model.output(places)).gather(-1, wanted[:, None])[:, 0] for places, wanted in parts]
    found = torch.cat(logs)
    return found.new_zeros(targets.shape).masked_scatter(asked, found)


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


def walk(
    model: Writer,
    state: State,
    last: Int[Tensor, " rows"],
    limits: Int[Tensor, " rows"],
    choose: Choose,
    *,
    allow_unknown: bool,
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]]:
    """At each step the token chosen for each row and its log-probability; after the end of a row PAD and 0.

    The first step reads `last`, each other what was chosen before. It is over when every
    row has ended or is as long as its limit says. Whoever goes no further leaves nothing
    behind: between two steps nothing is switched off or held but what was read.
    """
    done = torch.zeros_like(limits, dtype=torch.bool)
    for place in range(int(limits.max()) if len(limits) else 0):
        chosen, gained, state = next_tokens(model, last, state, choose, allow_unknown)
        before, last = done, chosen.masked_fill(done, PAD)
        done = before | (last == EOS) | (limits == place + 1)
        over = all_done(done, gained, before)
        yield last, gained.masked_fill(before, 0)
        if over:
            return


@torch.no_grad()
def next_tokens(
    model: Writer, last: Int[Tensor, " rows"], state: State, choose: Choose, allow_unknown: bool
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"], State]:
    """Read one token of each row; the next, its log-probability, and what the model remembers then."""
    logits, state = model.step(last, state)
    found = choices(logits, allow_unknown)
    chosen = choose(found)
    return chosen, found.gather(-1, chosen[:, None])[:, 0], state


def walked(steps: Iterable[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]]) -> list[Hypothesis]:
    """The hypotheses that the steps of a walk make, one for each row."""
    found = list(steps)
    if not found:
        return []
    totals = torch.zeros_like(found[0][1])
    for _, gained in found:
        totals = totals + gained
    tokens = torch.stack([chosen for chosen, _ in found], 1)
    return [from_padded(*each) for each in zip(tokens.tolist(), totals.tolist(), strict=True)]


@torch.no_grad()
def write_targets(
    model: Seq2Seq, batch: Batch, choose: Choose, *, longest: int | Int[Tensor, " batch"] | None, allow_unknown: bool
) -> list[Hypothesis]:
    """The target of each source, walked from <bos>."""
    check_settled(model)
    if not len(batch):
        return []
    limits = limits_of(model, batch, longest)
    state = model.start(batch, int(limits.max()))
    return walked(walk(model, state, torch.full_like(limits, BOS), limits, choose, allow_unknown=allow_unknown))
