"""The Triton programs for a softmax over dot products: attention with a bias, and reductions of the weights.

A program takes a block of queries and walks over the keys they can see. Blocks of keys that all of its queries see need
no comparisons. Scores are to base 2; in reductions they are less the log-sum-exp of their row, so that 2**score is the
weight.

The k largest weights of a row are found in three steps. Each block of keys is divided into groups, and the maxima of
groups and of blocks are stored. The k blocks with the largest maxima hold the k groups with the largest maxima, and
these hold the k keys, whose scores are computed again. Scratch memory is numbered by *slots*: blocks of rows of all
sequences, less those of earlier launches.
"""

from typing import no_type_check

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LEAST = tl.constexpr(-2000.0)  # 2**LEAST is zero; finite, because zero times infinity is not a number
SERIES = tl.constexpr(0.25)  # up to here five terms of the series of tanh are exact in float32
REMOVED = tl.constexpr(-0x7F80000100000000)  # a packed score of -inf
PER_PAIR, PER_KEY = tl.constexpr(1), tl.constexpr(2)  # `BIAS` that has one number for each pair or key; 0 without


@triton.jit
@no_type_check
def locate_pairs(tensor, rows, cols, row_stride, col_stride):
    """Return the addresses of the pairs of a matrix, which may have more than 2**31 elements."""
    return (tensor + rows.to(tl.int64) * row_stride) + cols.to(tl.int64) * col_stride


@triton.jit
@no_type_check
def hide_pairs(
    scores, rows, cols, end, left, right, row_documents, col_documents, matrix, matrix_row, matrix_col,
    n, m, LEFT: tl.constexpr, RIGHT: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Set the scores of the pairs to -inf that a rule hides."""
    scores = tl.where(cols < end, scores, float("-inf"))
    if LEFT:
        scores = tl.where(cols >= rows + left, scores, float("-inf"))
    if RIGHT:
        scores = tl.where(cols <= rows + right, scores, float("-inf"))
    if DOCUMENTS:
        of_rows = tl.load(row_documents + rows, mask=rows < n, other=0)
        of_cols = tl.load(col_documents + cols, mask=cols < m, other=0)
        scores = tl.where(of_rows == of_cols, scores, float("-inf"))
    if MATRIX:
        inside = (rows < n) & (cols < m)
        visible = tl.load(locate_pairs(matrix, rows, cols, matrix_row, matrix_col), mask=inside, other=0)
        scores = tl.where(visible != 0, scores, float("-inf"))
    return scores


@triton.jit
@no_type_check
def cap_scores(scores, cap):
    """Return cap·tanh(scores / cap), with a small relative error for small scores, too."""
    ratios = scores / cap
    squares = ratios * ratios
    series = ratios * (1 + squares * (-1 / 3 + squares * (2 / 15 + squares * (-17 / 315 + squares * (62 / 2835)))))
    tanh = 1 - 2 / (1 + tl.exp2(ratios * (2 * LOG2_E)))
    return cap * tl.where(tl.abs(ratios) < SERIES, series, tanh)


@triton.jit
@no_type_check
def score_pairs(products, lse, added, scale, cap, BIAS: tl.constexpr, CAP: tl.constexpr):
    """Return scores to base 2 less the log-sum-exp, from dot products and a bias, if there is one.

    Large biases and their log-sum-exp cancel only in the units in which the log-sum-exp was rounded.
    """
    if BIAS or CAP:
        scores = products * scale
        if CAP:
            scores = cap_scores(scores, cap)
        if BIAS:
            scores += added.to(tl.float32)
        scores = tl.minimum(scores - lse, 0.0) * LOG2_E
    else:
        scores = products * (scale * LOG2_E) - lse * LOG2_E
    return scores


@triton.jit
@no_type_check
def load_vectors(tensor, points, dims, row_stride, col_stride, count, width, EVEN: tl.constexpr):
    """Load the vectors of some queries, keys or values; with `EVEN`, nothing of the tile is past the ends."""
    places = locate_pairs(tensor, points, dims, row_stride, col_stride)
    if EVEN:
        vectors = tl.load(places)
    else:
        vectors = tl.load(places, mask=(points < count) & (dims < width), other=0.0)
    return vectors


@triton.jit
@no_type_check
def load_bias(bias, rows, cols, bias_row, bias_col, n, m, BIAS: tl.constexpr):
    """Load the bias of some pairs, or that of their keys; zero if there is none."""
    if BIAS == PER_KEY:
        added = tl.load(bias + cols.to(tl.int64) * bias_col, mask=cols < m, other=0.0)
    elif BIAS:
        inside = (rows < n) & (cols < m)
        added = tl.load(locate_pairs(bias, rows, cols, bias_row, bias_col), mask=inside, other=0.0)
    else:
        added = 0.0
    return added


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
def locate_block(slot, row_blocks, sequences, ROWS: tl.constexpr, RIGHT: tl.constexpr):
    """Return the first query and the sequence of a block.

    Where later queries see more, the last blocks of all sequences come first, as short programs fill the gaps at the
    end; elsewhere those of one sequence are neighbors, as they load the same keys.
    """
    if RIGHT:
        block, sequence = row_blocks - 1 - slot // sequences, slot % sequences
    else:
        block, sequence = slot % row_blocks, slot // row_blocks
    return block * ROWS, sequence.to(tl.int64)


@triton.jit
@no_type_check
def sum_weights(
    query, keys, statistic, bias, matrix, lengths, row_documents, col_documents, received, entropy,
    query_batch, query_head, query_row, query_col, key_batch, key_head, key_row, key_col,
    bias_batch, bias_head, bias_row, bias_col, matrix_batch, matrix_head, matrix_row, matrix_col,
    heads, n, m, width, scale, cap, left, right, row_blocks, sequences,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr, EVEN_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr, RECEIVED: tl.constexpr,
    ENTROPY: tl.constexpr,
):  # fmt: skip
    """Compute the attention received by each key, and the entropy of each query, or one of them.

    Tiles have the keys as their first axis: in the layout of a matrix product a thread then has few keys and many
    queries, so that the sums over queries take few exchanges between threads, and those over keys wait until the end.
    There, key and eighth-next key are in one thread, and added at once; a number loaded for each pair changes the
    layout, to one that Triton 3.6 would add up wrongly.
    """
    fold: tl.constexpr = 1 if BIAS == PER_PAIR or MATRIX else 2
    first, sequence = locate_block(tl.program_id(0), row_blocks, sequences, ROWS, RIGHT)
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
    block = load_vectors(query, rows[None, :], dims[:, None], query_row, query_col, n, width, False)
    lse = tl.load(statistic + sequence * n + rows, mask=inside, other=float("inf"))
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    spread = tl.zeros((COLS // fold, ROWS), tl.float32)
    start, sure_start, sure_stop, stop = find_columns(
        first, tl.minimum(first + ROWS, n) - 1, end, left, right, COLS, LEFT, RIGHT, DOCUMENTS or MATRIX
    )
    for phase in tl.static_range(3):
        begin = start if phase == 0 else (sure_start if phase == 1 else sure_stop)
        until = sure_start if phase == 0 else (sure_stop if phase == 1 else stop)
        for col in range(begin, until, COLS):
            cols = col + tl.arange(0, COLS)
            vectors = load_vectors(
                keys, cols[:, None], dims[None, :], key_row, key_col, m, width, phase == 1 and EVEN_WIDTH
            )
            products = tl.dot(vectors, block, input_precision=PRECISION)
            added = load_bias(bias, rows[None, :], cols[:, None], bias_row, bias_col, n, m, BIAS)
            scores = score_pairs(products, lse[None, :], added, scale, cap, BIAS, CAP)
            if phase != 1:
                scores = hide_pairs(
                    scores, rows[None, :], cols[:, None], end, left, right, row_documents, col_documents,
                    matrix, matrix_row, matrix_col, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX,
                )  # fmt: skip
            weights = tl.exp2(scores)
            if RECEIVED:
                tl.atomic_add(received + cols, tl.sum(weights, 1), mask=cols < m, sem="relaxed")
            if ENTROPY:
                finite = phase == 1 and not BIAS
                parts = weights * (scores if finite else tl.maximum(scores, LEAST))
                if fold == 2:
                    parts = tl.reshape(tl.sum(tl.reshape(parts, (COLS // 16, 2, 8, ROWS)), 1), (COLS // 2, ROWS))
                spread += parts
    if ENTROPY:
        total = -tl.sum(spread, 0) / LOG2_E
        tl.store(entropy + sequence * n + rows, tl.maximum(total, 0.0), mask=inside)


@triton.jit(do_not_specialize=["skipped"])
@no_type_check
def find_largest_scores(
    query, keys, statistic, bias, matrix, lengths, row_documents, col_documents, argmax, group_maxima, block_maxima,
    query_batch, query_head, query_row, query_col, key_batch, key_head, key_row, key_col,
    bias_batch, bias_head, bias_row, bias_col, matrix_batch, matrix_head, matrix_row, matrix_col,
    heads, n, m, width, scale, cap, left, right, skipped, row_blocks, sequences, col_blocks,
    ROWS: tl.constexpr, COLS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, EVEN_WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr, ARGMAX: tl.constexpr, TOP: tl.constexpr,
):  # fmt: skip
    """Find the key of each query with the largest score; with `TOP`, store the largest of each group and each block.

    A group is every (COLS / GROUP)-th key of a block: in the layout of a matrix product its members are in one thread.
    """
    slot = tl.program_id(0)
    first, sequence = locate_block(slot + skipped, row_blocks, sequences, ROWS, RIGHT)
    batch, head = sequence // heads, sequence % heads
    rows, dims = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    query += batch * query_batch + head * query_head
    keys += batch * key_batch + head * key_head
    bias += batch * bias_batch + head * bias_head
    matrix += batch * matrix_batch + head * matrix_head
    row_documents += sequence * n
    col_documents += sequence * m
    slots = slot.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    group_maxima += slots * (col_blocks * (COLS // GROUP))
    block_maxima += slot.to(tl.int64) * (col_blocks * ROWS) + tl.arange(0, ROWS)
    inside = rows < n
    block = load_vectors(query, rows[:, None], dims[None, :], query_row, query_col, n, width, False)
    lse = tl.load(statistic + sequence * n + rows, mask=inside, other=float("inf"))[:, None]
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    best = tl.full((ROWS, COLS // GROUP), float("-inf"), tl.float32)
    best_start = tl.zeros((ROWS, COLS // GROUP), tl.int32)
    start, sure_start, sure_stop, stop = find_columns(
        first, tl.minimum(first + ROWS, n) - 1, end, left, right, COLS, LEFT, RIGHT, DOCUMENTS or MATRIX
    )
    for phase in tl.static_range(3):
        begin = start if phase == 0 else (sure_start if phase == 1 else sure_stop)
        until = sure_start if phase == 0 else (sure_stop if phase == 1 else stop)
        for col in range(begin, until, COLS):
            cols = col + tl.arange(0, COLS)
            vectors = load_vectors(
                keys, cols[None, :], dims[:, None], key_row, key_col, m, width, phase == 1 and EVEN_WIDTH
            )
            products = tl.dot(block, vectors, input_precision=PRECISION)
            added = load_bias(bias, rows[:, None], cols[None, :], bias_row, bias_col, n, m, BIAS)
            scores = score_pairs(products, lse, added, scale, cap, BIAS, CAP)
            if phase != 1:
                scores = hide_pairs(
                    scores, rows[:, None], cols[None, :], end, left, right, row_documents, col_documents,
                    matrix, matrix_row, matrix_col, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX,
                )  # fmt: skip
            largest = tl.max(tl.reshape(scores, (ROWS, GROUP, COLS // GROUP)), 1)
            if ARGMAX:
                better = largest > best
                best = tl.where(better, largest, best)
                best_start = tl.where(better, col, best_start)
            if TOP:
                groups = col // GROUP + tl.arange(0, COLS // GROUP)
                tl.store(group_maxima[:, None] + groups[None, :], largest, mask=inside[:, None])
                tl.store(block_maxima + col // COLS * ROWS, tl.max(largest, 1), mask=inside)
    if ARGMAX:
        top, places = tl.max(best, 1), tl.arange(0, COLS // GROUP)
        tied = (best == top[:, None]) & (top > float("-inf"))[:, None]
        index = tl.full((ROWS,), m, tl.int32)
        for _ in range(COLS // GROUP):
            if tl.max(tl.max(tied.to(tl.int32), 1), 0) > 0:
                place = tl.min(tl.where(tied, places[None, :], COLS // GROUP), 1)
                chosen = places[None, :] == place[:, None]
                tied = tied & (places[None, :] != place[:, None])
                candidate = tl.max(tl.where(chosen, best_start, 0), 1) + place
                key, highest = candidate, tl.full((ROWS,), float("-inf"), tl.float32)
                for _ in range(GROUP):
                    vectors = load_vectors(
                        keys, candidate[:, None], dims[None, :], key_row, key_col, m, width, False
                    ).to(tl.float32)
                    products = tl.sum(vectors * block.to(tl.float32), 1)[:, None]
                    added = load_bias(bias, rows[:, None], candidate[:, None], bias_row, bias_col, n, m, BIAS)
                    scores = hide_pairs(
                        score_pairs(products, lse, added, scale, cap, BIAS, CAP), rows[:, None], candidate[:, None],
                        end, left, right, row_documents, col_documents, matrix, matrix_row, matrix_col,
                        n, m, LEFT, RIGHT, DOCUMENTS, MATRIX,
                    )  # fmt: skip
                    scores = tl.reshape(scores, (ROWS,))
                    key = tl.where(scores > highest, candidate, key)
                    highest = tl.maximum(scores, highest)
                    candidate += COLS // GROUP
                index = tl.where(place < COLS // GROUP, tl.minimum(index, key), index)
        index = tl.where((tl.exp2(top) > 0) & (index < m), index, -1)
        tl.store(argmax + sequence * n + rows, index.to(tl.int64), mask=inside)


@triton.jit
@no_type_check
def attend_to_keys(
    query, keys, statistic, bias, matrix, lengths, row_documents, col_documents, values, output,
    query_batch, query_head, query_row, query_col, key_batch, key_head, key_row, key_col,
    bias_batch, bias_head, bias_row, bias_col, matrix_batch, matrix_head, matrix_row, matrix_col,
    value_batch, value_head, value_row, value_col,
    heads, n, m, width, scale, cap, left, right, features, row_blocks, sequences,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr, EVEN_WIDTH: tl.constexpr, FEATURES: tl.constexpr,
    EVEN_FEATURES: tl.constexpr, PRECISION: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr,
    RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Store the output and the log-sum-exp of a block of queries, by a softmax that is rescaled from block to block."""
    first, sequence = locate_block(tl.program_id(0), row_blocks, sequences, ROWS, RIGHT)
    batch, head = sequence // heads, sequence % heads
    rows, dims, value_dims = first + tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    query += batch * query_batch + head * query_head
    keys += batch * key_batch + head * key_head
    values += batch * value_batch + head * value_head
    bias += batch * bias_batch + head * bias_head
    matrix += batch * matrix_batch + head * matrix_head
    row_documents += sequence * n
    col_documents += sequence * m
    inside = rows < n
    block = load_vectors(query, rows[:, None], dims[None, :], query_row, query_col, n, width, False)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, FEATURES), tl.float32)
    start, sure_start, sure_stop, stop = find_columns(
        first, tl.minimum(first + ROWS, n) - 1, end, left, right, COLS, LEFT, RIGHT, DOCUMENTS or MATRIX
    )
    for phase in tl.static_range(3):
        begin = start if phase == 0 else (sure_start if phase == 1 else sure_stop)
        until = sure_start if phase == 0 else (sure_stop if phase == 1 else stop)
        for col in range(begin, until, COLS):
            cols = col + tl.arange(0, COLS)
            vectors = load_vectors(
                keys, cols[None, :], dims[:, None], key_row, key_col, m, width, phase == 1 and EVEN_WIDTH
            )
            products = tl.dot(block, vectors, input_precision=PRECISION)
            added = load_bias(bias, rows[:, None], cols[None, :], bias_row, bias_col, n, m, BIAS)
            if CAP:
                scores = cap_scores(products * scale, cap) * LOG2_E
            else:
                scores = products * (scale * LOG2_E)
            if BIAS:
                scores += added.to(tl.float32) * LOG2_E
            if phase != 1:
                scores = hide_pairs(
                    scores, rows[:, None], cols[None, :], end, left, right, row_documents, col_documents,
                    matrix, matrix_row, matrix_col, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX,
                )  # fmt: skip
            peak = tl.maximum(best, tl.max(scores, 1))
            shift = peak
            if BIAS or phase != 1:  # a row may not have seen any key yet
                shift = tl.where(peak == float("-inf"), 0.0, peak)
            weights, decay = tl.exp2(scores - shift[:, None]), tl.exp2(best - shift)
            total = total * decay + tl.sum(weights, 1)
            best = peak
            features_of_keys = load_vectors(
                values, cols[:, None], value_dims[None, :], value_row, value_col, m, features,
                phase == 1 and EVEN_FEATURES,
            )  # fmt: skip
            mixed = tl.dot(
                weights.to(features_of_keys.dtype), features_of_keys, mixed * decay[:, None], input_precision=PRECISION
            )
    some = total > 0
    mixed *= tl.where(some, 1.0 / total, 0.0)[:, None]
    places = output + (sequence * n + rows)[:, None] * features + value_dims[None, :]
    tl.store(places, mixed.to(output.dtype.element_ty), mask=inside[:, None] & (value_dims < features)[None, :])
    lse = tl.where(some, (best + tl.log2(total)) / LOG2_E, float("inf"))
    tl.store(statistic + sequence * n + rows, lse, mask=inside)


@triton.jit
@no_type_check
def pack_scores(scores, indices):
    """Return integers that hold scores and indices, in the order of scores; of equal ones the first index is larger."""
    bits = (scores + 0.0).to(tl.int32, bitcast=True)  # no negative zeros
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - indices).to(tl.int64)


@triton.jit
@no_type_check
def unpack_scores(packed):
    """Return the scores and the indices that integers hold."""
    ordered = (packed >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True), 0x7FFFFFFF - (packed & 0x7FFFFFFF).to(tl.int32)


@triton.jit
@no_type_check
def find_largest(scores, indices, COUNT: tl.constexpr):
    """Return the COUNT largest scores of each row and their indices, -1 where fewer are above -inf."""
    packed, places = pack_scores(scores, indices), tl.arange(0, COUNT)
    largest = tl.zeros((scores.shape[0], COUNT), tl.int64)
    for place in tl.static_range(COUNT):
        first = tl.max(packed, 1)
        largest = tl.where(places[None, :] == place, first[:, None], largest)
        packed = tl.where(packed == first[:, None], REMOVED, packed)
    best, found = unpack_scores(largest)
    return best, tl.where(best > float("-inf"), found, -1)


@triton.jit(do_not_specialize=["skipped"])
@no_type_check
def choose_groups(
    group_maxima, block_maxima, chosen, lengths, n, m, left, right, skipped, row_blocks, sequences, col_blocks,
    LINES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, PER_BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    COUNT: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr,
):  # fmt: skip
    """Store the COUNT groups with the largest maxima of some rows, -1 where fewer have a visible key."""
    slot, offset = tl.program_id(0) // (ROWS // LINES), tl.program_id(0) % (ROWS // LINES) * LINES
    first, sequence = locate_block(slot + skipped, row_blocks, sequences, ROWS, RIGHT)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    start, _, _, stop = find_columns(
        first, tl.minimum(first + ROWS, n) - 1, end, left, right, COLS, LEFT, RIGHT, False
    )  # fmt: skip
    lines, blocks, members = offset + tl.arange(0, LINES), tl.arange(0, BLOCKS), tl.arange(0, PER_BLOCK)
    inside = first + lines < n
    walked = (blocks * COLS >= start) & (blocks * COLS < stop)
    places = block_maxima + slot.to(tl.int64) * (col_blocks * ROWS) + blocks[None, :] * ROWS + lines[:, None]
    maxima = tl.load(places, mask=inside[:, None] & walked[None, :], other=float("-inf"))
    _, best_blocks = find_largest(maxima, blocks[None, :], COUNT)
    groups = best_blocks[:, :, None] * PER_BLOCK + members[None, None, :]
    groups = tl.reshape(groups, (LINES, COUNT * PER_BLOCK))
    rows = slot.to(tl.int64) * ROWS + lines
    places = group_maxima + rows[:, None] * (col_blocks * PER_BLOCK) + groups
    maxima = tl.load(places, mask=groups >= 0, other=float("-inf"))
    _, best = find_largest(maxima, tl.maximum(groups, 0), COUNT)
    tl.store(chosen + rows[:, None] * COUNT + tl.arange(0, COUNT)[None, :], best)


@triton.jit
@no_type_check
def locate_members(groups, members, COLS: tl.constexpr, PER_BLOCK: tl.constexpr):
    """Return the keys of groups; groups below zero have none, and those of the first one are returned."""
    groups = tl.maximum(groups, 0)
    return groups // PER_BLOCK * COLS + groups % PER_BLOCK + members * PER_BLOCK


@triton.jit(do_not_specialize=["skipped"])
@no_type_check
def score_groups(
    query, keys, statistic, bias, matrix, lengths, row_documents, col_documents, chosen, candidates,
    query_batch, query_head, query_row, query_col, key_batch, key_head, key_row, key_col,
    bias_batch, bias_head, bias_row, bias_col, matrix_batch, matrix_head, matrix_row, matrix_col,
    heads, n, m, width, scale, cap, left, right, skipped, row_blocks, sequences,
    ROWS: tl.constexpr, COLS: tl.constexpr, GROUP: tl.constexpr, PER_BLOCK: tl.constexpr, COUNT: tl.constexpr,
    WIDTH: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Store the scores of the keys of the chosen groups of one row, -inf where a key is hidden."""
    first, sequence = locate_block(tl.program_id(0) // ROWS + skipped, row_blocks, sequences, ROWS, RIGHT)
    row = first + tl.program_id(0) % ROWS
    if row >= n:
        return
    batch, head = sequence // heads, sequence % heads
    places, dims = tl.arange(0, COUNT * GROUP), tl.arange(0, WIDTH)
    stored = tl.program_id(0).to(tl.int64) * COUNT
    groups = tl.load(chosen + stored + places // GROUP)
    cols = locate_members(groups, places % GROUP, COLS, PER_BLOCK)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(lengths + sequence), m)
    visible = (groups >= 0) & (cols < end)
    if LEFT:
        visible &= cols >= row + left
    if RIGHT:
        visible &= cols <= row + right
    if DOCUMENTS:
        of_cols = tl.load(col_documents + sequence * m + cols, mask=visible, other=0)
        visible &= tl.load(row_documents + sequence * n + row) == of_cols
    far_row = row.to(tl.int64)
    if MATRIX:
        matrix += batch * matrix_batch + head * matrix_head + far_row * matrix_row
        visible &= tl.load(matrix + cols.to(tl.int64) * matrix_col, mask=visible, other=0) != 0
    query += batch * query_batch + head * query_head + far_row * query_row
    keys += batch * key_batch + head * key_head
    vector = tl.load(query + dims * query_col, mask=dims < width, other=0.0).to(tl.float32)
    inside = visible[:, None] & (dims < width)[None, :]
    addresses = locate_pairs(keys, cols[:, None], dims[None, :], key_row, key_col)
    products = tl.sum(tl.load(addresses, mask=inside, other=0.0).to(tl.float32) * vector[None, :], 1)
    added = products
    if BIAS:
        bias += batch * bias_batch + head * bias_head + far_row * bias_row
        added = tl.load(bias + cols.to(tl.int64) * bias_col, mask=visible, other=0.0)
    scores = score_pairs(products, tl.load(statistic + sequence * n + row), added, scale, cap, BIAS, CAP)
    tl.store(candidates + stored * GROUP + places, tl.where(visible, scores, float("-inf")))


@triton.jit(do_not_specialize=["skipped"])
@no_type_check
def choose_keys(
    candidates, chosen, top_weights, top_keys, n, skipped, row_blocks, sequences, k,
    LINES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, GROUP: tl.constexpr, PER_BLOCK: tl.constexpr,
    COUNT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    """Store the k largest weights of some rows and their keys, largest first, from the scores of the chosen groups."""
    slot, offset = tl.program_id(0) // (ROWS // LINES), tl.program_id(0) % (ROWS // LINES) * LINES
    first, sequence = locate_block(slot + skipped, row_blocks, sequences, ROWS, RIGHT)
    lines, members, places = offset + tl.arange(0, LINES), tl.arange(0, COUNT * GROUP), tl.arange(0, COUNT)
    rows, inside = (slot.to(tl.int64) * ROWS + lines)[:, None], (first + lines < n)[:, None]
    groups = tl.load(chosen + rows * COUNT + members[None, :] // GROUP, mask=inside, other=-1)
    scores = tl.load(candidates + rows * (COUNT * GROUP) + members[None, :], mask=inside, other=float("-inf"))
    best, keys = find_largest(scores, locate_members(groups, members[None, :] % GROUP, COLS, PER_BLOCK), COUNT)
    weights = tl.exp2(best)
    stored = (sequence * n + first + lines)[:, None] * k + places[None, :]
    inside &= places[None, :] < k
    tl.store(top_weights + stored, weights, mask=inside)
    tl.store(top_keys + stored, tl.where(weights > 0, keys, -1).to(tl.int64), mask=inside)
