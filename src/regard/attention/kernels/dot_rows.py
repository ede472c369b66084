"""Reductions of a softmax over dot products, several times as fast as those for any score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast
from regard.attention.call import Call, iter_blocks
from regard.attention.kernels.kernel import NOT_OF_FORM, AttentionKernel
from regard.attention.normalizers import LOG2_E, Softmax
from regard.attention.reductions import DEEP, LogRows, Rows, reduce_rows
from regard.attention.visible import Rule, intersect_ranges, select_broadcast, select_index, split_conjunction

FEW = 64  # the minimum number of rows for a fast product
INTEGERS = {4: torch.int32, 8: torch.int64}  # by byte size


@dataclass(frozen=True)
class _RowOptions:
    """Properties of all rows of one pass."""

    may_be_infinite: bool  # whether a logarithm may be infinite
    as_integers: bool  # whether weights can be sorted as integers, which is faster in torch
    may_overwrite: bool  # whether the entropy, computed last, may overwrite the weights


class _DotRows(LogRows):
    """Rows in a buffer that is reused for the next block."""

    def __init__(self, rows: slice, span: slice, logarithms: Tensor, buffer: Tensor, options: _RowOptions) -> None:
        super().__init__(rows, span, logarithms)
        self.buffer = buffer  # for the weights
        self.options = options

    @cached_property
    def weights(self) -> Tensor:  # type: ignore[override]
        """The weights of these rows."""
        return torch.exp2(self.logarithms, out=self.buffer)

    @property
    def order(self) -> Tensor:
        """The weights, as integers if possible: the bits of floats from 0 up sort like the floats."""
        weights = self.weights
        return weights.view(INTEGERS[weights.element_size()]) if self.options.as_integers else weights

    def entropy(self) -> Tensor:
        if not self.options.may_overwrite:
            return super().entropy()
        weights = self.weights
        if self.options.may_be_infinite:
            self.logarithms.clamp_min_(DEEP)
        return weights.mul_(self.logarithms).sum(-1) / -LOG2_E


def reduce(call: Call, statistic: Float[Tensor, "*batch queries 1"], names: Sequence[str]) -> dict[str, Any]:
    """Compute reductions; the entropy comes last for each block, so that it may overwrite the weights."""
    names = sorted(names, key=lambda name: name == "entropy")
    return reduce_rows(iter_dot_rows(call, statistic, may_overwrite=True), names, call.terms.shape, statistic)


def walk_rows(call: Call, statistic: Float[Tensor, "*batch queries 1"]) -> Iterator[Rows]:
    """Iterate over all rows in blocks; a block is valid until the next one is requested."""
    return iter_dot_rows(call, statistic, may_overwrite=False)


def iter_dot_rows(
    call: Call, statistic: Float[Tensor, "*batch queries 1"], *, may_overwrite: bool
) -> Iterator[_DotRows]:
    """Iterate over all rows in blocks, in two buffers that are reused for each block.

    The values of one key are contiguous in memory. After a product with this layout, the next operations ran at full
    speed on two cores; after one with contiguous rows they took up to five times as long, as if each core had to fetch
    what the other had computed. The log-sum-exp is written to the buffer before the product, which adds to it at little
    cost.

    With a bias, whose rows are contiguous, the product has contiguous rows and the log-sum-exp is subtracted last: if
    a rule leaves a row only keys of -1e9, both are so large that they cancel only if rounded the same way, and even
    then a weight may come out above one.
    """
    terms, bias = call.terms, call.bias
    *batch, n, m = terms.shape
    assert terms.score.dot_scale is not None
    query, keys, base = (
        t.expand(*batch, *t.shape[-2:]).reshape(math.prod(batch), *t.shape[-2:])
        for t in (call.query, call.keys, statistic.mT.contiguous() * -LOG2_E)
    )
    query, keys = upcast(query) * (terms.score.dot_scale * LOG2_E), upcast(keys)
    as_integers = statistic.is_cpu and bool(statistic.isfinite().all())  # otherwise a weight may be NaN
    options = _RowOptions(bias is not None or terms.visible is not None, as_integers, may_overwrite)
    size = max(1, min(n, max(FEW, 2 * call.tile_size()[0])))
    buffers = [query.new_empty(len(query) * size * m) for _ in range(2)]
    for rows in iter_blocks(range(n), size):
        span = call.reach(rows)
        width, height = span.stop - span.start, rows.stop - rows.start
        pieces = [part[: len(query) * width * height] for part in buffers]
        query_rows, span_keys = select_index(query, -2, rows), select_index(keys, -2, span)
        if bias is None:
            pieces[0].view(len(query), width, height).copy_(select_index(base, -1, rows)).baddbmm_(
                span_keys, query_rows.mT
            )
            logarithms, weights = (piece.view(*batch, width, height).mT for piece in pieces)
        else:
            pieces[0].view(len(query), height, width).baddbmm_(query_rows, span_keys.mT, beta=0, alpha=1 / LOG2_E)
            logarithms, weights = (piece.view(*batch, height, width) for piece in pieces)
            logarithms.add_(select_broadcast(select_broadcast(bias, -2, rows), -1, span)).sub_(
                select_index(statistic, -2, rows)
            )
            logarithms.clamp_max_(0).mul_(LOG2_E)
        mask_hidden(logarithms, call, rows, span)
        yield _DotRows(rows, span, logarithms, weights, options)


def mask_hidden(logarithms: Float[Tensor, "*batch rows span"], call: Call, rows: slice, span: slice) -> None:
    """Set the logarithms of hidden keys to -inf."""
    shape = call.terms.shape
    for rule in split_conjunction(call.terms.visible):
        for part in iter_uncertain(rule, rows, span, shape):
            hidden = ~rule.tile(rows, part, shape, logarithms.device)
            logarithms[..., part.start - span.start : part.stop - span.start].masked_fill_(hidden, -math.inf)


def iter_uncertain(rule: Rule, rows: slice, span: slice, shape: torch.Size) -> Iterator[slice]:
    """Yield the parts of a span of keys that are not known to be visible from all of these rows."""
    certain = intersect_ranges(
        rule.certainly_visible(range(rows.start, rows.stop), shape), range(span.start, span.stop)
    )
    if not certain:
        yield span
        return
    for start, stop in ((span.start, certain.start), (certain.stop, span.stop)):
        if start < stop:
            yield slice(start, stop)


def unsupported_reason(call: Call, job: str) -> str | None:
    """Return why a call is not a softmax over dot products; None if it is."""
    if call.terms.score.dot_scale is None:
        return f"{type(call.terms.score).__name__} {NOT_OF_FORM['dot']}"
    if not isinstance(call.terms.normalizer, Softmax):
        return f"{type(call.terms.normalizer).__name__} is not softmax"
    return None


DOT_ROWS = AttentionKernel(
    "dot_rows", forms=("dot",), unsupported_reason=unsupported_reason, reduce=reduce, rows=walk_rows
)
