"""What can be asked of weights without holding them: each question is fed blocks of whole rows.

Several share one walk over the weights (`Weights.reduce`), so that three answers
cost little more than one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.attention.base_score import widened
from regard.attention.comparison import Comparison, blocks
from regard.attention.normalise import LOG2_E
from regard.attention.scores import FixedDot
from regard.attention.visible import Rule, common, conjuncts, pick, take
from regard.errors import RegardError, unknown_name

FEW = 64  # rows, of which at least so many make a fast product
GROUP = 16  # keys whose best is looked at first when the top ones are sought
INTEGERS = {4: torch.int32, 8: torch.int64}  # by their bytes
DEEP = -2000.0  # 2 to the power of it is zero in every type


class Rows:
    """Some whole rows of weights, without the keys outside `span`, which have none."""

    def __init__(self, rows: slice, span: slice, weights: Tensor) -> None:
        self.rows = rows
        self.span = span
        self.weights = weights  # (*batch, rows, span)

    @property
    def order(self) -> Tensor:
        """The weights, or numbers of as many bytes that stand in the same order."""
        return self.weights

    def entropy(self) -> Tensor:
        """-sum(w log w) of each row; it may use the weights up, so nothing can be asked after it."""
        return torch.special.entr(self.weights).sum(-1)


class SoftmaxRows(Rows):
    """Rows of a softmax, of which the logarithms are there, and the weights once asked for.

    All to base 2, since torch's exp2 takes a third of the time of its exp on a CPU.
    """

    def __init__(
        self,
        rows: slice,
        span: slice,
        logarithms: Tensor,
        *,
        may_be_infinite: bool = True,
        as_integers: bool = False,
        room: Tensor | None = None,
    ) -> None:
        self.rows = rows
        self.span = span
        self.logarithms = logarithms
        self.may_be_infinite = may_be_infinite
        self.as_integers = as_integers
        self.room = room  # memory for the weights

    @cached_property
    def weights(self) -> Tensor:  # type: ignore[override]
        """The weights of these rows."""
        return torch.exp2(self.logarithms, out=self.room)

    @property
    def order(self) -> Tensor:
        """Integers where that may be, which torch ranks faster: floats from 0 up stand in the order of their bits."""
        return self.weights.view(INTEGERS[self.weights.element_size()]) if self.as_integers else self.weights

    def entropy(self) -> Tensor:
        weights = self.weights
        if self.may_be_infinite:
            self.logarithms.clamp_min_(DEEP)
        return weights.mul_(self.logarithms).sum(-1) / -LOG2_E


def softmax_rows(comparison: Comparison, log_sum_exp: Tensor, rows: slice, span: slice) -> SoftmaxRows:
    """Rows of a softmax over any scores."""
    scores = comparison.span(rows, span).expand(*comparison.terms.shape[:-2], -1, -1)
    return SoftmaxRows(rows, span, (scores - pick(log_sum_exp, -2, rows)) * LOG2_E)


def dot_rows(comparison: Comparison, log_sum_exp: Tensor) -> Iterator[SoftmaxRows]:
    """All rows of a softmax over dot products: the same, in two pieces of memory that are used again for each block.

    All that belongs to one key lies together in memory: after a product laid out so, what comes next took as long on
    two cores as by itself; after one laid out by rows up to five times as long, as if each core had to fetch what the
    other had computed. The log-sum-exp is there before the product, which adds to what it finds at little cost.

    Where there is a bias, whose rows lie together, so do those of the product, and the log-sum-exp is taken off last:
    where a rule leaves a row nothing but keys of -1e9, both are so large that they cancel only when rounded alike, and
    even then may leave more than a weight of one.
    """
    terms, bias = comparison.terms, comparison.bias
    *batch, n, m = terms.shape
    assert isinstance(terms.score, FixedDot)
    query, keys, base = (
        t.expand(*batch, *t.shape[-2:]).reshape(math.prod(batch), *t.shape[-2:])
        for t in (comparison.query, comparison.keys, log_sum_exp.mT.contiguous() * -LOG2_E)
    )
    query, keys = widened(query) * (terms.score.factor * LOG2_E), widened(keys)
    may_be_infinite = bias is not None or terms.visible is not None
    as_integers = log_sum_exp.is_cpu and bool(log_sum_exp.isfinite().all())  # else a weight may be NaN, of either sign
    size = max(1, min(n, max(FEW, 2 * comparison.tile_size()[0])))
    room = [query.new_empty(len(query) * size * m) for _ in range(2)]
    for rows in blocks(range(n), size):
        span = comparison.reach(rows)
        wide, high = span.stop - span.start, rows.stop - rows.start
        pieces = [part[: len(query) * wide * high] for part in room]
        own, seen = pick(query, -2, rows), pick(keys, -2, span)
        if bias is None:
            pieces[0].view(len(query), wide, high).copy_(pick(base, -1, rows)).baddbmm_(seen, own.mT)
            logarithms, weights = (piece.view(*batch, wide, high).mT for piece in pieces)
        else:
            pieces[0].view(len(query), high, wide).baddbmm_(own, seen.mT, beta=0, alpha=1 / LOG2_E)
            logarithms, weights = (piece.view(*batch, high, wide) for piece in pieces)
            logarithms.add_(take(take(bias, -2, rows), -1, span)).sub_(pick(log_sum_exp, -2, rows))
            logarithms.clamp_max_(0).mul_(LOG2_E)
        for rule in conjuncts(terms.visible):
            for part in uncertain(rule, rows, span, terms.shape):
                hidden = ~rule.tile(rows, part, terms.shape, logarithms.device)
                logarithms[..., part.start - span.start : part.stop - span.start].masked_fill_(hidden, -math.inf)
        yield SoftmaxRows(
            rows, span, logarithms, may_be_infinite=may_be_infinite, as_integers=as_integers, room=weights
        )


def uncertain(rule: Rule, rows: slice, span: slice, shape: torch.Size) -> Iterator[slice]:
    """The parts of a span of keys that are not known to be visible from each of these rows."""
    certain = common(rule.certain(range(rows.start, rows.stop), shape), range(span.start, span.stop))
    if not certain:
        yield span
        return
    for start, stop in ((span.start, certain.start), (certain.stop, span.stop)):
        if start < stop:
            yield slice(start, stop)


class Reduction(ABC):
    """A question about all weights, answered from blocks of rows."""

    needs_ranks = True
    comes_last = False  # of those that share a walk, since it uses up what it is given

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self.shape = shape
        self.like = like

    @abstractmethod
    def add(self, block: Rows) -> None:
        """Take in some more rows."""

    @abstractmethod
    def result(self) -> Tensor | tuple[Tensor, Tensor]:
        """The answer, once every row was taken in."""


class Top(Reduction):
    """The k keys with most weight for each query, and where they stand; -1 where fewer have any."""

    def __init__(self, shape: torch.Size, like: Tensor, k: int) -> None:
        super().__init__(shape, like)
        self.k = min(k, shape[-1])
        self.values = like.new_zeros(*shape[:-1], self.k)
        self.indices = like.new_full((*shape[:-1], self.k), -1, dtype=torch.long)

    def add(self, block: Rows) -> None:
        k = min(self.k, block.weights.shape[-1])
        if k == 0:
            return
        found, where = greatest(block.order, k)
        pick(self.values, -2, block.rows)[..., :k] = found.view(block.weights.dtype)
        pick(self.indices, -2, block.rows)[..., :k] = where + block.span.start if block.span.start else where

    def result(self) -> tuple[Tensor, Tensor]:
        return self.values, self.indices.masked_fill_(self.values <= 0, -1)


class Argmax(Reduction):
    """The key with most weight for each query, the first of equals; -1 where none has any."""

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        super().__init__(shape, like)
        self.found = like.new_full(shape[:-1], -1, dtype=torch.long)

    def add(self, block: Rows) -> None:
        if block.weights.shape[-1]:
            most, where = block.weights.max(-1)
            pick(self.found, -1, block.rows)[:] = torch.where(most > 0, where + block.span.start, -1)

    def result(self) -> Tensor:
        return self.found


class Received(Reduction):
    """How much attention each key gets from all queries together."""

    needs_ranks = False

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        super().__init__(shape, like)
        self.total = like.new_zeros(*shape[:-2], shape[-1])

    def add(self, block: Rows) -> None:
        pick(self.total, -1, block.span).add_(block.weights.sum(-2))

    def result(self) -> Tensor:
        return self.total


class Entropy(Reduction):
    """How spread each query's attention is, in nats; zero where it sees nothing."""

    comes_last = True

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        super().__init__(shape, like)
        self.found = like.new_zeros(shape[:-1])

    def add(self, block: Rows) -> None:
        pick(self.found, -1, block.rows)[:] = block.entropy()

    def result(self) -> Tensor:
        return self.found.clamp_min_(0)  # a weight of 1, rounded, may have a logarithm above 0


def as_reduction(name: str, shape: torch.Size, like: Tensor, others: Sequence[str] = ()) -> Reduction:
    """The reduction of a name: `top:K`, `received`, `entropy` or `argmax`; `others` are names that would do as well."""
    kind, _, number = name.partition(":")
    if kind == "top":
        if not number.isdecimal() or int(number) == 0:
            raise RegardError(f'"{name}" asks for no number of keys; write "top:8" for the eight with most weight')
        return Top(shape, like, int(number))
    kinds: dict[str, type[Argmax | Received | Entropy]] = {"argmax": Argmax, "entropy": Entropy, "received": Received}
    if name not in kinds:
        raise unknown_name(
            "reduction", name, [*kinds, *others, f"top:{number if number.strip('0').isdecimal() else 8}"]
        )
    return kinds[name](shape, like)


def greatest(numbers: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest numbers of each row, the greatest first, and where they stand.

    They lie in the k groups whose own greatest numbers are the greatest, which are found
    in the same way, so that only few numbers are ever sorted.
    """
    groups = numbers.shape[-1] // GROUP
    if groups <= 2 * k:
        return numbers.topk(k)
    together = groups * GROUP
    grouped = numbers[..., :together].unflatten(-1, (GROUP, groups))
    best = torch.amax(grouped, -2, out=torch.empty_like(numbers[..., :groups]))  # lies in memory as the numbers do
    members = torch.arange(0, together, groups, device=numbers.device)
    places = (greatest(best, k)[1][..., None] + members).flatten(-2)
    if together < numbers.shape[-1]:
        rest = torch.arange(together, numbers.shape[-1], device=numbers.device)
        places = torch.cat([places, rest.expand(*places.shape[:-1], -1)], -1)
    found, chosen = numbers.gather(-1, places).topk(k)
    return found, places.gather(-1, chosen)
