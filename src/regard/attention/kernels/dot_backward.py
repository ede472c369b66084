"""The backward of softmax(q·k + bias) with a gradient for the bias, which torch's fused operators lack.

It runs the same five matrix products as those operators, in tiles that reuse two buffers, and sums
the gradient of the bias along the way. Terms to add to a product are written to its output buffer
first, because the product adds to its output at no extra cost.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import upcast
from regard.attention.call import Call, Terms, iter_blocks
from regard.attention.normalizers import LOG2_E
from regard.attention.visible import select_broadcast, select_index

ROWS, COLUMNS = 1024, 256
BUFFER_ELEMENTS = 2**22  # maximum elements of each of the two buffers


def dot_backward(
    call: Call,
    values: Float[Tensor, "*values_batch keys width"],
    output: Float[Tensor, "*batch queries width"],
    lse: Float[Tensor, "*batch queries 1"],
    gradient: Float[Tensor, "*batch queries width"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of values, query and keys, each with *batch flattened to one axis, and of the bias."""
    terms, bias, factor = call.terms, call.bias, call.terms.score.dot_scale
    assert bias is not None and factor is not None
    *batch, n, m = terms.shape
    tensors = call.query, call.keys, values, gradient, output
    query, keys, values_, gradient_, output_ = (flatten_leading(tensor, batch) for tensor in tensors)
    negative_delta = -(gradient_ * output_).sum(-1, keepdim=True)
    scaled, lse_ = query * (factor * LOG2_E), lse * LOG2_E  # to base 2: exp2 is faster than exp
    of_bias = torch.zeros_like(bias, memory_format=torch.contiguous_format)
    rows_per_block = max(1, min(ROWS, n, BUFFER_ELEMENTS // max(1, len(query) * COLUMNS)))
    of_query, of_keys, of_values = BlockSums(query), BlockSums(keys), BlockSums(values_)
    buffers = [query.new_empty(len(query) * rows_per_block * min(COLUMNS, m)) for _ in range(2)]

    @cache  # the shapes repeat except at the edges, and this runs for every tile
    def tiles(rows: int, cols: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return buffers for the weights and the gradient of the scores, both flattened and with all of *batch."""
        flat = [part[: len(query) * rows * cols].view(-1, rows, cols) for part in buffers]
        return flat[0], flat[1], flat[0].view(*batch, rows, cols), flat[1].view(*batch, rows, cols)

    by_column = [
        (cols, keys[:, cols], keys[:, cols].mT, values_[:, cols].mT) for cols in iter_blocks(range(m), COLUMNS)
    ]
    for i, rows in enumerate(iter_blocks(range(n), rows_per_block)):
        query_rows, scaled_rows, gradient_rows, delta_rows = (
            t[:, rows] for t in (query, scaled, gradient_, negative_delta)
        )
        for j, (cols, some_keys, key_columns, value_columns) in enumerate(by_column):
            sizes = rows.stop - rows.start, cols.stop - cols.start
            weights, of_scores, batched_weights, batched_of_scores = tiles(*sizes)
            fill_with_bias(batched_weights, terms, bias, rows, cols, lse_)
            weights.baddbmm_(scaled_rows, key_columns).exp2_()
            of_scores.copy_(delta_rows.expand_as(of_scores)).baddbmm_(gradient_rows, value_columns).mul_(weights)
            of_values.add(j, weights.mT, gradient_rows)
            of_keys.add(j, of_scores.mT, query_rows, factor)
            of_query.add(i, of_scores, some_keys, factor)
            part = select_broadcast(select_broadcast(of_bias, -2, rows), -1, cols)
            part += batched_of_scores.sum_to_size(part.shape)

    return of_values.concatenate(), of_query.concatenate(), of_keys.concatenate(), of_bias


def flatten_leading(tensor: Float[Tensor, "*#batch rows width"], batch: list[int]) -> Float[Tensor, "flat rows width"]:
    """Return a tensor in at least float32 with *batch flattened to one axis."""
    return upcast(tensor).expand(*batch, *tensor.shape[-2:]).reshape(math.prod(batch), *tensor.shape[-2:])


class BlockSums:
    """Sums of matrix products, one block of rows at a time.

    Each block is contiguous, because only then does a batched product give each core its own
    matrices. Otherwise all cores work on every matrix together and exchange tiles between their
    caches, which takes a third longer.
    """

    def __init__(self, like: Float[Tensor, "batch rows width"]) -> None:
        self.like = like
        self.blocks: list[Tensor] = []

    def add(self, block_index: int, left: Tensor, right: Tensor, factor: float = 1.0) -> None:
        """Add factor * left @ right to an existing block or to the next new one."""
        if block_index == len(self.blocks):
            self.blocks.append(left.new_empty(len(left), left.shape[1], right.shape[2]))
            self.blocks[block_index].baddbmm_(left, right, beta=0, alpha=factor)
        else:
            self.blocks[block_index].baddbmm_(left, right, alpha=factor)

    def concatenate(self) -> Float[Tensor, "batch rows width"]:
        """Return all rows; zeros if nothing was added."""
        return torch.cat(self.blocks, 1) if self.blocks else torch.zeros_like(self.like)


def fill_with_bias(
    tile: Float[Tensor, "*batch rows cols"],
    terms: Terms,
    bias: Float[Tensor, "*bias_batch #queries #keys"],
    rows: slice,
    cols: slice,
    lse: Float[Tensor, "*batch queries 1"],
) -> None:
    """Fill a tile with bias - log-sum-exp to base 2, or -inf for hidden keys; products are added to it."""
    part = select_broadcast(select_broadcast(bias, -2, rows), -1, cols) * LOG2_E
    torch.sub(part.expand(*part.shape[:-1], tile.shape[-1]), select_index(lse, -2, rows), out=tile)
    if terms.visible is not None:
        visible = terms.visible.tile(rows, cols, terms.shape, tile.device)
        tile.masked_fill_(~visible, -math.inf)
