"""A conditional random field: likelihood of tag sequences, best sequence, and marginals per step.

All three use one backward pass, which computes for every tag at every step the score of the steps
after it. The sequence is then read forward, each tag conditioned on the previous one, with
probabilities that sum to one at every step. A log-likelihood is thus a sum of small numbers, no
matter how long the sequence or how large its scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.shared_context import run_uncompiled
from regard.errors import RegardError, refuse_less
from regard.layers.lengths import AnyLengths, SequenceLengths

FORBIDDEN = -1e30
"""The score of a forbidden tag: its probability is exactly zero, yet the difference of two is not NaN."""

INFEASIBLE = FORBIDDEN / 2
"""A sum of scores below this includes a forbidden tag."""

MAX_SCORE = 1e20
"""The limit for scores, so that a score of minus infinity is still above `FORBIDDEN`."""


class Crf(nn.Module):
    """A linear-chain conditional random field (Lafferty et al. 2001).

    The score of a sequence is the sum of the scores of its tags, of `transitions[before, after]` for
    neighboring tags, of `start` for the first tag and of `end` for the last. These three parameters
    are initialized to zero. Forbidden sequences have probability zero; the constraints are saved with
    the parameters.

    Args:
        tags: Number of tags.
        allowed: Whether the tag of a row may be followed by the tag of a column. Defaults to all.
        allowed_start: Whether a tag may come first. Defaults to all.
        allowed_end: Whether a tag may come last. Defaults to all.
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
        self.register_buffer("allowed", build_constraint("allowed", allowed, (tags, tags)))
        self.register_buffer("allowed_start", build_constraint("allowed_start", allowed_start, (tags,)))
        self.register_buffer("allowed_end", build_constraint("allowed_end", allowed_end, (tags,)))

    def log_likelihood(
        self,
        scores: Float[Tensor, "batch time tags"],
        tags: Int[Tensor, "batch time"],
        lengths: AnyLengths | None = None,
    ) -> Float[Tensor, " batch"]:
        """Return the log-probability of tags among all sequences of the same length.

        Without `lengths` there is no padding; values in the padding are ignored. Tags of probability zero raise a
        `RegardError` on a CPU. On a GPU they give NaN, because checking them would mean waiting for the device, and
        so they do in compiled code.
        """
        trellis = self._build_trellis(scores, lengths)
        tags = tags.masked_fill(~trellis.real, 0).long()
        forbidden = self._find_forbidden(tags, trellis.real)
        if tags.is_cpu and not torch.compiler.is_compiling() and forbidden.any():
            row, step = forbidden.nonzero()[0].tolist()
            raise RegardError(f"Crf: sequence {row} {self._describe_violation(tags[row].tolist(), step)}")
        tags = tags.clamp(0, self.tags - 1)
        backward_scores = compute_backward_scores(trellis, torch.logsumexp)
        options = torch.cat([backward_scores[:, :1], trellis.transitions[tags[:, :-1]] + backward_scores[:, 1:]], 1)
        steps = options.log_softmax(-1).gather(-1, tags[..., None])[..., 0]
        return steps.where(trellis.real, 0).sum(-1).masked_fill(forbidden.any(-1), torch.nan)

    def decode(
        self, scores: Float[Tensor, "batch time tags"], lengths: AnyLengths | None = None
    ) -> tuple[Int[Tensor, "batch time"], Float[Tensor, " batch"]]:
        """Return the sequence with the highest score (Viterbi), 0 past its end, and its score.

        Of sequences with equal scores, the one with the smaller tag at the first difference is returned.
        """
        trellis = self._build_trellis(scores, lengths)
        tags = viterbi(trellis)
        steps = trellis.scores.gather(-1, tags[..., None])[..., 0]
        pairs = trellis.transitions[tags[:, :-1], tags[:, 1:]]
        real = trellis.real
        return tags, steps.where(real, 0).sum(-1) + pairs.where(real[:, 1:], 0).sum(-1)

    def marginals(
        self, scores: Float[Tensor, "batch time tags"], lengths: AnyLengths | None = None
    ) -> Float[Tensor, "batch time tags"]:
        """Return the marginal probability of each tag at each step; zero past the end."""
        trellis = self._build_trellis(scores, lengths)
        backward_scores = compute_backward_scores(trellis, torch.logsumexp)
        check_feasible(backward_scores, trellis.real)
        probabilities = [backward_scores[:, 0].softmax(-1)]
        for step in range(1, backward_scores.shape[1]):
            moves = (trellis.transitions + backward_scores[:, step, None]).softmax(-1)  # (batch, before, after)
            probabilities.append((probabilities[-1][..., None] * moves).sum(1))
        return torch.stack(probabilities, 1).where(trellis.real[..., None], 0)

    def _build_trellis(self, scores: Float[Tensor, "batch time tags"], lengths: AnyLengths | None) -> Trellis:
        """Return the scores with constraints applied, in at least float32."""
        if scores.shape[-1] != self.tags:
            raise RegardError(f"Crf: expected scores for {self.tags} tags, got {scores.shape[-1]}")
        lengths = prepare_lengths(lengths, scores)
        real = lengths.real(scores.shape[1])
        dtype = torch.promote_types(scores.dtype, torch.float32)
        positions = torch.arange(scores.shape[1], device=scores.device)[:, None]
        first, last = positions == 0, positions == lengths.on_device[:, None, None] - 1
        scores = scores.to(dtype).masked_fill(~real, 0).clamp(-MAX_SCORE, MAX_SCORE)
        start = self.start.to(dtype).masked_fill(~self.allowed_start, FORBIDDEN)
        end = self.end.to(dtype).masked_fill(~self.allowed_end, FORBIDDEN)
        transitions = self.transitions.to(dtype).masked_fill(~self.allowed, FORBIDDEN)
        return Trellis(scores + first * start + last * end, transitions, real[..., 0])

    def _find_forbidden(
        self, tags: Int[Tensor, "batch time"], real: Bool[Tensor, "batch time"]
    ) -> Bool[Tensor, "batch time"]:
        """Return where a tag is out of range or has probability zero."""
        unknown = (tags < 0) | (tags >= self.tags)
        tags = tags.masked_fill(unknown, 0)
        broken = real & ~self.allowed_end[tags]
        broken[:, :-1] &= ~real[:, 1:]
        broken[:, 0] |= ~self.allowed_start[tags[:, 0]]
        broken[:, 1:] |= real[:, 1:] & ~self.allowed[tags[:, :-1], tags[:, 1:]]
        return unknown | broken

    def _describe_violation(self, tags: list[int], step: int) -> str:
        """Describe why the tag at a step is invalid."""
        if not 0 <= tags[step] < self.tags:
            return f"has tag {tags[step]} at step {step}; tags must be at least 0 and at most {self.tags - 1}"
        violation = f"ends with tag {tags[step]}"
        if step and not self.allowed[tags[step - 1], tags[step]]:
            violation = f"has tag {tags[step]} after tag {tags[step - 1]} at step {step}"
        elif not step and not self.allowed_start[tags[step]]:
            violation = f"begins with tag {tags[step]}"
        return f"{violation}, which is not allowed; correct the tags or the constraints"


@dataclass(frozen=True)
class Trellis:
    """Scores with those of start and end added to the first and last step of each sequence."""

    scores: Float[Tensor, "batch time tags"]
    transitions: Float[Tensor, "tags tags"]
    real: Bool[Tensor, "batch time"]


def compute_backward_scores(
    trellis: Trellis, reduce: Callable[[Tensor, int], Tensor]
) -> Float[Tensor, "batch time tags"]:
    """Return the score of each tag at each step including what follows it, up to a constant per step.

    `reduce` combines what may follow: `torch.logsumexp` sums over all sequences, `torch.amax` takes
    the best. The constant keeps the highest score near zero, unless no sequence is allowed.
    """
    return run_uncompiled(walk_backward, trellis, reduce)


def walk_backward(trellis: Trellis, reduce: Callable[[Tensor, int], Tensor]) -> Float[Tensor, "batch time tags"]:
    """Compute the backward scores step by step, from the last to the first."""
    steps = trellis.scores.unbind(1)
    backward_scores = [steps[-1]]
    for step in range(len(steps) - 2, -1, -1):
        ahead = reduce(trellis.transitions + backward_scores[-1][:, None], -1)
        highest = ahead.detach().amax(-1, keepdim=True)
        ahead = ahead - highest.where(highest > INFEASIBLE, 0)
        backward_scores.append(steps[step] + ahead.where(trellis.real[:, step + 1, None], 0))
    return torch.stack(backward_scores[::-1], 1)


@torch.no_grad()
def viterbi(trellis: Trellis) -> Int[Tensor, "batch time"]:
    """Return the tags of the sequence with the highest score, 0 past its end."""
    backward_scores = compute_backward_scores(trellis, torch.amax)
    check_feasible(backward_scores, trellis.real)
    tags = [backward_scores[:, 0].argmax(-1)]
    for step in range(1, backward_scores.shape[1]):
        tags.append((trellis.transitions[tags[-1]] + backward_scores[:, step]).argmax(-1))
    return torch.stack(tags, 1).masked_fill(~trellis.real, 0)


def check_feasible(backward_scores: Float[Tensor, "batch time tags"], real: Bool[Tensor, "batch time"]) -> None:
    """Raise a `RegardError` if the constraints allow no sequence of some length; compiled code does not check this."""
    if torch.compiler.is_compiling():
        return
    infeasible = backward_scores[:, 0].amax(-1) < INFEASIBLE
    if infeasible.any():
        length = int(real[infeasible][0].sum())
        raise RegardError(f"Crf: the constraints allow no sequence of length {length}")


def prepare_lengths(lengths: AnyLengths | None, scores: Float[Tensor, "batch time tags"]) -> SequenceLengths:
    """Return the lengths on the device of the scores; defaults to the full length."""
    batch, time, _ = scores.shape
    lengths = SequenceLengths.of(torch.full((batch,), time) if lengths is None else lengths, scores.device)
    if not torch.compiler.is_compiling() and batch and not 1 <= min(lengths.tolist()) <= max(lengths.tolist()) <= time:
        raise RegardError(
            f"Crf: lengths must be at least 1 and at most {time}, "
            f"got {min(lengths.tolist())} to {max(lengths.tolist())}"
        )
    return lengths


def build_constraint(name: str, allowed: Bool[Tensor, "..."] | None, shape: tuple[int, ...]) -> Bool[Tensor, "..."]:
    """Return a copy of a constraint, or one that allows everything for None."""
    if allowed is None:
        return torch.ones(shape, dtype=torch.bool)
    if allowed.shape != shape:
        raise RegardError(f"Crf: {name} must have shape {shape} for {shape[0]} tags, got {tuple(allowed.shape)}")
    return allowed.clone()
