"""Beam search: the most probable targets that a search of some width finds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.watch import report_reordering
from regard.batch import BOS, EOS, PAD, Batch
from regard.decoding.hypothesis import Hypothesis, from_padded
from regard.decoding.ranking import greatest
from regard.decoding.steps import Writer, all_done, check_settled, choices, limits_of
from regard.errors import RegardError
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State


def beam_search(
    model: Seq2Seq,
    batch: Batch,
    width: int = 5,
    nbest: int = 1,
    length_penalty: float = 1.0,
    *,
    longest: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> list[list[Hypothesis]]:
    """For each source its best targets, best first, all different.

    At each step every live hypothesis is lengthened by every token. What ends among the
    `width` best of these is kept; the `width` best that do not end live on. A sentence
    is done when even with probability 1 from here on, and the length that helps most, no
    live hypothesis could rank before the last of the n best that ended, so that nothing
    is lost by stopping. Equals rank by age, then by the hypothesis they lengthen, then
    by token. Width 1 without a length penalty is greedy decoding.

    There are fewer than `nbest` only where fewer are possible. Hypotheses that have not
    ended at the greatest length follow after all that have.

    Args:
        model: In evaluation mode.
        batch: Sources, where the model is.
        width: How many hypotheses of each source live at a time.
        nbest: How many to give back, at most `width`.
        length_penalty: Targets rank by log-probability / ((5 + length) / 6) ** length_penalty
            (Wu et al. 2016, 7), where length counts <eos>; 0 is none, more favours longer ones.
        longest: As in `greedy`.
        allow_unknown: Whether <unk> may be chosen.
    """
    steps = search_steps(model, batch, width, nbest, length_penalty, longest=longest, allow_unknown=allow_unknown)
    return results_of(steps)


@torch.no_grad()
def search_steps(
    model: Seq2Seq,
    batch: Batch,
    width: int = 5,
    nbest: int = 1,
    length_penalty: float = 1.0,
    *,
    longest: int | Int[Tensor, " batch"] | None = None,
    allow_unknown: bool = False,
) -> Iterator[Search]:
    """The search of `beam_search`, with the same settings, after each of its steps; none where there are no sources.

    It is the same object each time. Ask it at a step what is `alive` and what was
    `considered`, and after the last for its `results`. It can be left at any step.
    """
    check_settled(model)
    check_beam(width, nbest, length_penalty)
    if not len(batch):
        return
    limits = limits_of(model, batch, longest)
    search = Search(torch.full_like(limits, BOS), limits, width, nbest, length_penalty)
    yield from search.walk(model, model.start(batch, search.capacity, copies=width), allow_unknown)


def results_of(steps: Iterable[Search]) -> list[list[Hypothesis]]:
    """What a search has found after its last step."""
    last = deque(steps, maxlen=1)
    return last[0].results() if last else []


def check_beam(width: int, nbest: int, length_penalty: float) -> None:
    """Raise a `RegardError` for settings of which there is no beam."""
    if width < 1:
        raise RegardError(f"beam_search: width is {width}; 1 is the least")
    if not 1 <= nbest <= width:
        raise RegardError(f"beam_search: nbest is {nbest}; a beam of width {width} gives 1 to {width}")
    if not 0 <= length_penalty < torch.inf:
        raise RegardError(
            f"beam_search: length_penalty is {length_penalty}; 0 is none, a number above it favours length"
        )


class Candidates(NamedTuple):
    """What a step chooses from: live hypotheses, each longer by one token, best first."""

    live: Int[Tensor, "batch width capacity"]  # before the step
    done: Bool[Tensor, " batch"]  # before the step
    totals: Float[Tensor, "batch many"]
    parents: Int[Tensor, "batch many"]  # among those that lived
    tokens: Int[Tensor, "batch many"]


class Search:
    """The hypotheses of all sentences at once: those that live, and the best that have ended.

    Both are sorted, best first; where there is none its log-probability is -inf. The
    live ones of a sentence that is done stay as they are. The first step reads the
    `last` token that each sentence has before the search.
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
        self.last = last.repeat_interleave(width)
        self.length = 0
        self.penalties = ((5 + torch.arange(self.capacity + 1, device=limits.device)) / 6) ** alpha
        self.live = limits.new_full((len(limits), width, self.capacity), PAD)
        self.totals = torch.full(self.live.shape[:2], -torch.inf, device=limits.device)
        self.totals[:, 0] = 0  # all copies are equal before the first token, so that one of them counts
        self.ended = limits.new_full((len(limits), nbest, self.capacity), PAD)
        self.ended_totals = torch.full(self.ended.shape[:2], -torch.inf, device=limits.device)
        self.ended_scores = self.ended_totals

    def walk(self, model: Writer, state: State, allow_unknown: bool) -> Iterator[Search]:
        """Search to the end; itself after each step. The state has `width` hypotheses of each sentence."""
        while True:
            logits, state = model.step(self.last, state)
            over, rows = self.extend(choices(logits, allow_unknown))
            yield self
            if over:
                return
            state.select(rows)
            report_reordering()

    def extend(self, found: Float[Tensor, "rows vocabulary"]) -> tuple[bool, Int[Tensor, " rows"]]:
        """Lengthen what lives by one token: whether that was the last step, and the row each live one comes from."""
        width, vocabulary = self.totals.shape[1], found.shape[-1]
        longer = self.totals[:, :, None] + found.unflatten(0, (-1, width))  # (batch, width, vocabulary)
        totals, places = greatest(longer.flatten(1), 2 * width)  # at least half of these do not end
        parents, tokens = places // vocabulary, places % vocabulary
        self.length += 1
        self.candidates = Candidates(self.live, self.done, totals, parents, tokens)
        self._keep_ended(totals[:, :width], parents[:, :width], tokens[:, :width])
        going = (tokens == EOS).int().sort(stable=True).indices[:, :width]
        rows = self._go_on(*(each.gather(1, going) for each in (totals, parents, tokens)))
        before, bound = self.done, self.totals[:, 0] / self.penalties[self.limits]
        self.done = before | (bound <= self.ended_scores[:, -1]) | (self.limits == self.length)
        return all_done(self.done, totals[:, 0], before), rows

    def _keep_ended(
        self,
        totals: Float[Tensor, "batch width"],
        parents: Int[Tensor, "batch width"],
        tokens: Int[Tensor, "batch width"],
    ) -> None:
        """Take what ended among the best, if it is better than the last that was kept."""
        totals = totals.masked_fill((tokens != EOS) | self.done[:, None], -torch.inf)
        hypotheses = torch.cat([self.ended, self._lengthened(self.live, parents, tokens)], 1)
        scores = torch.cat([self.ended_scores, totals / self.penalties[self.length]], 1)
        totals = torch.cat([self.ended_totals, totals], 1)
        scores, order = scores.sort(descending=True, stable=True)
        order = order[:, : self.ended.shape[1]]
        self.ended = rows_at(hypotheses, order)
        self.ended_totals, self.ended_scores = totals.gather(1, order), scores[:, : order.shape[1]]

    def _go_on(
        self,
        totals: Float[Tensor, "batch width"],
        parents: Int[Tensor, "batch width"],
        tokens: Int[Tensor, "batch width"],
    ) -> Int[Tensor, " rows"]:
        """Let these live, except in sentences that are done; give the row each comes from."""
        done, (batch, width) = self.done[:, None], totals.shape
        own = torch.arange(width, device=done.device)
        parents, tokens = torch.where(done, own, parents), tokens.masked_fill(done, PAD)
        self.totals = torch.where(done, self.totals, totals)
        self.live = self._lengthened(self.live, parents, tokens)
        self.last = tokens.flatten()
        return (parents + width * torch.arange(batch, device=done.device)[:, None]).flatten()

    def alive(self) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence that live on, best first."""
        return possible(self.live, self.totals)

    def considered(self) -> list[list[Hypothesis]]:
        """What the last step considered for each sentence that was not done before it, best first.

        These are the hypotheses that ended there among the `width` best, and those that live on.
        """
        live, done, totals, parents, tokens = self.candidates
        ends, width = tokens == EOS, self.totals.shape[1]
        rank = torch.arange(tokens.shape[1], device=tokens.device)
        kept = torch.where(ends, rank < width, (~ends).cumsum(1) <= width) & ~done[:, None]
        hypotheses = self._lengthened(live, parents, tokens)[:, :, : self.length]
        return possible(hypotheses, totals.masked_fill(~kept, -torch.inf))

    def _lengthened(
        self,
        live: Int[Tensor, "batch width capacity"],
        parents: Int[Tensor, "batch some"],
        tokens: Int[Tensor, "batch some"],
    ) -> Int[Tensor, "batch some capacity"]:
        """Hypotheses that lived before the last step, each with one token more."""
        longer = rows_at(live, parents)
        longer[:, :, self.length - 1] = tokens
        return longer

    def results(self) -> list[list[Hypothesis]]:
        """The n best of each sentence: those that ended and then those that live, or both by their rank."""
        hypotheses = torch.cat([self.ended, self.live], 1)
        totals = torch.cat([self.ended_totals, self.totals], 1)
        if not self.ended_first:
            scores = torch.cat([self.ended_scores, self.totals / self.penalties[self.length]], 1)
            order = scores.argsort(descending=True, stable=True)
            hypotheses, totals = rows_at(hypotheses, order), totals.gather(1, order)
        return [found[: self.ended.shape[1]] for found in possible(hypotheses, totals)]


def possible(
    hypotheses: Int[Tensor, "batch many length"], totals: Float[Tensor, "batch many"]
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence, without those that there are not."""
    return [
        [from_padded(*each) for each in zip(*sentence, strict=True) if each[1] > -torch.inf]
        for sentence in zip(hypotheses.tolist(), totals.tolist(), strict=True)
    ]


def rows_at(
    hypotheses: Int[Tensor, "batch many capacity"], places: Int[Tensor, "batch few"]
) -> Int[Tensor, "batch few capacity"]:
    """Some hypotheses of each sentence."""
    return hypotheses.gather(1, places[:, :, None].expand(-1, -1, hypotheses.shape[-1]))
