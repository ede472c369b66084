"""Tags in a row: the likelihood of a sequence of them, the best one, and how likely each tag is at each step.

All of it rests on one pass from the end to the beginning, which finds for every tag at every
step what the steps after it have to offer. With it in hand a sequence can be read from its
beginning, each tag given the one before, with probabilities that sum to one at every step: a
likelihood is then a sum of small numbers, however long the sequence and however large its scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import RegardError, refuse_less
from regard.layers.lengths import AnyLengths, SequenceLengths

FORBIDDEN = -1e30
"""The score of what is not allowed: its probability is exactly zero, yet no difference of two is NaN."""

HOPELESS = FORBIDDEN / 2
"""A sum of scores below this has something forbidden in it."""

FARTHEST = 1e20
"""How far from zero a score may be, so that one of minus infinity is still above what is forbidden."""


class Crf(nn.Module):
    """A linear-chain conditional random field (Lafferty et al. 2001): scores for tags, and for neighbours.

    The score of a sequence is the sum of what is given for its tags, `transitions[before, after]`
    for neighbours, `start` for its first tag and `end` for its last. All three begin at zero. What
    is not allowed has probability zero; the constraints are saved with the parameters.

    Args:
        tags: How many.
        allowed: Whether the tag of a row may be followed by that of a column; any may by default.
        allowed_start: Whether a tag may come first.
        allowed_end: Whether a tag may come last.
    """

    allowed: Tensor
    allowed_start: Tensor
    allowed_end: Tensor

    def __init__(
        self,
        tags: int,
        *,
        allowed: Bool[Tensor, "tags tags"] | None = None,
        allowed_start: Bool[Tensor, " tags"] | None = None,
        allowed_end: Bool[Tensor, " tags"] | None = None,
    ) -> None:
        super().__init__()
        refuse_less("Crf", 1, tags=tags)
        self.tags = tags
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.start = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.register_buffer("allowed", constraint("allowed", allowed, (tags, tags)))
        self.register_buffer("allowed_start", constraint("allowed_start", allowed_start, (tags,)))
        self.register_buffer("allowed_end", constraint("allowed_end", allowed_end, (tags,)))

    def log_likelihood(
        self,
        scores: Float[Tensor, "batch time tags"],
        tags: Int[Tensor, "batch time"],
        lengths: AnyLengths | None = None,
    ) -> Float[Tensor, " batch"]:
        """The log-probability of these tags among all sequences of the same length.

        Without `lengths` there is no padding; what stands in padding does not matter. Tags that have probability
        zero, from which nothing can be learned, are refused; on a GPU, which is not waited for, the result is NaN.
        """
        trellis = self._trellis(scores, lengths)
        tags = tags.masked_fill(~trellis.real, 0).long()
        forbidden = self._forbidden(tags, trellis.real)
        if tags.is_cpu and forbidden.any():
            row, step = forbidden.nonzero()[0].tolist()
            raise RegardError(f"Crf: sequence {row} {self._offence(tags[row].tolist(), step)}")
        tags = tags.clamp(0, self.tags - 1)
        promise = promises(trellis, torch.logsumexp)
        options = torch.cat([promise[:, :1], trellis.transitions[tags[:, :-1]] + promise[:, 1:]], 1)
        steps = options.log_softmax(-1).gather(-1, tags[..., None])[..., 0]
        return steps.where(trellis.real, 0).sum(-1).masked_fill(forbidden.any(-1), torch.nan)

    def best(
        self, scores: Float[Tensor, "batch time tags"], lengths: AnyLengths | None = None
    ) -> tuple[Int[Tensor, "batch time"], Float[Tensor, " batch"]]:
        """The sequence with the highest score (Viterbi), 0 past its end, and that score.

        Of sequences with equal scores it is the one with the smaller tag where they first differ.
        """
        trellis = self._trellis(scores, lengths)
        tags = best_tags(trellis)
        steps = trellis.scores.gather(-1, tags[..., None])[..., 0]
        pairs = trellis.transitions[tags[:, :-1], tags[:, 1:]]
        real = trellis.real
        return tags, steps.where(real, 0).sum(-1) + pairs.where(real[:, 1:], 0).sum(-1)

    def marginals(
        self, scores: Float[Tensor, "batch time tags"], lengths: AnyLengths | None = None
    ) -> Float[Tensor, "batch time tags"]:
        """The probability of each tag at each step, whatever the others are; zero past the end."""
        trellis = self._trellis(scores, lengths)
        promise = promises(trellis, torch.logsumexp)
        refuse_hopeless(promise, trellis.real)
        found = [promise[:, 0].softmax(-1)]
        for step in range(1, promise.shape[1]):
            moves = (trellis.transitions + promise[:, step, None]).softmax(-1)  # (batch, before, after)
            found.append((found[-1][..., None] * moves).sum(1))
        return torch.stack(found, 1).where(trellis.real[..., None], 0)

    def _trellis(self, scores: Float[Tensor, "batch time tags"], lengths: AnyLengths | None) -> Trellis:
        """The scores with the constraints in them, in float32 at the least."""
        if scores.shape[-1] != self.tags:
            raise RegardError(f"Crf: scores are for {scores.shape[-1]} tags; there are {self.tags}")
        lengths = checked_lengths(lengths, scores)
        real = lengths.real(scores.shape[1])
        dtype = torch.promote_types(scores.dtype, torch.float32)
        places = torch.arange(scores.shape[1], device=scores.device)[:, None]
        first, last = places == 0, places == lengths.on_device[:, None, None] - 1
        scores = scores.to(dtype).masked_fill(~real, 0).clamp(-FARTHEST, FARTHEST)
        start = self.start.to(dtype).masked_fill(~self.allowed_start, FORBIDDEN)
        end = self.end.to(dtype).masked_fill(~self.allowed_end, FORBIDDEN)
        transitions = self.transitions.to(dtype).masked_fill(~self.allowed, FORBIDDEN)
        return Trellis(scores + first * start + last * end, transitions, real[..., 0])

    def _forbidden(
        self, tags: Int[Tensor, "batch time"], real: Bool[Tensor, "batch time"]
    ) -> Bool[Tensor, "batch time"]:
        """Where there is no such tag, or it has probability zero."""
        unknown = (tags < 0) | (tags >= self.tags)
        tags = tags.masked_fill(unknown, 0)
        broken = real & ~self.allowed_end[tags]
        broken[:, :-1] &= ~real[:, 1:]
        broken[:, 0] |= ~self.allowed_start[tags[:, 0]]
        broken[:, 1:] |= real[:, 1:] & ~self.allowed[tags[:, :-1], tags[:, 1:]]
        return unknown | broken

    def _offence(self, tags: list[int], step: int) -> str:
        """What is wrong with the tag at a step, in words."""
        if not 0 <= tags[step] < self.tags:
            return f"has tag {tags[step]} at step {step}; tags go from 0 to {self.tags - 1}"
        what = f"ends with tag {tags[step]}"
        if step and not self.allowed[tags[step - 1], tags[step]]:
            what = f"has tag {tags[step]} after tag {tags[step - 1]} at step {step}"
        elif not step and not self.allowed_start[tags[step]]:
            what = f"begins with tag {tags[step]}"
        return f"{what}, which is not allowed; correct the tags or the constraints"


@dataclass(frozen=True)
class Trellis:
    """Scores in which the first and last steps of a sequence have those of its start and end."""

    scores: Float[Tensor, "batch time tags"]
    transitions: Float[Tensor, "tags tags"]
    real: Bool[Tensor, "batch time"]


def promises(trellis: Trellis, reduce: Callable[[Tensor, int], Tensor]) -> Float[Tensor, "batch time tags"]:
    """The score of each tag at each step with all that may follow it, but for a constant of each step.

    What may follow is summed up by `reduce`: `torch.logsumexp` counts all of it, `torch.amax`
    the best. The constant keeps the highest near zero, unless there is no allowed sequence.
    """
    steps = trellis.scores.unbind(1)
    found = [steps[-1]]
    for step in range(len(steps) - 2, -1, -1):
        ahead = reduce(trellis.transitions + found[-1][:, None], -1)
        highest = ahead.detach().amax(-1, keepdim=True)
        ahead = ahead - highest.where(highest > HOPELESS, 0)
        found.append(steps[step] + ahead.where(trellis.real[:, step + 1, None], 0))
    return torch.stack(found[::-1], 1)


@torch.no_grad()
def best_tags(trellis: Trellis) -> Int[Tensor, "batch time"]:
    """The tags of the sequence with the highest score, 0 past its end."""
    promise = promises(trellis, torch.amax)
    refuse_hopeless(promise, trellis.real)
    tags = [promise[:, 0].argmax(-1)]
    for step in range(1, promise.shape[1]):
        tags.append((trellis.transitions[tags[-1]] + promise[:, step]).argmax(-1))
    return torch.stack(tags, 1).masked_fill(~trellis.real, 0)


def refuse_hopeless(promise: Float[Tensor, "batch time tags"], real: Bool[Tensor, "batch time"]) -> None:
    """Refuse constraints that leave a sequence no tags to have."""
    hopeless = promise[:, 0].amax(-1) < HOPELESS
    if hopeless.any():
        length = int(real[hopeless][0].sum())
        raise RegardError(f"Crf: the constraints allow no sequence of length {length}; at least one must be allowed")


def checked_lengths(lengths: AnyLengths | None, scores: Float[Tensor, "batch time tags"]) -> SequenceLengths:
    """The lengths of sequences, those of the scores by default, where the scores are."""
    batch, time, _ = scores.shape
    lengths = SequenceLengths.of(torch.full((batch,), time) if lengths is None else lengths, scores.device)
    if batch and not 1 <= min(lengths.tolist()) <= max(lengths.tolist()) <= time:
        raise RegardError(
            f"Crf: lengths go from {min(lengths.tolist())} to {max(lengths.tolist())}; "
            f"for scores of {time} steps they must be from 1 to {time}"
        )
    return lengths


def constraint(name: str, allowed: Bool[Tensor, "..."] | None, shape: tuple[int, ...]) -> Bool[Tensor, "..."]:
    """A constraint of the right shape, which allows all if none is given."""
    if allowed is None:
        return torch.ones(shape, dtype=torch.bool)
    if allowed.shape != shape:
        raise RegardError(f"Crf: {name} has shape {tuple(allowed.shape)}; for {shape[0]} tags it must be {shape}")
    return allowed.clone()
