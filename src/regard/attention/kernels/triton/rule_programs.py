"""What Triton programs share: which pairs of a tile a rule leaves visible, the bias of each, and which are dropped.

Rows and columns are indices with two axes, one of them of size 1, so that tiles may have either side first.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def find_visible(rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT: tl.constexpr, RIGHT: tl.constexpr,
                 DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr):  # fmt: skip
    """Return which pairs a rule leaves visible; none past the ends."""
    visible = (cols < end) & (rows < n)
    if LEFT:
        visible &= cols >= rows + rule.left
    if RIGHT:
        visible &= cols <= rows + rule.right
    if DOCUMENTS:
        of_rows = tl.load(rule.row_documents + sequence * n + rows, mask=rows < n, other=0)
        visible &= of_rows == tl.load(rule.col_documents + sequence * m + cols, mask=cols < m, other=0)
    if MATRIX:
        visible &= load_pairs(matrix, batch, head, rows, cols, n, m) != 0
    return visible


@triton.jit
@no_type_check
def load_pairs(view, batch, head, rows, cols, n, m):
    """Load a number for each pair from a tensor with four axes; past its end that of another pair."""
    return tl.load(find_pairs(view, batch, head, rows, cols, n, m))


@triton.jit
@no_type_check
def find_pairs(view, batch, head, rows, cols, n, m):
    """Return pointers to a number for each pair in a tensor with four axes; past its end to that of another pair.

    Indices with a limit are not known to be consecutive, so each thread has pointers for the pairs that it has. Several
    numbers at once would decide which pairs those are.
    """
    return find_places(view, batch, head, tl.minimum(rows, n - 1), tl.minimum(cols, m - 1))


@triton.jit
@no_type_check
def find_places(view, batch, head, rows, cols):
    """Return pointers to numbers in a tensor with four axes."""
    start = view.tensor + batch * view.batch + head * view.head
    return start + rows.to(tl.int64) * view.row + cols.to(tl.int64) * view.col


@triton.jit
@no_type_check
def load_tile(view, batch, head, rows, cols, n, m):
    """Load rows of a tensor with four axes; zeros past its end."""
    places = find_places(view, batch, head, rows[:, None], cols[None, :])
    return tl.load(places, mask=(rows < n)[:, None] & (cols < m)[None, :], other=0.0)


@triton.jit
@no_type_check
def keep_pairs(seed, rate, sequence, rows, cols, n, m):
    """Return which pairs dropout keeps, the same in every program of a call."""
    return tl.rand(seed, (sequence * n + rows) * m + cols) >= rate
