"""The Triton programs for reductions of a softmax over dot products.

Scores are to base 2 and less the log-sum-exp of their row, so that 2**score is the weight. A program takes a block of
queries and walks over the keys they can see. Blocks of keys that all of its queries see need no comparisons.
"""

from typing import no_type_check

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LEAST = tl.constexpr(-2000.0)  # 2**LEAST is zero; finite, because zero times infinity is not a number


@triton.jit
@no_type_check
def hide_pairs(
    scores, rows, cols, end, left, right, row_documents, col_documents, matrix, matrix_row, matrix_col,
    n, m, LEFT: tl.constexpr, RIGHT: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Set the scores of the pairs to -inf that a rule hides."""
    scores = tl.where(cols[None, :] < end, scores, float("-inf"))
    if LEFT:
        scores = tl.where(cols[None, :] >= rows[:, None] + left, scores, float("-inf"))
    if RIGHT:
        scores = tl.where(cols[None, :] <= rows[:, None] + right, scores, float("-inf"))
    if DOCUMENTS:
        of_rows = tl.load(row_documents + rows, mask=rows < n, other=0)
        of_cols = tl.load(col_documents + cols, mask=cols < m, other=0)
        scores = tl.where(of_rows[:, None] == of_cols[None, :], scores, float("-inf"))
    if MATRIX:
        inside = (rows < n)[:, None] & (cols < m)[None, :]
        visible = tl.load(matrix + rows[:, None] * matrix_row + cols[None, :] * matrix_col, mask=inside, other=0)
        scores = tl.where(visible != 0, scores, float("-inf"))
    return scores


@triton.jit
@no_type_check
def score_block(
    query, keys, cols, dims, key_row, key_col, m, width, factor, bias, bias_row, bias_col, rows, n,
    EVEN: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the scores of a block of queries and a block of keys, to base 2."""
    places = keys + cols[None, :] * key_row + dims[:, None] * key_col
    if EVEN:
        block = tl.load(places)
    else:
        block = tl.load(places, mask=(cols < m)[None, :] & (dims < width)[:, None], other=0.0)
    scores = tl.dot(query, block, input_precision=PRECISION) * factor
    if BIAS:
        inside = (rows < n)[:, None] & (cols < m)[None, :]
        added = tl.load(bias + rows[:, None] * bias_row + cols[None, :] * bias_col, mask=inside, other=0.0)
        scores += added.to(tl.float32) * LOG2_E
    return scores


@triton.jit
@no_type_check
def find_columns(first, last, end, left, right, COLS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
                 SOME: tl.constexpr):  # fmt: skip
    """Return where the keys that rows `first` to `last` can see begin and end, and, within, those that all of them see.

    All but the end are multiples of the size of a block. With `SOME`, another rule may hide any key.
    """
    start = 0
    if LEFT:
        start = tl.maximum(first + left, 0) // COLS * COLS
    stop = end
    if RIGHT:
        stop = tl.maximum(tl.minimum(last + right + 1, end), 0)
    sure_start = start
    if LEFT:
        sure_start = (tl.maximum(last + left, 0) + COLS - 1) // COLS * COLS
    sure_stop = stop
    if RIGHT:
        sure_stop = tl.maximum(tl.minimum(first + right + 1, stop), 0)
    sure_stop = sure_stop // COLS * COLS
    if SOME:
        sure_stop = start
    if sure_start >= sure_stop:
        sure_start = start
        sure_stop = start
    return start, sure_start, sure_stop, stop


@triton.jit
@no_type_check
def reduce_rows(
    query, keys, statistic, bias, matrix, lengths, row_documents, col_documents, received, entropy, argmax,
    query_batch, query_head, query_row, query_col, key_batch, key_head, key_row, key_col,
    bias_batch, bias_head, bias_row, bias_col, matrix_batch, matrix_head, matrix_row, matrix_col,
    heads, n, m, width, scale, left, right,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr, EVEN_WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr,
    MATRIX: tl.constexpr, RECEIVED: tl.constexpr, ENTROPY: tl.constexpr, ARGMAX: tl.constexpr,
):  # fmt: skip
    """Compute the requested ones of the attention received by each key, and entropy and argmax of each query."""
    first, sequence = tl.program_id(0) * ROWS, tl.program_id(1).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    rows, dims = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    query += batch * query_batch + head * query_head
    keys += batch * key_batch + head * key_head
    bias += batch * bias_batch + head * bias_head
    matrix += batch * matrix_batch + head * matrix_head
    row_documents += sequence * n
    col_documents += sequence * m
    received += sequence * m
    inside = rows < n
    places = query + rows[:, None] * query_row + dims[None, :] * query_col
    block = tl.load(places, mask=inside[:, None] & (dims < width)[None, :], other=0.0)
    lse = tl.load(statistic + sequence * n + rows, mask=inside, other=float("inf")) * LOG2_E
    factor = scale * LOG2_E
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    spread = tl.zeros((ROWS,), tl.float32)
    best = tl.full((ROWS, COLS), float("-inf"), tl.float32)
    best_start = tl.zeros((ROWS, COLS), tl.int32)
    start, sure_start, sure_stop, stop = find_columns(
        first, tl.minimum(first + ROWS, n) - 1, end, left, right, COLS, LEFT, RIGHT, DOCUMENTS or MATRIX or BIAS
    )
    for phase in tl.static_range(3):
        begin = start if phase == 0 else (sure_start if phase == 1 else sure_stop)
        until = sure_start if phase == 0 else (sure_stop if phase == 1 else stop)
        for col in range(begin, until, COLS):
            cols = col + tl.arange(0, COLS)
            scores = score_block(
                block, keys, cols, dims, key_row, key_col, m, width, factor, bias, bias_row, bias_col, rows, n,
                phase == 1 and EVEN_WIDTH, BIAS, PRECISION,
            ) - lse[:, None]  # fmt: skip
            if BIAS:
                scores = tl.minimum(scores, 0.0)  # large biases and the log-sum-exp are rounded differently
            if phase != 1:
                scores = hide_pairs(
                    scores, rows, cols, end, left, right, row_documents, col_documents, matrix, matrix_row, matrix_col,
                    n, m, LEFT, RIGHT, DOCUMENTS, MATRIX,
                )  # fmt: skip
            if RECEIVED or ENTROPY:
                weights = tl.exp2(scores)
                if RECEIVED:
                    tl.atomic_add(received + cols, tl.sum(weights, 0), mask=cols < m, sem="relaxed")
                if ENTROPY:
                    spread += tl.sum(weights * (scores if phase == 1 else tl.maximum(scores, LEAST)), 1)
            if ARGMAX:
                better = scores > best
                best = tl.where(better, scores, best)
                best_start = tl.where(better, col, best_start)
    if ENTROPY:
        tl.store(entropy + sequence * n + rows, tl.maximum(-spread / LOG2_E, 0.0), mask=inside)
    if ARGMAX:
        top = tl.max(best, 1)
        candidates = tl.where(best == top[:, None], best_start + tl.arange(0, COLS)[None, :], m)
        index = tl.where(top > float("-inf"), tl.min(candidates, 1), -1)
        tl.store(argmax + sequence * n + rows, index.to(tl.int64), mask=inside)


@triton.jit
@no_type_check
def find_group_maxima(
    query, keys, bias, matrix, lengths, row_documents, col_documents, maxima,
    query_batch, query_head, query_row, query_col, key_batch, key_head, key_row, key_col,
    bias_batch, bias_head, bias_row, bias_col, matrix_batch, matrix_head, matrix_row, matrix_col,
    heads, n, m, width, scale, left, right, skipped, chunk, groups,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr, EVEN_WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr,
    MATRIX: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Store the largest score of each group of keys, for the rows from `skipped` on.

    A group is every (COLS / GROUP)-th key of a block: in the layout of a matrix product its members are in one thread.
    """
    offset, sequence = tl.program_id(0) * ROWS, tl.program_id(1).to(tl.int64)
    first = skipped + offset
    batch, head = sequence // heads, sequence % heads
    rows, dims = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    query += batch * query_batch + head * query_head
    keys += batch * key_batch + head * key_head
    bias += batch * bias_batch + head * bias_head
    matrix += batch * matrix_batch + head * matrix_head
    row_documents += sequence * n
    col_documents += sequence * m
    inside = rows < tl.minimum(n, skipped + chunk)
    places = query + rows[:, None] * query_row + dims[None, :] * query_col
    block = tl.load(places, mask=inside[:, None] & (dims < width)[None, :], other=0.0)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    stored = maxima + (sequence * chunk + offset + tl.arange(0, ROWS)[:, None]) * groups
    start, sure_start, sure_stop, stop = find_columns(
        first, tl.minimum(first + ROWS, n) - 1, end, left, right, COLS, LEFT, RIGHT, DOCUMENTS or MATRIX or BIAS
    )
    for phase in tl.static_range(3):
        begin = start if phase == 0 else (sure_start if phase == 1 else sure_stop)
        until = sure_start if phase == 0 else (sure_stop if phase == 1 else stop)
        for col in range(begin, until, COLS):
            cols = col + tl.arange(0, COLS)
            scores = score_block(
                block, keys, cols, dims, key_row, key_col, m, width, scale * LOG2_E, bias, bias_row, bias_col, rows, n,
                phase == 1 and EVEN_WIDTH, BIAS, PRECISION,
            )  # fmt: skip
            if phase != 1:
                scores = hide_pairs(
                    scores, rows, cols, end, left, right, row_documents, col_documents, matrix, matrix_row, matrix_col,
                    n, m, LEFT, RIGHT, DOCUMENTS, MATRIX,
                )  # fmt: skip
            largest = tl.max(tl.reshape(scores, (ROWS, GROUP, COLS // GROUP)), 1)
            group = col // GROUP + tl.arange(0, COLS // GROUP)
            tl.store(stored + group[None, :], largest, mask=inside[:, None])


@triton.jit
@no_type_check
def choose_groups(maxima, chosen, groups, GROUPS: tl.constexpr, COUNT: tl.constexpr):
    """Store the indices of the COUNT groups with the largest maxima of a row, -1 where fewer have a visible key."""
    row = tl.program_id(0).to(tl.int64)
    indices, places = tl.arange(0, GROUPS), tl.arange(0, COUNT)
    values = tl.load(maxima + row * groups + indices, mask=indices < groups, other=float("-inf"))
    best = tl.zeros((COUNT,), tl.int32)
    for place in tl.static_range(COUNT):
        largest = tl.max(values, 0)
        index = tl.argmax(values, 0)
        best = tl.where(places == place, tl.where(largest > float("-inf"), index, -1), best)
        values = tl.where(indices == index, float("-inf"), values)
    tl.store(chosen + row * COUNT + places, best)


@triton.jit
@no_type_check
def choose_keys(
    query, keys, statistic, bias, matrix, lengths, row_documents, col_documents, chosen, top_weights, top_keys,
    query_batch, query_head, query_row, query_col, key_batch, key_head, key_row, key_col,
    bias_batch, bias_head, bias_row, bias_col, matrix_batch, matrix_head, matrix_row, matrix_col,
    heads, n, m, width, scale, left, right, skipped, chunk, k,
    COLS: tl.constexpr, WIDTH: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr, GROUP: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Store the k largest weights of one row and their keys, largest first, from the keys of the chosen groups."""
    offset, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = skipped + offset
    batch, head = sequence // heads, sequence % heads
    members, dims, places = tl.arange(0, COUNT * GROUP), tl.arange(0, WIDTH), tl.arange(0, COUNT)
    group = tl.load(chosen + (sequence * chunk + offset) * COUNT + members // GROUP)
    visible = group >= 0
    group = tl.maximum(group, 0)
    per_block = COLS // GROUP
    cols = group // per_block * COLS + group % per_block + members % GROUP * per_block
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    visible &= cols < end
    if LEFT:
        visible &= cols >= row + left
    if RIGHT:
        visible &= cols <= row + right
    if DOCUMENTS:
        of_cols = tl.load(col_documents + sequence * m + cols, mask=visible, other=0)
        visible &= tl.load(row_documents + sequence * n + row) == of_cols
    if MATRIX:
        matrix += batch * matrix_batch + head * matrix_head + row * matrix_row
        visible &= tl.load(matrix + cols * matrix_col, mask=visible, other=0) != 0
    query += batch * query_batch + head * query_head + row * query_row
    keys += batch * key_batch + head * key_head
    vector = tl.load(query + dims * query_col, mask=dims < width, other=0.0).to(tl.float32)
    inside = visible[:, None] & (dims < width)[None, :]
    block = tl.load(keys + cols[:, None] * key_row + dims[None, :] * key_col, mask=inside, other=0.0).to(tl.float32)
    scores = tl.sum(block * vector[None, :], 1) * (scale * LOG2_E)
    if BIAS:
        bias += batch * bias_batch + head * bias_head + row * bias_row
        scores += tl.load(bias + cols * bias_col, mask=visible, other=0.0).to(tl.float32) * LOG2_E
    scores -= tl.load(statistic + sequence * n + row) * LOG2_E
    weights = tl.where(visible, tl.exp2(tl.minimum(scores, 0.0) if BIAS else scores), 0.0)
    best, best_keys = tl.zeros((COUNT,), tl.float32), tl.full((COUNT,), -1, tl.int32)
    for place in tl.static_range(COUNT):
        largest = tl.max(weights, 0)
        key = tl.min(tl.where(weights == largest, cols, m), 0)
        best = tl.where(places == place, largest, best)
        best_keys = tl.where(places == place, tl.where(largest > 0, key, -1), best_keys)
        weights = tl.where(cols == key, -1.0, weights)
    stored = (sequence * n + row) * k + places
    tl.store(top_weights + stored, tl.maximum(best, 0.0), mask=places < k)
    tl.store(top_keys + stored, best_keys.to(tl.int64), mask=places < k)
