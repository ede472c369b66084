"""Dot-product attention on torch's fused operators, keeping the log-sum-exp.

The operators support top-left causal masking and an additive mask; all other calls are split into
parts that they support. Parts with the same rows and different keys are merged by their
log-sum-exp, and the backward of each part uses the output and log-sum-exp of the whole. No rule
becomes a queries x keys tensor: causal and lengths are passed as such, other rules become masks
for one block of rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from itertools import repeat
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.base_score import upcast
from regard.attention.call import Call, Terms, iter_blocks
from regard.attention.kernels.dot_backward import dot_backward
from regard.attention.kernels.kernel import Result
from regard.attention.kernels.operators import Operator, OperatorInputs, choose_operator
from regard.attention.visible import (
    And,
    Causal,
    Rule,
    is_query_independent,
    select_broadcast,
    select_index,
    split_conjunction,
)

MASK_NUMBERS = 2**22  # maximum mask elements of a block of rows
FEW = 64  # elements that Python scans faster than torch


def forward(call: Call, values: Float[Tensor, "*values_batch keys width"]) -> Result:
    """Compute output, log-sum-exp of every row, and the data each operator saves for backward."""
    terms, width = call.terms, values.shape[-1]
    inputs = to_four_axes(terms.shape, *pad_widths(call.query, call.keys, values))
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
    needs_grad: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of values, query, keys, and of the bias if needed, which the operators lack."""
    terms, lse = call.terms, result.statistic
    assert lse is not None
    padded, query, keys, gradient, output = pad_widths(values, call.query, call.keys, gradient, result.output)
    of_bias = None
    if needs_grad[3]:
        *gradients, of_bias = dot_backward(Call(terms, query, keys, call.bias), padded, output, lse, gradient)
    else:
        inputs = to_four_axes(terms.shape, query, keys, padded)
        of_rows = to_four_axes(terms.shape, gradient.contiguous(), output, lse)
        of_query, of_keys, of_values = backward_parts(terms, inputs, call.bias, of_rows, result.extra)
        gradients = [of_values, of_query, of_keys]
    inputs = values, call.query, call.keys
    return *(
        reshape_gradient(tensor, tensor_gradient, terms.shape[:-2])
        for tensor, tensor_gradient in zip(inputs, gradients, strict=True)
    ), of_bias


def reshape_gradient(tensor: Tensor, gradient: Tensor, batch: torch.Size) -> Tensor:
    """Reduce a gradient with all of *batch and a padded width to the shape of its tensor."""
    if gradient.shape == tensor.shape and gradient.dtype == tensor.dtype:
        return gradient
    if gradient.shape[-1] != tensor.shape[-1]:
        gradient = pad(gradient, (0, tensor.shape[-1] - gradient.shape[-1]))
    return gradient.reshape(*batch, *gradient.shape[-2:]).sum_to_size(tensor.shape).to(tensor.dtype)


def pad_widths(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Pad tensors to the largest width, as the operators require; on a GPU to a multiple of 8."""
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
    """Compute output and log-sum-exp over all parts, and the data each operator saves for backward."""
    query, *_ = inputs
    output, lse, extras = None, None, []
    for part in iter_parts(terms, bias, query):
        if part.whole:
            output, lse, extra = run_part(terms, inputs, part, blind_lse=math.inf)
            return output, lse, [extra]
        part_output, part_lse, extra = run_part(terms, inputs, part)
        extras.append(extra)
        if output is None or lse is None:
            output, lse = empty_output(query)
        merge_part(select_index(output, -2, part.rows), lse[..., part.rows], part_output, part_lse)
    if output is None or lse is None:
        output, lse = empty_output(query)
    return output, lse.masked_fill(lse == -math.inf, math.inf), extras


def run_part(
    terms: Terms, inputs: tuple[Tensor, ...], part: OperatorPart, blind_lse: float = -math.inf
) -> tuple[Tensor, Tensor, Any]:
    """Compute output, log-sum-exp (`blind_lse` for rows that see no key) and saved data of one part."""
    operator, operator_inputs = part.prepare(terms, inputs)
    output, lse, extra = operator.forward(operator_inputs)
    if part.mask is not None and terms.hides and (lse.is_cuda or part.may_be_blind(lse)):
        blind = part.find_blind_rows()
        output.masked_fill_(blind[..., None], 0)
        lse.masked_fill_(blind, blind_lse)
    return output, lse, extra


def empty_output(query: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and log-sum-exp of rows before any part is merged."""
    output = torch.zeros_like(query, memory_format=torch.contiguous_format)
    return output, upcast(query).new_full(query.shape[:-1], -math.inf)


def merge_part(output: Tensor, lse: Tensor, part_output: Tensor, part_lse: Tensor) -> None:
    """Merge the output of a part into the rows in place, weighted by log-sum-exp."""
    total = torch.logaddexp(lse, part_lse)
    shift = total.masked_fill(total == -math.inf, 0)
    output.copy_(output * (lse - shift).exp()[..., None] + part_output * (part_lse - shift).exp()[..., None])
    lse.copy_(total)


def backward_parts(
    terms: Terms,
    inputs: tuple[Tensor, ...],
    bias: Tensor | None,
    of_rows: tuple[Tensor, ...],
    extras: list[Any] | None,
) -> tuple[Tensor, ...]:
    """Sum the gradients of query, keys and values over parts; `of_rows` are gradient, output and log-sum-exp.

    `extras` may be None on a CPU, whose operator saves no data.
    """
    query, *_ = inputs
    sums = None
    for part, extra in zip(iter_parts(terms, bias, query), repeat(None) if extras is None else extras, strict=False):
        operator, operator_inputs = part.prepare(terms, inputs)
        gradient, output, lse = (select_index(tensor, -2, part.rows) for tensor in of_rows)
        gradients = operator.backward(operator_inputs, gradient, output, lse[..., 0], extra)
        if part.whole:
            return gradients
        sums = sums or zero_sums(inputs)
        for total, index, tensor in zip(sums, (part.rows, part.cols, part.cols), gradients, strict=True):
            select_index(total, -2, index).add_(tensor)
    return tuple(total.to(query.dtype) for total in sums or zero_sums(inputs))


def zero_sums(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return zeros in at least float32, so that rounding errors of many parts do not add up."""
    return tuple(torch.zeros_like(upcast(tensor), memory_format=torch.contiguous_format) for tensor in tensors)


class OperatorPart(NamedTuple):
    """Rows and columns that one operator call computes."""

    rows: slice
    cols: slice
    whole: bool  # whether it is the only part
    causal: bool = False
    mask: Float[Tensor, "#batch #heads #rows cols"] | None = None

    def prepare(self, terms: Terms, inputs: tuple[Tensor, ...]) -> tuple[Operator, OperatorInputs]:
        """Return the operator for this part and its inputs."""
        query, keys, values = inputs
        operator = choose_operator(query, self.mask is not None)
        assert operator is not None and terms.score.dot_scale is not None
        return operator, self.select(query, keys, values, terms.score.dot_scale)

    def select(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> OperatorInputs:
        """Return the inputs of the operator for this part."""
        if not self.whole:
            query = select_index(query, -2, self.rows)
            keys, values = (select_index(tensor, -2, self.cols) for tensor in (keys, values))
        return OperatorInputs(query, keys, values, self.mask, self.causal, scale)

    def may_be_blind(self, lse: Float[Tensor, "batch heads rows"]) -> bool:
        """Return whether a row may see no key; the operators report a log-sum-exp of 0 for those."""
        assert self.mask is not None
        if self.mask.shape[-2] == 1 and not self.causal:
            lse = lse.select(-1, 0)  # all rows of a head see the same keys
        return 0.0 in lse.flatten().tolist() if lse.numel() <= FEW else not lse.all()

    def find_blind_rows(self) -> Bool[Tensor, "#batch #heads #rows"]:
        """Return which rows see no key under the mask."""
        mask = self.mask
        assert mask is not None
        if self.causal:  # one mask row for all queries; query i sees the first i + 1 keys
            return (mask != -math.inf).cumsum(-1)[..., 0, :] == 0
        return mask.amax(-1).isneginf()


def iter_parts(terms: Terms, bias: Tensor | None, like: Tensor) -> Iterator[OperatorPart]:
    """Split the queries x keys matrix into parts that the operators support."""
    *_, n, m = terms.shape
    if math.prod(terms.shape) == 0:
        return  # the operators would crash the process
    everything = slice(0, n), slice(0, m)
    if terms.visible is None and not has_row_masks(terms, bias):  # the bias is the mask
        yield OperatorPart(*everything, True, mask=build_mask(terms, [], bias, *everything, like))
        return
    if has_row_masks(terms, bias):
        yield from iter_masked_parts(terms, bias, like)
        return
    rules = split_conjunction(terms.visible)
    offset = min([m, *(rule.offset(terms.shape) for rule in rules if isinstance(rule, Causal))])
    for_all = [rule for rule in rules if not isinstance(rule, Causal)]
    for rows, cols, is_causal in iter_causal_parts(n, m, offset):
        mask = build_mask(terms, for_all, bias, slice(0, 1), cols, like)
        yield OperatorPart(rows, cols, (rows, cols) == everything, is_causal, mask)


def has_row_masks(terms: Terms, bias: Tensor | None) -> bool:
    """Return whether queries need different rows of a mask that has to be made."""
    has_matrix = bias is not None and bias.shape[-2] > 1
    if terms.visible is None:
        return has_matrix and len(terms.shape) > 4
    rules = split_conjunction(terms.visible)
    return has_matrix or not all(isinstance(rule, Causal) or is_query_independent(rule) for rule in rules)


def iter_causal_parts(n: int, m: int, offset: int) -> Iterator[tuple[slice, slice, bool]]:
    """Yield rows, columns and whether top-left causal, if query i sees keys up to and including i + offset."""
    if offset >= m - 1 or n == 1:
        if offset >= 0:
            yield slice(0, n), slice(0, min(m, offset + n)), False
        return
    if offset > 0:  # keys before the first query, visible to all queries
        yield slice(0, n), slice(0, offset), False
    first, start = max(0, -offset), max(0, offset)
    size = min(n - first, m - start)
    if size > 0:
        yield slice(first, first + size), slice(start, start + size), True


def iter_masked_parts(terms: Terms, bias: Tensor | None, like: Tensor) -> Iterator[OperatorPart]:
    """Yield blocks of rows, each with the keys within its reach and a mask for them."""
    *_, n, m = terms.shape
    for rows in iter_blocks(range(n), count_mask_rows(terms, bias, like)):
        reach = range(m) if terms.visible is None else terms.visible.reach(range(rows.start, rows.stop), terms.shape)
        if len(reach):
            cols = slice(reach.start, reach.stop)
            mask = build_mask(terms, split_conjunction(terms.visible), bias, rows, cols, like)
            yield OperatorPart(rows, cols, False, mask=mask)


def count_mask_rows(terms: Terms, bias: Tensor | None, like: Tensor) -> int:
    """Return how many rows of a mask fit into memory."""
    first = build_mask(terms, split_conjunction(terms.visible), bias, slice(0, 1), slice(0, 1), like)
    mask_count = 1 if first is None else first.numel()  # one per sequence and head, or one for all
    return max(1, MASK_NUMBERS // (terms.shape[-1] * mask_count))


def build_mask(
    terms: Terms, rules: list[Rule], bias: Tensor | None, rows: slice, cols: slice, like: Tensor
) -> Float[Tensor, "#batch #heads #rows cols"] | None:
    """Return the bias with -inf for hidden keys; None if there is neither bias nor rule."""
    mask = None if bias is None else select_broadcast(select_broadcast(bias, -2, rows), -1, cols)
    if rules:
        visible = reduce(And, rules).tile(rows, cols, terms.shape, like.device)
        mask = torch.where(visible, upcast(like).new_zeros(()) if mask is None else mask, -math.inf)
    if mask is None:
        return None
    if mask.ndim == 4 and len(terms.shape) == 4 and mask.shape[-1] == cols.stop - cols.start:
        return mask
    return flatten_batch(mask.expand(*mask.shape[:-1], cols.stop - cols.start), terms.shape[:-2], expand=False)


def to_four_axes(shape: torch.Size, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Reshape tensors that broadcast over *batch to (batch, heads, positions, width) with contiguous rows."""
    batch = shape[:-2]
    flat = [flatten_batch(tensor, batch, expand=True) for tensor in tensors]
    return tuple([t if t.stride(-1) == 1 or t.shape[-1] <= 1 else t.contiguous() for t in flat])


def flatten_batch(tensor: Tensor, batch: torch.Size, *, expand: bool) -> Shaped[Tensor, "batch heads rows cols"]:
    """Reshape any number of leading axes to two; without `expand`, axes of size 1 are kept if possible.

    The last axis of *batch stays separate, so that grouped heads, which share the keys of a group,
    remain a view.
    """
    if len(batch) == 2 and tensor.ndim == 4 and (not expand or tensor.shape[:2] == batch):
        return tensor
    if len(batch) == 1 and tensor.ndim == 3 and (not expand or tensor.shape[:1] == batch):
        return tensor.unsqueeze(0)
    *batch_shape, rows, cols = (1,) * (len(batch) + 2 - tensor.ndim) + tensor.shape
    lead, heads = batch_shape[:-1], batch_shape[-1:]
    if expand or (len(lead) > 1 and any(size != 1 for size in lead)):
        lead = list(batch[:-1])
    if expand:
        heads = list(batch[-1:])
    return tensor.expand(*lead, *heads, rows, cols).reshape(math.prod(lead), math.prod(heads), rows, cols)
