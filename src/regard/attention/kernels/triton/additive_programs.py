"""The Triton programs for additive attention, whose scores are w·tanh(q + k), and for its gradients.

As tanh(q + k) = 1 - 2 / (1 + e^2q e^2k), the exponentials are computed once for each query and each key, and one
reciprocal serves several terms: 1/a + 1/b = (a + b) / ab. Three ways to the denominators 1 + e^2q e^2k, of which the
largest numbers of a call choose one:

- `FAST`: as they are; products of four of them stay below the largest float32.
- `SAFE`: at most `MOST`, where tanh is 1 - 2**-29. The larger of query and key is clamped beforehand such that its
  exponential is finite and not zero; what it is clamped to is so far beyond the other's range that tanh is 1 there.
- `PLAIN`: from the sums q + k, for pairs of large numbers that may cancel.

A program takes a block of one side, its *own*, and walks over the other. A thread has a small tile of pairs, so that
each number that it loads serves several terms. To say which pairs those are, a tile has five axes: threads of a warp by
own positions and by others, warps, the own positions of a thread, and its others. A load of as many numbers as there
are threads, or more, decides the layout of what is computed from them: the first axes belong to threads if Triton does
not know that neighbors are next to each other in memory. So scores begin with a number that is loaded for each pair.
Fewer numbers are loaded by the threads that require them, neighbors at once.

What is summed for each hidden number goes to memory: it belongs to one warp of one program, so the order never changes.
"""

import os
from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.kernels.triton.dot_programs import LOG2_E, find_columns
from regard.attention.kernels.triton.rule_programs import find_pairs, find_visible, keep_pairs, load_pairs, load_tile

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
FAST, SAFE, PLAIN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
FAST_SUM = tl.constexpr(10.5)  # (1 + e^(2 * 10.5))^4 < 2**122, whose reciprocal is a normal number
FAST_ENERGY = tl.constexpr(1e6)
SAFE_SIDE = tl.constexpr(30.0)  # of the smaller side
SAFE_ENERGY = tl.constexpr(1e25)
BEYOND = tl.constexpr(10.0)  # tanh(10) is 1 - 4e-9
MOST = tl.constexpr(2.0**30)
LN_2_HIGH, LN_2_LOW = tl.constexpr(0.693359375), tl.constexpr(-2.12194440e-4)  # products of the first are exact


@triton.jit
@no_type_check
def choose_mode(largest):
    """Return how to compute the denominators, from the largest numbers of queries, keys and energy."""
    query, keys, energy = tl.load(largest), tl.load(largest + 1), tl.load(largest + 2)
    mode = tl.where(((query <= SAFE_SIDE) | (keys <= SAFE_SIDE)) & (energy <= SAFE_ENERGY), SAFE, PLAIN)
    mode = tl.where((query + keys <= FAST_SUM) & (energy <= FAST_ENERGY), FAST, mode)
    return tl.where(query + keys < float("inf"), mode, PLAIN)  # not a number is not less


@triton.jit
@no_type_check
def store_hidden(
    source, target, largest, count, width, padded, blocks, ROWS: tl.constexpr, DIMS: tl.constexpr,
    HIDDEN: tl.constexpr,
):  # fmt: skip
    """Store e^2x of queries or keys, or x itself in `PLAIN` mode: position last, and zeros for x past the ends."""
    first, sequence = tl.program_id(0) % blocks * ROWS, (tl.program_id(0) // blocks).to(tl.int64)
    rows, dims = first + tl.arange(0, ROWS), tl.program_id(1) * DIMS + tl.arange(0, DIMS)
    numbers = load_tile(source, 0, sequence, rows, dims, count, width).to(tl.float32)
    limit = tl.minimum(tl.load(largest), tl.load(largest + 1)) + BEYOND
    if choose_mode(largest) != PLAIN:
        numbers = exponential(2 * tl.minimum(tl.maximum(numbers, -limit), limit))
    places = target + (sequence * HIDDEN + dims[:, None]) * padded + rows[None, :]
    tl.store(places, tl.trans(numbers), mask=(dims < HIDDEN)[:, None])


@triton.jit
@no_type_check
def exponential(numbers):
    """Return e^x of numbers between -87 and 87 as precisely as float32 can."""
    wholes = tl.floor(numbers * LOG2_E + 0.5)
    rest = (numbers - wholes * LN_2_HIGH) - wholes * LN_2_LOW
    return tl.exp2(rest * LOG2_E) * tl.exp2(wholes)


@triton.jit
@no_type_check
def reciprocal(numbers):
    """Return 1 / x of normal numbers with normal reciprocals."""
    if INTERPRETED:
        result = 1.0 / numbers
    else:
        result = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [numbers], dtype=tl.float32, is_pure=True, pack=1
        )
    return result


@triton.jit
@no_type_check
def find_own(first, LANES: tl.constexpr, WARPS: tl.constexpr, EACH: tl.constexpr):
    """Return the own positions of a block, on the axes of a tile: neighbors belong to one thread."""
    lanes, warps = tl.arange(0, LANES)[:, None, None, None, None], tl.arange(0, WARPS)[None, None, :, None, None]
    return first + (warps * LANES + lanes) * EACH + tl.arange(0, EACH)[None, None, None, :, None]


@triton.jit
@no_type_check
def find_others(first, LANES: tl.constexpr, EACH: tl.constexpr):
    """Return the other positions of a tile, on its axes: neighbors belong to one thread."""
    lanes = tl.arange(0, 32 // LANES)[None, :, None, None, None]
    return first + lanes * EACH + tl.arange(0, EACH)[None, None, None, None, :]


@triton.jit
@no_type_check
def to_matrix(tile, OWN: tl.constexpr, OTHER: tl.constexpr):
    """Return a tile as a matrix of own and other positions."""
    return tl.reshape(tl.permute(tile, (2, 0, 3, 1, 4)), (OWN, OTHER))


@triton.jit
@no_type_check
def to_tile(matrix, LANES: tl.constexpr, WARPS: tl.constexpr, OWN_EACH: tl.constexpr, OTHER_EACH: tl.constexpr):
    """Return a matrix of own and other positions as a tile."""
    return tl.permute(tl.reshape(matrix, (WARPS, LANES, OWN_EACH, 32 // LANES, OTHER_EACH)), (1, 3, 0, 2, 4))


@triton.jit
@no_type_check
def to_vector(numbers, OWN: tl.constexpr):
    """Return numbers of own positions as a vector."""
    return tl.reshape(tl.permute(numbers, (2, 0, 3, 1, 4)), (OWN,))


@triton.jit
@no_type_check
def sum_others(tile):
    """Return the sums of a tile over the others."""
    return tl.sum(tl.sum(tile, 4, keep_dims=True), 1, keep_dims=True)


@triton.jit
@no_type_check
def denominator(own, other, mode):
    """Return 1 + e^2x for the sum x of each pair in one hidden number, limited unless `FAST`."""
    own_numbers, other_numbers = tl.load(own), tl.load(other)
    if mode == FAST:
        result = 1.0 + own_numbers * other_numbers
    elif mode == SAFE:
        result = tl.minimum(1.0 + own_numbers * other_numbers, MOST)
    else:
        exponents = (own_numbers + other_numbers) * (2 * LOG2_E)
        limited = tl.minimum(exponents, 30.0, propagate_nan=tl.PropagateNan.ALL)
        result = 1.0 + tl.exp2(limited)
    return result


@triton.jit
@no_type_check
def score_tile(scores, own, other, energy, own_step, other_step, mode, HIDDEN: tl.constexpr):
    """Add the scores of a tile to base 2, less the sum of the energy.

    `own` and `other` point to the first hidden number of each position, `energy` to -2w of each hidden number. A loop
    in each branch keeps Triton from moving what follows into the branches, in several layouts.
    """
    if mode == FAST:
        for _ in range(0, HIDDEN, 4):
            first, left = add_two(own, other, energy, own_step, other_step, FAST)
            own += 2 * own_step
            other += 2 * other_step
            second, right = add_two(own, other, energy + 2, own_step, other_step, FAST)
            scores += (left * second + right * first) * reciprocal(first * second)
            own += 2 * own_step
            other += 2 * other_step
            energy += 4
    else:
        for _ in range(0, HIDDEN, 2):
            product, terms = add_two(own, other, energy, own_step, other_step, mode)
            scores += terms * reciprocal(product)
            own += 2 * own_step
            other += 2 * other_step
            energy += 2
    return scores


@triton.jit
@no_type_check
def add_two(own, other, energy, own_step, other_step, mode):
    """Return the sum of the terms of two hidden numbers as a fraction: its denominator and its numerator."""
    first, second = denominator(own, other, mode), denominator(own + own_step, other + other_step, mode)
    return first * second, tl.load(energy) * second + tl.load(energy + 1) * first


@triton.jit
@no_type_check
def split_in_three(numbers):
    """Return three bfloat16 numbers for each float32 number, whose sum it is."""
    high = numbers.to(tl.bfloat16)
    rest = numbers - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    return high, middle, (rest - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit
@no_type_check
def multiply(left, right):
    """Return the product of a float32 matrix and one that was loaded, whose type the left one takes.

    For float32 it is the sum of six products in bfloat16, whose operands fit into registers and shared memory. The
    interpreter has no bfloat16.
    """
    if right.dtype == tl.float32 and not INTERPRETED:
        left_high, left_middle, left_low = split_in_three(left)
        high, middle, low = split_in_three(right)
        product = tl.dot(left_low, high)
        product = tl.dot(left_middle, middle, product)
        product = tl.dot(left_high, low, product)
        product = tl.dot(left_middle, high, product)
        product = tl.dot(left_high, middle, product)
        product = tl.dot(left_high, high, product)
    else:
        product = tl.dot(left.to(right.dtype), right)
    return product


@triton.jit(do_not_specialize=["seed", "skipped"])
@no_type_check
def attend_to_keys(
    queries, keys, key_features, rule, bias, matrix, energy, offsets, largest, output, statistic, n, m, heads, width,
    seed, rate, blocks, skipped,
    OWN: tl.constexpr, OTHER: tl.constexpr, OWN_EACH: tl.constexpr, OTHER_EACH: tl.constexpr, WARPS: tl.constexpr,
    LANES: tl.constexpr, PART: tl.constexpr, FEATURES: tl.constexpr, HIDDEN: tl.constexpr, DROPOUT: tl.constexpr,
    BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr,
    MATRIX: tl.constexpr,
):  # fmt: skip
    """Store the output and the log-sum-exp of a block of queries, by a softmax that is rescaled from tile to tile."""
    first, slot = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    sequence = skipped + slot
    batch, head = sequence // heads, sequence % heads
    features = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    rows = find_own(first, LANES, WARPS, OWN_EACH)
    query = find_hidden(queries, batch, head, sequence - slot, rows, HIDDEN)
    mode = choose_mode(largest)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(rule.lengths + sequence), m)
    start, _, _, stop = find_columns(
        first, tl.minimum(first + OWN, n) - 1, end, rule.left, rule.right, OTHER, LEFT, RIGHT, True
    )
    best = tl.full((LANES, 1, WARPS, OWN_EACH, 1), float("-inf"), tl.float32)
    total = tl.zeros((LANES, 32 // LANES, WARPS, OWN_EACH, 1), tl.float32)  # of each thread
    mixed = tl.zeros((OWN, FEATURES), tl.float32)
    for col in range(start, stop, OTHER):
        cols = find_others(col, LANES, OTHER_EACH)
        key = find_hidden(keys, batch, head, sequence - slot, cols, HIDDEN)
        scores = tl.load(offsets + sequence + tl.zeros_like(rows + cols)) * LOG2_E
        scores = score_tile(scores, query, key, energy + sequence * HIDDEN, queries.row, keys.row, mode, HIDDEN)
        if BIAS:
            scores += LOG2_E * load_pairs(bias, batch, head, rows, cols, n, m).to(tl.float32)
        visible = find_visible(
            rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX
        )  # fmt: skip
        scores = tl.where(visible, scores, float("-inf"))
        peak = tl.maximum(best, tl.max(tl.max(scores, 4, keep_dims=True), 1, keep_dims=True))
        shift = tl.where(peak == float("-inf"), 0.0, peak)
        weights, decay = tl.exp2(scores - shift), tl.exp2(best - shift)
        total = total * decay + tl.sum(weights, 4, keep_dims=True)
        if DROPOUT:
            weights = tl.where(keep_pairs(seed, rate, sequence, rows, cols, n, m), weights, 0.0)
        values = load_tile(key_features, batch, head, col + tl.arange(0, OTHER), features, m, width)
        mixed = mixed * to_vector(decay, OWN)[:, None] + multiply(to_matrix(weights, OWN, OTHER), values)
        best = peak
    total = tl.sum(total, 1, keep_dims=True)
    some = total > 0
    scale = tl.where(some, 1.0 / total, 0.0)
    if DROPOUT:
        scale *= tl.where(rate < 1, 1.0 / (1.0 - rate), 0.0)
    lse = tl.where(some, (best + tl.log2(total)) / LOG2_E, float("inf"))
    tl.store(statistic + sequence * n + rows, lse, mask=rows < n)
    rows = first + tl.arange(0, OWN)
    places = output + (sequence * n + rows[:, None]) * width + features[None, :]
    inside = (rows < n)[:, None] & (features < width)[None, :]
    tl.store(places, (mixed * to_vector(scale, OWN)[:, None]).to(output.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def find_hidden(side, batch, head, skipped, positions, HIDDEN: tl.constexpr):
    """Return pointers to the first hidden number of positions; the numbers of skipped sequences are not there."""
    return side.tensor + (batch * side.batch + head * side.head - skipped * HIDDEN * side.row) + positions


@triton.jit(do_not_specialize=["seed", "skipped"])
@no_type_check
def differentiate(
    own, own_features, other, other_features, rule, bias, matrix, energy, offsets, largest, statistic, means, of_hidden,
    of_energy, of_features, of_bias, n, m, heads, width, seed, rate, blocks, skipped,
    OF_KEYS: tl.constexpr, OF_ENERGY: tl.constexpr, OF_BIAS: tl.constexpr,
    OWN: tl.constexpr, OTHER: tl.constexpr, OWN_EACH: tl.constexpr, OTHER_EACH: tl.constexpr, WARPS: tl.constexpr,
    LANES: tl.constexpr, PART: tl.constexpr, FEATURES: tl.constexpr, HIDDEN: tl.constexpr, DROPOUT: tl.constexpr,
    BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr,
    MATRIX: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a block of queries, or with `OF_KEYS` of keys, their values and the bias.

    Features are values or gradients of the output. `of_hidden` has a number for each hidden number of each position,
    `of_energy` one for each hidden number of each warp, whose sum is the gradient of the energy.
    """
    first, slot = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    sequence = skipped + slot
    batch, head = sequence // heads, sequence % heads
    own_length, other_length = (m, n) if OF_KEYS else (n, m)
    own_indices = find_own(first, LANES, WARPS, OWN_EACH)
    own_rows = first + tl.arange(0, OWN)
    features = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    own_hidden = find_hidden(own, batch, head, sequence - slot, own_indices, HIDDEN)
    energy += sequence * HIDDEN
    offset = tl.load(offsets + sequence)
    statistic += sequence * n
    means += sequence * n
    padded = own.row
    lanes = tl.arange(0, LANES)[:, None, None, None, None]
    threads = tl.arange(0, 32 // LANES)[None, :, None, None, None]
    warps = tl.arange(0, WARPS)[None, None, :, None, None]
    of_hidden += slot * HIDDEN * padded + tl.minimum(own_indices, padded - 1) + threads * 0
    of_energy += (tl.program_id(0).to(tl.int64) * WARPS + warps) * HIDDEN + (threads + lanes) * 0
    mode = choose_mode(largest)
    scale = tl.where(rate < 1, 1.0 / (1.0 - rate), 0.0) if DROPOUT else 1.0
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(rule.lengths + sequence), m)
    last = tl.minimum(first + OWN, own_length) - 1
    if OF_KEYS:
        start, _, _, stop = find_columns(first, last, n, -rule.right, -rule.left, OTHER, RIGHT, LEFT, True)
        stop = tl.where(first < end, stop, start)
    else:
        start, _, _, stop = find_columns(first, last, end, rule.left, rule.right, OTHER, LEFT, RIGHT, True)
    mixed = tl.zeros((OWN, FEATURES), tl.float32)
    for position in range(start, stop, OTHER):
        other_indices = find_others(position, LANES, OTHER_EACH)
        other_rows = position + tl.arange(0, OTHER)
        other_hidden = find_hidden(other, batch, head, sequence - slot, other_indices, HIDDEN)
        rows, cols = (other_indices, own_indices) if OF_KEYS else (own_indices, other_indices)
        of_row = tl.broadcast_to(tl.minimum(rows, n - 1), tl.zeros_like(rows + cols).shape)
        scores = (offset - tl.load(statistic + of_row)) * LOG2_E
        scores = score_tile(scores, own_hidden, other_hidden, energy, padded, other.row, mode, HIDDEN)
        if BIAS:
            scores += LOG2_E * load_pairs(bias, batch, head, rows, cols, n, m).to(tl.float32)
        if BIAS:
            scores = tl.minimum(scores, 0.0)  # large biases and the log-sum-exp are rounded differently
        visible = find_visible(
            rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX
        )  # fmt: skip
        weights = tl.where(visible, tl.exp2(scores), 0.0)
        products = multiply_features(
            own_features, other_features, batch, head, own_rows, other_rows, own_length, other_length, width,
            OWN, OTHER, PART,
        )  # fmt: skip
        of_weights = to_tile(products, LANES, WARPS, OWN_EACH, OTHER_EACH)
        if DROPOUT:
            kept = keep_pairs(seed, rate, sequence, rows, cols, n, m)
            of_weights = tl.where(kept, of_weights * scale, 0.0)
        of_scores = weights * (of_weights - tl.load(means + of_row))
        if OF_KEYS:
            if DROPOUT:
                weights = tl.where(kept, weights, 0.0)
            gradient = load_tile(other_features, batch, head, other_rows, features, n, width)
            mixed += multiply(to_matrix(weights, OWN, OTHER), gradient)
        if tl.program_id(1) == 0:
            if OF_BIAS:
                places = find_pairs(of_bias, batch, head, rows, cols, n, m)
                tl.atomic_add(places, of_scores, mask=visible, sem="relaxed")
            if mode == FAST:
                add_gradients(
                    of_scores, own_hidden, other_hidden, energy, padded, other.row, of_hidden, of_energy,
                    threads == 0, (threads == 0) & (lanes == 0), FAST, HIDDEN, OF_ENERGY,
                )  # fmt: skip
            elif mode == SAFE:
                add_gradients(
                    of_scores, own_hidden, other_hidden, energy, padded, other.row, of_hidden, of_energy,
                    threads == 0, (threads == 0) & (lanes == 0), SAFE, HIDDEN, OF_ENERGY,
                )  # fmt: skip
            else:
                add_gradients(
                    of_scores, own_hidden, other_hidden, energy, padded, other.row, of_hidden, of_energy,
                    threads == 0, (threads == 0) & (lanes == 0), PLAIN, HIDDEN, OF_ENERGY,
                )  # fmt: skip
    if OF_KEYS:
        places = of_features + (sequence * m + own_rows[:, None]) * width + features[None, :]
        inside = (own_rows < m)[:, None] & (features < width)[None, :]
        tl.store(places, (mixed * scale).to(of_features.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def multiply_features(own, other, batch, head, own_rows, other_rows, own_length, other_length, width,
                      OWN: tl.constexpr, OTHER: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    """Return the products of the features of each pair: values, and gradients of the output."""
    products = tl.zeros((OWN, OTHER), tl.float32)
    for start in range(0, width, PART):
        features = start + tl.arange(0, PART)
        left = load_tile(own, batch, head, own_rows, features, own_length, width)
        right = load_tile(other, batch, head, other_rows, features, other_length, width)
        products += tl.dot(left, tl.trans(right), input_precision="tf32x3" if left.dtype == tl.float32 else "tf32")
    return products


@triton.jit
@no_type_check
def add_gradients(
    of_scores, own, other, energy, own_step, other_step, of_hidden, of_energy, stores_hidden, stores_energy,
    MODE: tl.constexpr, HIDDEN: tl.constexpr, OF_ENERGY: tl.constexpr,
):  # fmt: skip
    """Add what the scores of a tile contribute to the gradients of the own hidden numbers and of the energy.

    Threads that share a sum all have a pointer to it, which keeps it in the layout of the scores; one of them stores.
    """
    total = sum_warp(of_scores) if OF_ENERGY else 0.0
    for _ in range(0, HIDDEN, 2):
        first, second = denominator(own, other, MODE), denominator(own + own_step, other + other_step, MODE)
        inverse = reciprocal(first * second)
        add_gradient(
            of_scores, inverse * second, total, energy, of_hidden, of_energy, stores_hidden, stores_energy, OF_ENERGY
        )
        add_gradient(
            of_scores, inverse * first, total, energy + 1, of_hidden + own_step, of_energy + 1, stores_hidden,
            stores_energy, OF_ENERGY,
        )  # fmt: skip
        own += 2 * own_step
        other += 2 * other_step
        energy += 2
        of_hidden += 2 * own_step
        of_energy += 2


@triton.jit
@no_type_check
def sum_warp(tile):
    """Return the sum over the pairs of each warp."""
    return tl.sum(tl.sum(sum_others(tile), 3, keep_dims=True), 0, keep_dims=True)


@triton.jit
@no_type_check
def add_gradient(
    of_scores, share, total, energy, of_hidden, of_energy, stores_hidden, stores_energy, OF_ENERGY: tl.constexpr
):
    """Add to the gradients of one hidden number, from its share 1 / (1 + e^2x) for each pair.

    tanh(x) is 1 - 2 share, and its derivative 4 share (1 - share).
    """
    of_terms = sum_others(of_scores * (share - share * share))
    tl.store(of_hidden, tl.load(of_hidden) + tl.load(energy) * -2.0 / LOG2_E * of_terms, mask=stores_hidden)
    if OF_ENERGY:
        of_terms = total - 2.0 * sum_warp(of_scores * share)
        tl.store(of_energy, tl.load(of_energy) + of_terms, mask=stores_energy)
