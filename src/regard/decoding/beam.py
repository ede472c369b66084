"""Beam search."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.watch import report_reordering
from regard.batch import BOS, EOS, PAD, Batch
from regard.decoding.hypothesis import Hypothesis, from_padded
from regard.decoding.steps import GenerativeModel, all_done, allowed_log_probabilities, check_eval_mode, resolve_limits
from regard.decoding.topk import stable_topk
from regard.errors import RegardError
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State

Number = TypeVar("Number", float, Tensor)


def beam_search(
    model: Seq2Seq,
    batch: Batch,
    width: int = 5,
    nbest: int = 1,
    length_penalty: float = 1.0,
    *,
    max_length: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> list[list[Hypothesis]]:
    """Return the best targets of each source by beam search.

    Each step extends every live hypothesis by every token. Of the `width` best extensions,
    those with <eos> are finished; the `width` best without <eos> stay live. A sentence is done
    when no live hypothesis can still outrank the n best finished ones, so stopping early loses
    nothing. Ties are broken by age, then by the extended hypothesis, then by token. Width 1
    without a length penalty is greedy decoding.

    Args:
        model: A model in evaluation mode.
        batch: Sources, on the model's device.
        width: Number of live hypotheses per source.
        nbest: Number of targets to return per source, at most `width`.
        length_penalty: Targets rank by log-probability / ((5 + length) / 6) ** length_penalty
            (Wu et al. 2016, 7), where length includes <eos>; 0 is no penalty, higher values favor
            longer targets.
        max_length: As in `greedy`.
        allow_unknown: Allow <unk> in targets.

    Returns:
        For each source, `nbest` different hypotheses, best first; fewer only if fewer exist.
        Hypotheses cut off at the maximum length come after those that ended.

    Raises:
        RegardError: A setting is out of range, or the model is in training mode or gives no finite
            probabilities.

    Example:
        >>> best = beam_search(model.eval(), batch, width=5)[0][0]
        >>> best.target, best.log_probability
    """
    steps = iter_beam_search(
        model, batch, width, nbest, length_penalty, max_length=max_length, allow_unknown=allow_unknown
    )
    return collect_results(steps)


@torch.no_grad()
def iter_beam_search(
    model: Seq2Seq,
    batch: Batch,
    width: int = 5,
    nbest: int = 1,
    length_penalty: float = 1.0,
    *,
    max_length: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> Iterator[BeamSearch]:
    """Yield the search of `beam_search` after each step; nothing for an empty batch.

    It is the same object each time: call `get_live` and `get_candidates` after a step, and
    `get_results` after the last one. You can stop at any step. The arguments are those of
    `beam_search`.
    """
    check_eval_mode(model)
    check_beam(width, nbest, length_penalty)
    if not len(batch):
        return
    limits = resolve_limits(model, batch, max_length)
    search = BeamSearch(torch.full_like(limits, BOS), limits, width, nbest, length_penalty)
    yield from search.run(model, model.start(batch, search.capacity, copies=width), allow_unknown)


def collect_results(steps: Iterable[BeamSearch]) -> list[list[Hypothesis]]:
    """Run a search to its end and return its results."""
    last = deque(steps, maxlen=1)
    return last[0].get_results() if last else []


def check_beam(width: int, nbest: int, length_penalty: float) -> None:
    """Raise a `RegardError` if a setting of a beam search is out of range."""
    if width < 1:
        raise RegardError(f"beam_search: width must be at least 1, got {width}")
    if not 1 <= nbest <= width:
        raise RegardError(f"beam_search: nbest must be at least 1 and at most width ({width}), got {nbest}")
    if not 0 <= length_penalty < torch.inf:
        raise RegardError(f"beam_search: length_penalty must be at least 0 and finite, got {length_penalty}")


def compute_length_penalty(length: Number, alpha: float) -> Number:
    """Return the number that divides the log-probability of a target of some tokens, <eos> included, to rank it."""
    return ((5 + length) / 6) ** alpha


class Candidates(NamedTuple):
    """The candidates of a step: live hypotheses extended by one token, best first."""

    live: Int[Tensor, "batch width capacity"]  # before the step
    done: Bool[Tensor, " batch"]  # before the step
    totals: Float[Tensor, "batch many"]
    parents: Int[Tensor, "batch many"]  # indices into `live`
    tokens: Int[Tensor, "batch many"]


class BeamSearch:
    """The state of a beam search over a batch: live hypotheses, and the best finished ones.

    Both are sorted, best first; unused slots have a log-probability of -inf. The live
    hypotheses of a sentence that is done no longer change. The first step reads the `last`
    token of each sentence.
    """

    candidates: Candidates

    def __init__(
        self,
        last: Int[Tensor, " batch"],
        limits: Int[Tensor, " batch"],
        width: int,
        nbest: int,
        alpha: float,
        *,
        ended_first: bool = True,
    ) -> None:
        self.limits, self.capacity, self.ended_first = limits, int(limits.max()), ended_first
        self.done = torch.zeros_like(limits, dtype=torch.bool)
        self.last_tokens = last.repeat_interleave(width)
        self.length = 0
        self.penalties = compute_length_penalty(torch.arange(self.capacity + 1, device=limits.device), alpha)
        self.live = limits.new_full((len(limits), width, self.capacity), PAD)
        self.totals = torch.full(self.live.shape[:2], -torch.inf, device=limits.device)
        self.totals[:, 0] = 0  # all copies are equal before the first token, so only one counts
        self.ended = limits.new_full((len(limits), nbest, self.capacity), PAD)
        self.ended_totals = torch.full(self.ended.shape[:2], -torch.inf, device=limits.device)
        self.ended_scores = self.ended_totals

    def run(self, model: GenerativeModel, state: State, allow_unknown: bool) -> Iterator[BeamSearch]:
        """Run the search to its end and yield it after each step; the state has `width` rows per sentence."""
        while True:
            logits, state = model.step(self.last_tokens, state)
            over, rows = self.extend(allowed_log_probabilities(logits, allow_unknown))
            yield self
            if over:
                return
            state.select(rows)
            report_reordering()

    def extend(self, log_probabilities: Float[Tensor, "rows vocabulary"]) -> tuple[bool, Int[Tensor, " rows"]]:
        """Extend the live hypotheses by one token.

        Returns:
            Whether this was the last step, and for each live hypothesis the row it extends.
        """
        width, vocabulary = self.totals.shape[1], log_probabilities.shape[-1]
        longer = self.totals[:, :, None] + log_probabilities.unflatten(0, (-1, width))  # (batch, width, vocabulary)
        totals, indices = stable_topk(longer.flatten(1), 2 * width)  # at least half of these do not end
        parents, tokens = indices // vocabulary, indices % vocabulary
        self.length += 1
        self.candidates = Candidates(self.live, self.done, totals, parents, tokens)
        self._keep_ended(totals[:, :width], parents[:, :width], tokens[:, :width])
        continuing = (tokens == EOS).int().sort(stable=True).indices[:, :width]
        rows = self._continue_live(*(tensor.gather(1, continuing) for tensor in (totals, parents, tokens)))
        before, bound = self.done, self.totals[:, 0] / self.penalties[self.limits]
        self.done = before | (bound <= self.ended_scores[:, -1]) | (self.limits == self.length)
        return all_done(self.done, totals[:, 0], before), rows

    def _keep_ended(
        self,
        totals: Float[Tensor, "batch width"],
        parents: Int[Tensor, "batch width"],
        tokens: Int[Tensor, "batch width"],
    ) -> None:
        """Keep the best finished hypotheses."""
        totals = totals.masked_fill((tokens != EOS) | self.done[:, None], -torch.inf)
        hypotheses = torch.cat([self.ended, self._lengthen(self.live, parents, tokens)], 1)
        scores = torch.cat([self.ended_scores, totals / self.penalties[self.length]], 1)
        totals = torch.cat([self.ended_totals, totals], 1)
        scores, order = scores.sort(descending=True, stable=True)
        order = order[:, : self.ended.shape[1]]
        self.ended = gather_rows(hypotheses, order)
        self.ended_totals, self.ended_scores = totals.gather(1, order), scores[:, : order.shape[1]]

    def _continue_live(
        self,
        totals: Float[Tensor, "batch width"],
        parents: Int[Tensor, "batch width"],
        tokens: Int[Tensor, "batch width"],
    ) -> Int[Tensor, " rows"]:
        """Replace the live hypotheses, except in sentences that are done; return the row each one extends."""
        done, (batch, width) = self.done[:, None], totals.shape
        unchanged = torch.arange(width, device=done.device)
        parents, tokens = torch.where(done, unchanged, parents), tokens.masked_fill(done, PAD)
        self.totals = torch.where(done, self.totals, totals)
        self.live = self._lengthen(self.live, parents, tokens)
        self.last_tokens = tokens.flatten()
        return (parents + width * torch.arange(batch, device=done.device)[:, None]).flatten()

    def get_live(self) -> list[list[Hypothesis]]:
        """Return the live hypotheses of each sentence, best first."""
        return to_hypotheses(self.live, self.totals)

    def get_candidates(self) -> list[list[Hypothesis]]:
        """Return what the last step finished or kept live for each sentence, best first.

        Sentences that were done before the step have no candidates.
        """
        live, done, totals, parents, tokens = self.candidates
        ends, width = tokens == EOS, self.totals.shape[1]
        rank = torch.arange(tokens.shape[1], device=tokens.device)
        is_candidate = torch.where(ends, rank < width, (~ends).cumsum(1) <= width) & ~done[:, None]
        hypotheses = self._lengthen(live, parents, tokens)[:, :, : self.length]
        return to_hypotheses(hypotheses, totals.masked_fill(~is_candidate, -torch.inf))

    def _lengthen(
        self,
        live: Int[Tensor, "batch width capacity"],
        parents: Int[Tensor, "batch some"],
        tokens: Int[Tensor, "batch some"],
    ) -> Int[Tensor, "batch some capacity"]:
        """Return extensions of the hypotheses that were live before the last step."""
        longer = gather_rows(live, parents)
        longer[:, :, self.length - 1] = tokens
        return longer

    def get_results(self) -> list[list[Hypothesis]]:
        """Return the n best of each sentence: finished before live ones, or with `ended_first=False` by rank alone."""
        hypotheses = torch.cat([self.ended, self.live], 1)
        totals = torch.cat([self.ended_totals, self.totals], 1)
        if not self.ended_first:
            scores = torch.cat([self.ended_scores, self.totals / self.penalties[self.length]], 1)
            order = scores.argsort(descending=True, stable=True)
            hypotheses, totals = gather_rows(hypotheses, order), totals.gather(1, order)
        return [nbest[: self.ended.shape[1]] for nbest in to_hypotheses(hypotheses, totals)]


def to_hypotheses(
    hypotheses: Int[Tensor, "batch many length"], totals: Float[Tensor, "batch many"]
) -> list[list[Hypothesis]]:
    """Convert tensors to the hypotheses of each sentence, without unused slots."""
    return [
        [from_padded(*row) for row in zip(*sentence, strict=True) if row[1] > -torch.inf]
        for sentence in zip(hypotheses.tolist(), totals.tolist(), strict=True)
    ]


def gather_rows(
    hypotheses: Int[Tensor, "batch many capacity"], indices: Int[Tensor, "batch few"]
) -> Int[Tensor, "batch few capacity"]:
    """Select hypotheses of each sentence by index."""
    return hypotheses.gather(1, indices[:, :, None].expand(-1, -1, hypotheses.shape[-1]))
