"""Dot products on torch's fused operators, with the log-sum-exp they would throw away.

The operators know top-left causal and a mask that is added; everything else is cut
into parts that they can do. Parts that look at different keys from the same rows
are put together by their log-sum-exp, and each part's backward runs on the output
and log-sum-exp of the whole. No rule is made into a queries x keys tensor: causal
and lengths stay what they are, the others become masks for one block of rows at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.base_score import widened
from regard.attention.call import Call, Terms, blocks
from regard.attention.kernels.dot_backward import dot_backward
from regard.attention.kernels.kernel import NOT_OF_FORM, AttentionKernel, Result
from regard.attention.kernels.operators import Operator, Work, operator_for
from regard.attention.normalise import Softmax
from regard.attention.visible import Both, Causal, Rule, alike_for_all_queries, conjuncts, pick, take

MASK_NUMBERS = 2**22  # how large the mask of one block of rows may be
FEW = 64  # numbers that Python looks through sooner than torch


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Output, the log-sum-exp of every row, and what each operator keeps for its backward."""
    terms, width = call.terms, values.shape[-1]
    inputs = as_four_axes(terms.shape, *of_one_width(call.query, call.keys, values))
    output, lse, extras = run_parts(terms, inputs, call.bias)
    if len(terms.shape) != 4:
        output, lse = output.reshape(*terms.shape[:-1], output.shape[-1]), lse.reshape(terms.shape[:-1])
    if output.shape[-1] != width:
        output = output[..., :width]
    return Result(output, lse.unsqueeze(-1), extra=extras)


def backward(
    call: Call,
    values: Float[Tensor, "*values_batch keys width"],
    result: Result,
    gradient: Float[Tensor, "*batch queries width"],
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients of values, query, keys, and of the bias if wanted, for which the operators have none."""
    terms, lse = call.terms, result.statistic
    assert lse is not None
    padded, query, keys, gradient, output = of_one_width(values, call.query, call.keys, gradient, result.output)
    of_bias = None
    if wanted[3]:
        *found, of_bias = dot_backward(Call(terms, query, keys, call.bias), padded, output, lse, gradient)
    else:
        inputs = as_four_axes(terms.shape, query, keys, padded)
        of_rows = as_four_axes(terms.shape, gradient.contiguous(), output, lse)
        of_query, of_keys, of_values = pull_parts(terms, inputs, call.bias, of_rows, result.extra)
        found = [of_values, of_query, of_keys]
    inputs = values, call.query, call.keys
    return *(in_shape_of(own, f, terms.shape[:-2]) for own, f in zip(inputs, found, strict=True)), of_bias


def in_shape_of(tensor: Tensor, gradient: Tensor, batch: torch.Size) -> Tensor:
    """A gradient for all of *batch and of one width for all, in the shape of what it is for."""
    if gradient.shape == tensor.shape and gradient.dtype == tensor.dtype:
        return gradient
    if gradient.shape[-1] != tensor.shape[-1]:
        gradient = pad(gradient, (0, tensor.shape[-1] - gradient.shape[-1]))
    return gradient.reshape(*batch, *gradient.shape[-2:]).sum_to_size(tensor.shape).to(tensor.dtype)


def of_one_width(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors as wide as the widest, which is what the operators take; on a GPU in multiples of 8."""
    widths = [tensor.shape[-1] for tensor in tensors]
    wide = max(1, *widths)
    if tensors[0].is_cuda:
        wide += -wide % 8
    if min(widths) == wide:
        return tensors
    return tuple(t if width == wide else pad(t, (0, wide - width)) for t, width in zip(tensors, widths, strict=True))


def run_parts(
    terms: Terms, inputs: tuple[Tensor, ...], bias: Tensor | None
) -> tuple[Float[Tensor, "batch heads queries width"], Float[Tensor, "batch heads queries"], list[Any]]:
    """Output and log-sum-exp of all parts together, and what each operator keeps for its backward."""
    query, *_ = inputs
    output, lse, extras = None, None, []
    for part in parts_of(terms, bias, query):
        if part.whole:
            output, lse, extra = run_part(terms, inputs, part, nothing=math.inf)
            return output, lse, [extra]
        found, found_lse, extra = run_part(terms, inputs, part)
        extras.append(extra)
        if output is None or lse is None:
            output, lse = nothing_found(query)
        merge(pick(output, -2, part.rows), lse[..., part.rows], found, found_lse)
    if output is None or lse is None:
        output, lse = nothing_found(query)
    return output, lse.masked_fill(lse == -math.inf, math.inf), extras


def run_part(
    terms: Terms, inputs: tuple[Tensor, ...], part: Part, nothing: float = -math.inf
) -> tuple[Tensor, Tensor, Any]:
    """Output, log-sum-exp (`nothing` for a row that sees nothing) and what the operator keeps, for one part."""
    operator, work = part.work(terms, inputs)
    found, lse, extra = operator.forward(work)
    if part.mask is not None and terms.hides and (lse.is_cuda or part.may_be_blind(lse)):
        blind = part.blind()
        found.masked_fill_(blind[..., None], 0)
        lse.masked_fill_(blind, nothing)
    return found, lse, extra


def nothing_found(query: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of rows that have seen nothing yet."""
    output = torch.zeros_like(query, memory_format=torch.contiguous_format)
    return output, widened(query).new_full(query.shape[:-1], -math.inf)


def merge(output: Tensor, lse: Tensor, found: Tensor, found_lse: Tensor) -> None:
    """Add what was found for some rows to what they have, in place, by the weight of each."""
    total = torch.logaddexp(lse, found_lse)
    shift = total.masked_fill(total == -math.inf, 0)
    output.copy_(output * (lse - shift).exp()[..., None] + found * (found_lse - shift).exp()[..., None])
    lse.copy_(total)


def pull_parts(
    terms: Terms,
    inputs: tuple[Tensor, ...],
    bias: Tensor | None,
    of_rows: tuple[Tensor, ...],
    extras: list[Any],
) -> tuple[Tensor, ...]:
    """Gradients of query, keys and values, summed over the parts; `of_rows` are gradient, output and log-sum-exp."""
    query, *_ = inputs
    sums = None
    for part, extra in zip(parts_of(terms, bias, query), extras, strict=True):
        operator, work = part.work(terms, inputs)
        gradient, output, lse = (pick(tensor, -2, part.rows) for tensor in of_rows)
        found = operator.backward(work, gradient, output, lse[..., 0], extra)
        if part.whole:
            return found
        sums = sums or room_for_sums(inputs)
        for total, where, tensor in zip(sums, (part.rows, part.cols, part.cols), found, strict=True):
            pick(total, -2, where).add_(tensor)
    return tuple(total.to(query.dtype) for total in sums or room_for_sums(inputs))


def room_for_sums(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Zeros of at least float32: many parts would add up their roundings."""
    return tuple(torch.zeros_like(widened(tensor), memory_format=torch.contiguous_format) for tensor in tensors)


class Part(NamedTuple):
    """Some rows and columns that one call of an operator can do."""

    rows: slice
    cols: slice
    whole: bool  # it is all there is
    causal: bool = False
    mask: Float[Tensor, "#batch #heads #rows cols"] | None = None

    def work(self, terms: Terms, inputs: tuple[Tensor, ...]) -> tuple[Operator, Work]:
        """The operator for this part, and what it is given."""
        query, keys, values = inputs
        operator = operator_for(query, self.mask is not None)
        assert operator is not None and terms.score.dot_scale is not None
        if not self.whole:
            query = pick(query, -2, self.rows)
            keys, values = (pick(tensor, -2, self.cols) for tensor in (keys, values))
        return operator, Work(query, keys, values, self.mask, self.causal, terms.score.dot_scale)

    def may_be_blind(self, lse: Float[Tensor, "batch heads rows"]) -> bool:
        """Whether a row may have seen nothing, for which the operators report 0."""
        assert self.mask is not None
        if self.mask.shape[-2] == 1 and not self.causal:
            lse = lse.select(-1, 0)  # all rows of a head saw the same
        return 0.0 in lse.flatten().tolist() if lse.numel() <= FEW else not lse.all()

    def blind(self) -> Bool[Tensor, "#batch #heads #rows"]:
        """Which rows the mask lets see nothing."""
        mask = self.mask
        assert mask is not None
        if self.causal:  # the mask has one row for all queries, of which query i sees the first i + 1 keys
            return (mask != -math.inf).cumsum(-1)[..., 0, :] == 0
        return mask.amax(-1).isneginf()


def parts_of(terms: Terms, bias: Tensor | None, like: Tensor) -> Iterator[Part]:
    """Cut the queries x keys matrix into parts that the operators can do."""
    *_, n, m = terms.shape
    if math.prod(terms.shape) == 0:
        return  # the operators end the process
    everything = slice(0, n), slice(0, m)
    small = bias is None or bias.shape[-2] == 1
    if terms.visible is None and (small or len(terms.shape) <= 4):  # the bias is the mask, as it is
        yield Part(*everything, True, mask=mask_of(terms, [], bias, *everything, like))
        return
    rules = conjuncts(terms.visible)
    if (bias is not None and bias.shape[-2] > 1) or not all(
        isinstance(rule, Causal) or alike_for_all_queries(rule) for rule in rules
    ):
        yield from masked_blocks(terms, bias, like)
        return
    offset = min([m, *(rule.offset(terms.shape) for rule in rules if isinstance(rule, Causal))])
    for_all = [rule for rule in rules if not isinstance(rule, Causal)]
    for rows, cols, is_causal in causal_parts(n, m, offset):
        mask = mask_of(terms, for_all, bias, slice(0, 1), cols, like)
        yield Part(rows, cols, (rows, cols) == everything, is_causal, mask)


def causal_parts(n: int, m: int, offset: int) -> Iterator[tuple[slice, slice, bool]]:
    """Rows, columns and whether top-left causal, where query i sees the keys up to and with i + offset."""
    if offset >= m - 1 or n == 1:
        if offset >= 0:
            yield slice(0, n), slice(0, min(m, offset + n)), False
        return
    if offset > 0:  # keys before the first query, which all queries see
        yield slice(0, n), slice(0, offset), False
    first, start = max(0, -offset), max(0, offset)
    size = min(n - first, m - start)
    if size > 0:
        yield slice(first, first + size), slice(start, start + size), True


def masked_blocks(terms: Terms, bias: Tensor | None, like: Tensor) -> Iterator[Part]:
    """Blocks of rows, each with the keys it can reach and a mask for just these."""
    *_, n, m = terms.shape
    first = mask_of(terms, conjuncts(terms.visible), bias, slice(0, 1), slice(0, 1), like)
    each = 1 if first is None else first.numel()  # how many masks there are: for every sequence and head, or for all
    size = max(1, MASK_NUMBERS // (m * each))
    for rows in blocks(range(n), size):
        reach = range(m) if terms.visible is None else terms.visible.reach(range(rows.start, rows.stop), terms.shape)
        if len(reach):
            cols = slice(reach.start, reach.stop)
            mask = mask_of(terms, conjuncts(terms.visible), bias, rows, cols, like)
            yield Part(rows, cols, False, mask=mask)


def mask_of(
    terms: Terms, rules: list[Rule], bias: Tensor | None, rows: slice, cols: slice, like: Tensor
) -> Float[Tensor, "#batch #heads #rows cols"] | None:
    """The bias, and -inf where a rule forbids to look; None where there is neither."""
    mask = None if bias is None else take(take(bias, -2, rows), -1, cols)
    if rules:
        visible = reduce(Both, rules).tile(rows, cols, terms.shape, like.device)
        mask = torch.where(visible, widened(like).new_zeros(()) if mask is None else mask, -math.inf)
    if mask is None:
        return None
    if mask.ndim == 4 and len(terms.shape) == 4 and mask.shape[-1] == cols.stop - cols.start:
        return mask
    return flatten_batch(mask.expand(*mask.shape[:-1], cols.stop - cols.start), terms.shape[:-2], expand=False)


def as_four_axes(shape: torch.Size, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors that broadcast over *batch, as (batch, heads, positions, width), each row in one piece."""
    batch = shape[:-2]
    flat = [flatten_batch(tensor, batch, expand=True) for tensor in tensors]
    return tuple([t if t.stride(-1) == 1 or t.shape[-1] <= 1 else t.contiguous() for t in flat])


def flatten_batch(tensor: Tensor, batch: torch.Size, *, expand: bool) -> Float[Tensor, "batch heads rows cols"]:
    """Two leading axes for any number of them; without `expand` an axis of one stays so where it can.

    The last axis of *batch stays apart, so that grouped heads, whose keys are one for
    a group, remain a view.
    """
    if len(batch) == 2 and tensor.ndim == 4 and (not expand or tensor.shape[:2] == batch):
        return tensor
    *own, rows, cols = (1,) * (len(batch) + 2 - tensor.ndim) + tensor.shape
    lead, heads = own[:-1], own[-1:]
    if expand or (len(lead) > 1 and any(size != 1 for size in lead)):
        lead = list(batch[:-1])
    if expand:
        heads = list(batch[-1:])
    return tensor.expand(*lead, *heads, rows, cols).reshape(math.prod(lead), math.prod(heads), rows, cols)


def supports(call: Call, job: str) -> str | None:
    """Why torch's fused operators cannot do it; None where they can."""
    terms, query = call.terms, call.query
    if not terms.normaliser.ranked:
        return f"{type(terms.score).__name__} {NOT_OF_FORM['dot']}"
    if not isinstance(terms.normaliser, Softmax):
        return f"{type(terms.normaliser).__name__} is no softmax"
    if terms.dropout:
        return "dropout is not among what the fused operators do in linear memory"
    if operator_for(query, mask=True) is None:
        return f"there is no fused operator for {str(query.dtype).removeprefix('torch.')} on {query.device.type}"
    if call.bias is not None and query.is_cuda and query.dtype != torch.float32:
        return "the fused operators would round the bias to half precision"
    return f"{type(terms.score).__name__} {NOT_OF_FORM['dot']}" if call.dot is None else None


SDPA = AttentionKernel("sdpa", forms=("dot", "constant"), supports=supports, forward=forward, backward=backward)
