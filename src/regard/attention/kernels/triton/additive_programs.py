"""The Triton programs for additive attention, whose scores are w·tanh(q + k), and for its gradients.

As tanh(q + k) = 1 - 2 / (1 + e^2q e^2k), the exponentials are computed once for each query and each key, and one
reciprocal serves several terms: 1/a + 1/b = (a + b) / ab. Three ways to the denominators 1 + e^2q e^2k, of which the
largest numbers of a call choose one:

- `FAST`: as they are; products of four of them stay below the largest float32.
- `SAFE`: at most `MOST`, where tanh is 1 - 2**-29. The larger of query and key is clamped beforehand such that its
  exponential is finite and not zero; what it is clamped to is so far beyond the other's range that tanh is 1 there.
- `PLAIN`: from the sums q + k, for pairs of large numbers that may cancel.

A program takes a block of one side, its *own*, and walks over the other. A tile has the other side as its first axis:
each thread has one own position and all others of the tile, so that sums over the others stay within a thread. What is
summed for each hidden number goes to memory: it belongs to one thread of one program, so the order never changes.
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
def denominator(own, other, step, own_step, MODE: tl.constexpr):
    """Return 1 + e^2x for the sum x of each pair in one hidden number, limited unless `FAST`."""
    own_numbers, other_numbers = tl.load(own + own_step)[None, :], tl.load(other + step)[:, None]
    if MODE == PLAIN:
        exponents = (own_numbers + other_numbers) * (2 * LOG2_E)
        limited = tl.minimum(exponents, 30.0, propagate_nan=tl.PropagateNan.ALL)
        result = 1.0 + tl.exp2(limited)
    elif MODE == SAFE:
        result = tl.minimum(1.0 + own_numbers * other_numbers, MOST)
    else:
        result = 1.0 + own_numbers * other_numbers
    return result


@triton.jit
@no_type_check
def score_tile(own, other, energy, own_step, other_step, mode, OWN: tl.constexpr, OTHER: tl.constexpr,
               HIDDEN: tl.constexpr, BY_FOUR: tl.constexpr):  # fmt: skip
    """Return the scores of a tile to base 2, less the sum of the energy.

    `own` and `other` point to the first hidden number of each position, `energy` to -2w of each hidden number. Four
    terms to a reciprocal, where `FAST`, leave special functions idle, and take registers that backward does not have.
    """
    scores = tl.zeros((OTHER, OWN), tl.float32)
    if mode == FAST:
        if BY_FOUR:
            scores = add_by_four(scores, own, other, energy, own_step, other_step, HIDDEN)
        else:
            scores = add_by_two(scores, own, other, energy, own_step, other_step, HIDDEN, FAST)
    elif mode == SAFE:
        scores = add_by_two(scores, own, other, energy, own_step, other_step, HIDDEN, SAFE)
    else:
        scores = add_by_two(scores, own, other, energy, own_step, other_step, HIDDEN, PLAIN)
    return scores


@triton.jit
@no_type_check
def add_by_four(scores, own, other, energy, own_step, other_step, HIDDEN: tl.constexpr):
    """Add the terms of all hidden numbers, four to a reciprocal."""
    for dim in range(0, HIDDEN, 4):
        first = denominator(own, other, dim * other_step, dim * own_step, FAST)
        second = denominator(own, other, (dim + 1) * other_step, (dim + 1) * own_step, FAST)
        third = denominator(own, other, (dim + 2) * other_step, (dim + 2) * own_step, FAST)
        fourth = denominator(own, other, (dim + 3) * other_step, (dim + 3) * own_step, FAST)
        left = tl.load(energy + dim) * second + tl.load(energy + dim + 1) * first
        right = tl.load(energy + dim + 2) * fourth + tl.load(energy + dim + 3) * third
        first *= second
        third *= fourth
        scores += (left * third + right * first) * reciprocal(first * third)
    return scores


@triton.jit
@no_type_check
def add_by_two(scores, own, other, energy, own_step, other_step, HIDDEN: tl.constexpr, MODE: tl.constexpr):
    """Add the terms of all hidden numbers, two to a reciprocal."""
    for dim in range(0, HIDDEN, 2):
        first = denominator(own, other, dim * other_step, dim * own_step, MODE)
        second = denominator(own, other, (dim + 1) * other_step, (dim + 1) * own_step, MODE)
        terms = tl.load(energy + dim) * second + tl.load(energy + dim + 1) * first
        scores += terms * reciprocal(first * second)
    return scores


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


@triton.jit(do_not_specialize=["seed"])
@no_type_check
def attend_to_keys(
    queries, keys, key_features, rule, bias, matrix, energy, offsets, largest, output, statistic, n, m, heads, width,
    seed, rate, blocks,
    OWN: tl.constexpr, OTHER: tl.constexpr, PART: tl.constexpr, FEATURES: tl.constexpr, HIDDEN: tl.constexpr,
    DROPOUT: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr,
    DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Store the output and the log-sum-exp of a block of queries, by a softmax that is rescaled from tile to tile."""
    first, sequence = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    rows, features = first + tl.arange(0, OWN), tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    query = find_hidden(queries, batch, head, rows)
    mode = choose_mode(largest)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(rule.lengths + sequence), m)
    start, _, _, stop = find_columns(
        first, tl.minimum(first + OWN, n) - 1, end, rule.left, rule.right, OTHER, LEFT, RIGHT, True
    )
    best = tl.full((OWN,), float("-inf"), tl.float32)
    total = tl.zeros((OWN,), tl.float32)
    mixed = tl.zeros((OWN, FEATURES), tl.float32)
    for col in range(start, stop, OTHER):
        cols = col + tl.arange(0, OTHER)
        key = find_hidden(keys, batch, head, cols)
        scores = score_tile(
            query, key, energy + sequence * HIDDEN, queries.row, keys.row, mode, OWN, OTHER, HIDDEN,
            True,
        )  # fmt: skip
        if BIAS:
            added = load_pairs(bias, batch, head, rows[None, :], cols[:, None], n, m)
            scores += LOG2_E * added.to(tl.float32)
        visible = find_visible(
            rule, matrix, batch, head, sequence, rows[None, :], cols[:, None], end, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX
        )
        scores = tl.where(visible, scores, float("-inf"))
        peak = tl.maximum(best, tl.max(scores, 0))
        shift = tl.where(peak == float("-inf"), 0.0, peak)
        weights, decay = tl.exp2(scores - shift[None, :]), tl.exp2(best - shift)
        total = total * decay + tl.sum(weights, 0)
        if DROPOUT:
            weights = tl.where(keep_pairs(seed, rate, sequence, rows[None, :], cols[:, None], n, m), weights, 0.0)
        values = load_tile(key_features, batch, head, cols, features, m, width)
        mixed = mixed * decay[:, None] + multiply(tl.trans(weights), values)
        best = peak
    some = total > 0
    scale = tl.where(some, 1.0 / total, 0.0)
    if DROPOUT:
        scale *= tl.where(rate < 1, 1.0 / (1.0 - rate), 0.0)
    places = output + (sequence * n + rows[:, None]) * width + features[None, :]
    inside = rows[:, None] < n
    tl.store(places, (mixed * scale[:, None]).to(output.dtype.element_ty), mask=inside & (features < width)[None, :])
    lse = tl.where(some, (best + tl.log2(total)) / LOG2_E + tl.load(offsets + sequence), float("inf"))
    tl.store(statistic + sequence * n + rows, lse, mask=rows < n)


@triton.jit
@no_type_check
def find_hidden(side, batch, head, positions):
    """Return pointers to the first hidden number of positions."""
    return side.tensor + batch * side.batch + head * side.head + positions


@triton.jit(do_not_specialize=["seed"])
@no_type_check
def differentiate(
    own, own_features, other, other_features, rule, bias, matrix, energy, offsets, largest, statistic, means, of_hidden,
    of_energy, of_features, of_bias, n, m, heads, width, seed, rate, blocks,
    OF_KEYS: tl.constexpr, OF_ENERGY: tl.constexpr, OF_BIAS: tl.constexpr, OWN: tl.constexpr,
    OTHER: tl.constexpr, PART: tl.constexpr, FEATURES: tl.constexpr, HIDDEN: tl.constexpr, DROPOUT: tl.constexpr,
    BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr,
    MATRIX: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a block of queries, or with `OF_KEYS` of keys, their values and the bias.

    Features are values or gradients of the output. `of_hidden` and `of_energy` have a number for each hidden number of
    each position; the sum of the latter over all positions is the gradient of the energy.
    """
    first, sequence = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    own_length, other_length = (m, n) if OF_KEYS else (n, m)
    own_indices = first + tl.arange(0, OWN)
    features = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    own_hidden = find_hidden(own, batch, head, own_indices)
    energy += sequence * HIDDEN
    offset = tl.load(offsets + sequence)
    statistic += sequence * n
    means += sequence * n
    padded = own.row
    of_hidden += sequence * HIDDEN * padded + own_indices
    of_energy += sequence * HIDDEN * padded + own_indices
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
        other_indices = position + tl.arange(0, OTHER)
        other_hidden = find_hidden(other, batch, head, other_indices)
        rows, cols = own_indices[None, :], other_indices[:, None]
        if OF_KEYS:
            rows, cols = other_indices[:, None], own_indices[None, :]
        scores = score_tile(own_hidden, other_hidden, energy, padded, other.row, mode, OWN, OTHER, HIDDEN, False)
        if BIAS:
            added = load_pairs(bias, batch, head, rows, cols, n, m)
            scores += LOG2_E * added.to(tl.float32)
        of_row = tl.minimum(rows, n - 1)
        scores -= (tl.load(statistic + of_row) - offset) * LOG2_E
        if BIAS:
            scores = tl.minimum(scores, 0.0)  # large biases and the log-sum-exp are rounded differently
        visible = find_visible(
            rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX
        )  # fmt: skip
        weights = tl.where(visible, tl.exp2(scores), 0.0)
        of_weights = multiply_features(
            own_features, other_features, batch, head, own_indices, other_indices, own_length, other_length, width,
            OWN, OTHER, PART,
        )  # fmt: skip
        if DROPOUT:
            kept = keep_pairs(seed, rate, sequence, rows, cols, n, m)
            of_weights = tl.where(kept, of_weights * scale, 0.0)
        if OF_KEYS:  # a load of all pairs keeps them in the layout of the scores, not in that of the matrix product
            of_row = tl.broadcast_to(of_row, (OTHER, OWN))
        of_scores = weights * (of_weights - tl.load(means + of_row))
        if OF_KEYS:
            if DROPOUT:
                weights = tl.where(kept, weights, 0.0)
            gradient = load_tile(other_features, batch, head, other_indices, features, n, width)
            mixed += multiply(tl.trans(weights), gradient)
        if tl.program_id(1) == 0:
            if OF_BIAS:
                places = find_pairs(of_bias, batch, head, rows, cols, n, m)
                tl.atomic_add(places, of_scores, mask=visible, sem="relaxed")
            if mode == PLAIN:
                add_gradients(
                    of_scores, own_hidden, other_hidden, energy, padded, other.row, of_hidden, of_energy,
                    HIDDEN, PLAIN, OF_ENERGY,
                )  # fmt: skip
            else:
                add_gradients(
                    of_scores, own_hidden, other_hidden, energy, padded, other.row, of_hidden, of_energy,
                    HIDDEN, SAFE, OF_ENERGY,
                )  # fmt: skip
    if OF_KEYS:
        places = of_features + (sequence * m + own_indices[:, None]) * width + features[None, :]
        inside = (own_indices < m)[:, None] & (features < width)[None, :]
        tl.store(places, (mixed * scale).to(of_features.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def multiply_features(own, other, batch, head, own_indices, other_indices, own_length, other_length, width,
                      OWN: tl.constexpr, OTHER: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    """Return the products of the features of each pair: values, and gradients of the output."""
    products = tl.zeros((OWN, OTHER), tl.float32)
    for start in range(0, width, PART):
        features = start + tl.arange(0, PART)
        left = load_tile(own, batch, head, own_indices, features, own_length, width)
        right = load_tile(other, batch, head, other_indices, features, other_length, width)
        products += tl.dot(left, tl.trans(right), input_precision="tf32x3" if left.dtype == tl.float32 else "tf32")
    return tl.trans(products)


@triton.jit
@no_type_check
def add_gradients(
    of_scores, own, other, energy, own_step, other_step, of_hidden, of_energy, HIDDEN: tl.constexpr, MODE: tl.constexpr,
    OF_ENERGY: tl.constexpr,
):  # fmt: skip
    """Add what the scores of a tile contribute to the gradients of the own hidden numbers and of the energy."""
    total = tl.sum(of_scores, 0)
    for dim in range(0, HIDDEN, 2):
        first = denominator(own, other, dim * other_step, dim * own_step, MODE)
        second = denominator(own, other, (dim + 1) * other_step, (dim + 1) * own_step, MODE)
        inverse = reciprocal(first * second)
        add_gradient(of_scores, inverse * second, total, energy + dim, of_hidden, of_energy, dim * own_step, OF_ENERGY)
        dim += 1
        add_gradient(of_scores, inverse * first, total, energy + dim, of_hidden, of_energy, dim * own_step, OF_ENERGY)


@triton.jit
@no_type_check
def add_gradient(of_scores, share, total, energy, of_hidden, of_energy, step, OF_ENERGY: tl.constexpr):
    """Add to the gradients of one hidden number, from its share 1 / (1 + e^2x) for each pair.

    tanh(x) is 1 - 2 share, and its derivative 4 share (1 - share).
    """
    of_terms = tl.sum(of_scores * (share - share * share), 0)
    places = of_hidden + step
    tl.store(places, tl.load(places) + tl.load(energy) * -2.0 / LOG2_E * of_terms)
    if OF_ENERGY:
        places = of_energy + step
        tl.store(places, tl.load(places) + (total - 2.0 * tl.sum(of_scores * share, 0)))
