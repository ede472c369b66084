"""The reductions of a softmax over dot products: the same blocks of rows as for any score, several times as fast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import widened
from regard.attention.call import Call, blocks
from regard.attention.kernels.kernel import NOT_OF_FORM, AttentionKernel
from regard.attention.normalise import LOG2_E, Softmax
from regard.attention.reductions import DEEP, LogRows, Rows, reduce_rows
from regard.attention.visible import Rule, common, conjuncts, pick, take

FEW = 64  # rows, of which at least so many make a fast product
INTEGERS = {4: torch.int32, 8: torch.int64}  # by their bytes


@dataclass(frozen=True)
class _Manner:
    """What is known of all rows of one walk."""

    may_be_infinite: bool  # a logarithm
    as_integers: bool  # whether weights can be ranked as integers, which torch does faster
    used_up: bool  # whether the entropy, which comes last, may write over the weights


class _DotRows(LogRows):
    """Rows in memory that is used again for the next ones."""

    def __init__(self, rows: slice, span: slice, logarithms: Tensor, room: Tensor, manner: _Manner) -> None:
        super().__init__(rows, span, logarithms)
        self.room = room  # for the weights
        self.manner = manner

    @cached_property
    def weights(self) -> Tensor:  # type: ignore[override]
        """The weights of these rows."""
        return torch.exp2(self.logarithms, out=self.room)

    @property
    def order(self) -> Tensor:
        """Integers where that may be: floats from 0 up stand in the order of their bits."""
        weights = self.weights
        return weights.view(INTEGERS[weights.element_size()]) if self.manner.as_integers else weights

    def entropy(self) -> Tensor:
        if not self.manner.used_up:
            return super().entropy()
        weights = self.weights
        if self.manner.may_be_infinite:
            self.logarithms.clamp_min_(DEEP)
        return weights.mul_(self.logarithms).sum(-1) / -LOG2_E


def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """Any reductions; the entropy is the last to look at each block, so that it may use the weights up."""
    names = sorted(names, key=lambda name: name == "entropy")
    return reduce_rows(walk(call, statistic, used_up=True), names, call.terms.shape, statistic)


def walk_rows(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Iterator[Rows]:
    """All rows, a block at a time, which stay as they are until the next is asked for."""
    return walk(call, statistic, used_up=False)


def walk(call: Call, statistic: Float[Tensor, "*batch queries 1"], *, used_up: bool) -> Iterator[_DotRows]:
    """All rows, in two pieces of memory that are used again for each block.

    All that belongs to one key lies together in memory: after a product laid out so, what comes next took as long on
    two cores as by itself; after one laid out by rows up to five times as long, as if each core had to fetch what the
    other had computed. The log-sum-exp is there before the product, which adds to what it finds at little cost.

    Where there is a bias, whose rows lie together, so do those of the product, and the log-sum-exp is taken off last:
    where a rule leaves a row nothing but keys of -1e9, both are so large that they cancel only when rounded alike, and
    even then may leave more than a weight of one.
    """
    terms, bias = call.terms, call.bias
    *batch, n, m = terms.shape
    assert terms.score.dot_scale is not None
    query, keys, base = (
        t.expand(*batch, *t.shape[-2:]).reshape(math.prod(batch), *t.shape[-2:])
        for t in (call.query, call.keys, statistic.mT.contiguous() * -LOG2_E)
    )
    query, keys = widened(query) * (terms.score.dot_scale * LOG2_E), widened(keys)
    as_integers = statistic.is_cpu and bool(statistic.isfinite().all())  # else a weight may be NaN, of either sign
    manner = _Manner(bias is not None or terms.visible is not None, as_integers, used_up)
    size = max(1, min(n, max(FEW, 2 * call.tile_size()[0])))
    room = [query.new_empty(len(query) * size * m) for _ in range(2)]
    for rows in blocks(range(n), size):
        span = call.reach(rows)
        wide, high = span.stop - span.start, rows.stop - rows.start
        pieces = [part[: len(query) * wide * high] for part in room]
        own, seen = pick(query, -2, rows), pick(keys, -2, span)
        if bias is None:
            pieces[0].view(len(query), wide, high).copy_(pick(base, -1, rows)).baddbmm_(seen, own.mT)
            logarithms, weights = (piece.view(*batch, wide, high).mT for piece in pieces)
        else:
            pieces[0].view(len(query), high, wide).baddbmm_(own, seen.mT, beta=0, alpha=1 / LOG2_E)
            logarithms, weights = (piece.view(*batch, high, wide) for piece in pieces)
            logarithms.add_(take(take(bias, -2, rows), -1, span)).sub_(pick(statistic, -2, rows))
            logarithms.clamp_max_(0).mul_(LOG2_E)
        hide(logarithms, call, rows, span)
        yield _DotRows(rows, span, logarithms, weights, manner)


def hide(logarithms: Float[Tensor, "*batch rows span"], call: Call, rows: slice, span: slice) -> None:
    """Write -inf where a query may not look."""
    shape = call.terms.shape
    for rule in conjuncts(call.terms.visible):
        for part in uncertain(rule, rows, span, shape):
            hidden = ~rule.tile(rows, part, shape, logarithms.device)
            logarithms[..., part.start - span.start : part.stop - span.start].masked_fill_(hidden, -math.inf)


def uncertain(rule: Rule, rows: slice, span: slice, shape: torch.Size) -> Iterator[slice]:
    """The parts of a span of keys that are not known to be visible from each of these rows."""
    certain = common(rule.certain(range(rows.start, rows.stop), shape), range(span.start, span.stop))
    if not certain:
        yield span
        return
    for start, stop in ((span.start, certain.start), (certain.stop, span.stop)):
        if start < stop:
            yield slice(start, stop)


def supports(call: Call, job: str) -> str | None:
    """Why these are no rows of a softmax over dot products; None where they are."""
    if call.terms.score.dot_scale is None:
        return f"{type(call.terms.score).__name__} {NOT_OF_FORM['dot']}"
    if not isinstance(call.terms.normaliser, Softmax):
        return f"{type(call.terms.normaliser).__name__} is no softmax"
    return None


DOT_ROWS = AttentionKernel("dot_rows", forms=("dot",), supports=supports, reduce=reduce, rows=walk_rows)
