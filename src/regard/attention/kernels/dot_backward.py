"""The backward of softmax(q·k + bias) for when the bias has a gradient, which torch's fused operators lack.

The same five matrix products as in those operators, over tiles whose two matrices
are used again and again; the gradient of the bias is summed up as they pass by. What
is added to a product is there before it, since a product adds to what it finds at no cost.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.base_score import widened
from regard.attention.call import Call, Terms, blocks
from regard.attention.normalise import LOG2_E
from regard.attention.visible import pick, take

ROWS, COLUMNS = 1024, 256
NUMBERS = 2**22  # how large one of the two matrices may be


def dot_backward(
    call: Call,
    values: Float[Tensor, "*values_batch keys width"],
    output: Float[Tensor, "*batch queries width"],
    lse: Float[Tensor, "*batch queries 1"],
    gradient: Float[Tensor, "*batch queries width"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of values, query and keys, each with one leading axis for all of *batch, and of the bias."""
    terms, bias, factor = call.terms, call.bias, call.terms.score.dot_scale
    assert bias is not None and factor is not None
    *batch, n, m = terms.shape

    def flat(tensor: Tensor) -> Tensor:
        """One leading axis, at least float32."""
        return widened(tensor).expand(*batch, *tensor.shape[-2:]).reshape(math.prod(batch), *tensor.shape[-2:])

    query, keys, values_, gradient_ = (flat(t) for t in (call.query, call.keys, values, gradient))
    taken_back = -(gradient_ * flat(output)).sum(-1, keepdim=True)
    scaled, lse_ = query * (factor * LOG2_E), lse * LOG2_E  # to base 2: exp2 is faster than exp
    of_bias = torch.zeros_like(bias, memory_format=torch.contiguous_format)
    rows_each = max(1, min(ROWS, n, NUMBERS // max(1, len(query) * COLUMNS)))
    of_query, of_keys, of_values = Sums(query), Sums(keys), Sums(values_)
    room = [query.new_empty(len(query) * rows_each * min(COLUMNS, m)) for _ in range(2)]

    @cache  # the same but for the last rows and columns; what is done for each tile is done often
    def tiles(rows: int, cols: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Room for weights and for the gradient of scores, each with one leading axis and with all of them."""
        flat_ = [part[: len(query) * rows * cols].view(-1, rows, cols) for part in room]
        return flat_[0], flat_[1], flat_[0].view(*batch, rows, cols), flat_[1].view(*batch, rows, cols)

    by_column = [(cols, keys[:, cols], keys[:, cols].mT, values_[:, cols].mT) for cols in blocks(range(m), COLUMNS)]
    for i, rows in enumerate(blocks(range(n), rows_each)):
        query_rows, scaled_rows, gradient_rows, back = (t[:, rows] for t in (query, scaled, gradient_, taken_back))
        for j, (cols, some_keys, key_columns, value_columns) in enumerate(by_column):
            weights, of_scores, as_given, of_given = tiles(rows.stop - rows.start, cols.stop - cols.start)
            fill_with_bias(as_given, terms, bias, rows, cols, lse_)
            weights.baddbmm_(scaled_rows, key_columns).exp2_()
            of_scores.copy_(back.expand_as(of_scores)).baddbmm_(gradient_rows, value_columns).mul_(weights)
            of_values.add(j, weights.mT, gradient_rows)
            of_keys.add(j, of_scores.mT, query_rows, factor)
            of_query.add(i, of_scores, some_keys, factor)
            part = take(take(of_bias, -2, rows), -1, cols)
            part += of_given.sum_to_size(part.shape)

    return of_values.joined(), of_query.joined(), of_keys.joined(), of_bias


class Sums:
    """Sums of matrix products, for one block of rows at a time.

    Each block lies in one piece, because only then does a batched product give every
    core matrices of its own; else all cores work on each matrix together and pass the
    tiles to and fro between their caches, which takes a third longer.
    """

    def __init__(self, like: Float[Tensor, "batch rows width"]) -> None:
        self.like = like
        self.blocks: list[Tensor] = []

    def add(self, which: int, left: Tensor, right: Tensor, factor: float = 1.0) -> None:
        """Add factor * left @ right to a block, which is one of those begun or the next."""
        if which == len(self.blocks):
            self.blocks.append(left.new_empty(len(left), left.shape[1], right.shape[2]))
            self.blocks[which].baddbmm_(left, right, beta=0, alpha=factor)
        else:
            self.blocks[which].baddbmm_(left, right, alpha=factor)

    def joined(self) -> Float[Tensor, "batch rows width"]:
        """All rows; zeros where there was nothing to add."""
        return torch.cat(self.blocks, 1) if self.blocks else torch.zeros_like(self.like)


def fill_with_bias(
    tile: Float[Tensor, "*batch rows cols"],
    terms: Terms,
    bias: Float[Tensor, "*bias_batch #queries #keys"],
    rows: slice,
    cols: slice,
    lse: Float[Tensor, "*batch queries 1"],
) -> None:
    """Write to a tile what its products are added to: bias - log-sum-exp to base 2, -inf where none may look."""
    part = take(take(bias, -2, rows), -1, cols) * LOG2_E
    torch.sub(part.expand(*part.shape[:-1], tile.shape[-1]), pick(lse, -2, rows), out=tile)
    if terms.visible is not None:
        seen = terms.visible.tile(rows, cols, terms.shape, tile.device)
        tile.masked_fill_(~seen, -math.inf)
