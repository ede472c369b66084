"""The Triton programs for attention with kernels of a distance: boxcar and Epanechnikov.

Squared distances are |q|² + |k|² - 2q·k, with the product by matrix units, and a bound of their rounding error. Where
that error could put a pair on the wrong side of the edge, or is too large for the value of the kernel, all distances
of the block are computed again from differences in float64. So are those of all keys of a block of queries whose
weights have too small a sum: the errors of values just inside the edge are a large part of it.

In half precision they compute only the queries that the programs of `distance_half_programs` are in doubt about.

Distances are in units of the kernel's width. A *side* is either the queries or the keys: their points, and the features
that belong to them (values, or gradients of the output).
"""

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.kernels.triton.dot_programs import LOG2_E, find_columns
from regard.attention.kernels.triton.rule_programs import find_visible, load_pairs, load_tile

FAR = tl.constexpr(1e30)  # the squared norm of a point past the end
LEAST = tl.constexpr(1e-20)  # the smallest squared distance that is not zero
SERIES = tl.constexpr(0.03125)  # up to here four terms of a series are exact in float32


@triton.jit
@no_type_check
def load_reach(reaches, sequence):
    """Load the width of the kernel."""
    return tl.abs(tl.load(reaches.tensor + sequence * reaches.step).to(tl.float32))


@triton.jit
@no_type_check
def load_points(side, center, batch, head, sequence, indices, dims, width, CENTERED: tl.constexpr):
    """Load points, less the center if `CENTERED`, and their squared norms."""
    points = load_tile(side, batch, head, indices, dims, side.length, width)
    if CENTERED:
        points -= tl.load(center + sequence * width + dims, mask=dims < width, other=0.0)[None, :]
    norms = tl.load(side.norms + sequence * side.length + indices, mask=indices < side.length, other=FAR)
    return points, norms


@triton.jit
@no_type_check
def load_coordinate(side, batch, head, indices, dim):
    """Load one coordinate of points."""
    start = side.tensor + batch * side.batch + head * side.head + dim * side.col
    return tl.load(start + indices.to(tl.int64) * side.row, mask=indices < side.length, other=0.0)


@triton.jit
@no_type_check
def square_differences(own, other, batch, head, own_indices, other_indices, width, OWN: tl.constexpr,
                       OTHER: tl.constexpr):  # fmt: skip
    """Return the squared distances of all pairs from differences, in float64."""
    squares = tl.zeros((OWN, OTHER), tl.float64)
    for dim in tl.range(0, width, num_stages=1, loop_unroll_factor=1):
        own_coordinate = load_coordinate(own, batch, head, own_indices, dim).to(tl.float64)
        other_coordinate = load_coordinate(other, batch, head, other_indices, dim).to(tl.float64)
        differences = own_coordinate[:, None] - other_coordinate[None, :]
        squares += differences * differences
    return squares


@triton.jit
@no_type_check
def find_slope(squared, POWER: tl.constexpr):
    """Return minus 2 / POWER times the derivative of the kernel by the squared distance, if that is above zero."""
    if POWER == 1:
        slope = tl.math.rsqrt(squared)
    elif POWER == 2:
        slope = tl.full(squared.shape, 1.0, tl.float32)
    else:
        slope = tl.exp2(tl.log2(squared) * (POWER / 2 - 1))
    return slope


@triton.jit
@no_type_check
def find_value(squared, slope, POWER: tl.constexpr):
    """Return the value of the kernel, negative outside of the support; for the boxcar, POWER 0, only its sign."""
    return 1 - squared if POWER == 0 or POWER == 2 else 1 - squared * slope


@triton.jit
@no_type_check
def find_exact_value(squared, gap, POWER: tl.constexpr):
    """Return the value of the kernel from the squared distance and one minus it, precisely near the edge."""
    if POWER == 0 or POWER == 2:
        value = gap
    elif POWER == 1:
        value = gap / (1 + tl.sqrt(squared))
    else:
        series = -gap * (1 + gap * (0.5 + gap * (1 / 3 + gap * 0.25)))
        logarithm = tl.where(tl.abs(gap) < SERIES, series, tl.log2(tl.maximum(squared, LEAST)) / LOG2_E) * (POWER / 2)
        small = -logarithm * (1 + logarithm * (0.5 + logarithm * (1 / 6 + logarithm * (1 / 24))))
        value = tl.where(tl.abs(logarithm) < SERIES, small, 1 - tl.exp2(logarithm * LOG2_E))
    return value


@triton.jit
@no_type_check
def compare_points(
    own, other, own_points, other_points, own_norms, other_norms, batch, head, own_indices, other_indices, reach, width,
    rounding, tolerance, exact, OWN: tl.constexpr, OTHER: tl.constexpr, POWER: tl.constexpr, SLOPES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return for each pair the kernel's value, negative outside, its slope, and the variance of its rounding error.

    The last result tells whether they are from differences: if `exact`, or where rounding could matter. With `SLOPES`
    these must be precise, too.
    """
    factor = 1 / (reach * reach)
    norms = own_norms[:, None] + other_norms[None, :]
    products = tl.dot(own_points, tl.trans(other_points), input_precision=PRECISION)
    squared = (norms - 2 * products) * factor
    error = norms * (rounding * factor)
    variance = tl.zeros((OWN, OTHER), tl.float32)
    if POWER == 0:
        slope = variance
        value = find_value(squared, slope, POWER)
        certain = tl.abs(value) > error
    else:
        squared = tl.maximum(squared, LEAST)
        slope = find_slope(squared, POWER)
        value = find_value(squared, slope, POWER)
        deviation = error * (POWER / 2) * (1.0 if POWER > 2 else slope)
        certain = deviation <= tolerance
        if SLOPES:
            certain &= (tl.abs(1 - squared) > error) & (error <= 4 * tolerance * squared)
        certain |= squared > 1 + error
        variance = tl.where(value > 0, deviation * deviation, 0.0)
    from_differences = exact | (tl.min(tl.min(certain.to(tl.int32), 1), 0) == 0)
    if from_differences:
        squares = square_differences(own, other, batch, head, own_indices, other_indices, width, OWN, OTHER)
        gap = (reach.to(tl.float64) * reach.to(tl.float64) - squares).to(tl.float32) * factor
        squared = squares.to(tl.float32) * factor
        inside = (own_indices < own.length)[:, None] & (other_indices < other.length)[None, :]
        value = tl.where(inside, find_exact_value(squared, gap, POWER), -1.0)
        if POWER != 0:
            slope = tl.where(squares > 0, find_slope(tl.maximum(squared, LEAST), POWER), 0.0)
            variance = tl.zeros((OWN, OTHER), tl.float32)
    return value, slope, variance, from_differences


@triton.jit
@no_type_check
def load_bias_factors(bias, batch, head, rows, cols, n, m):
    """Return what a bias multiplies the kernel by."""
    return tl.exp2(load_pairs(bias, batch, head, rows, cols, n, m).to(tl.float32) * LOG2_E)


@triton.jit
@no_type_check
def multiply(left, right, PRECISION: tl.constexpr):
    """Return the product of a float32 matrix and one that was loaded, whose type the left one takes.

    That would be too narrow if it is float16: its numbers are exact in TF32, which has the range of float32.
    """
    if right.dtype == tl.bfloat16:
        product = tl.dot(left.to(tl.bfloat16), right)
    else:
        product = tl.dot(left, right.to(tl.float32), input_precision=PRECISION)
    return product


@triton.jit
@no_type_check
def hide_pairs(
    kernel, rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Set the kernel to -1 for the pairs that a rule hides.

    The matrix enters as numbers: Triton 3.6 cannot move truth values of pairs to where a product takes its operands.
    """
    visible = find_visible(rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT, RIGHT, DOCUMENTS, False)
    kernel = tl.where(visible, kernel, -1.0)
    if MATRIX:
        seen = load_pairs(matrix, batch, head, rows, cols, n, m).to(tl.float32)
        seen = tl.minimum(seen, 1)  # True may be any other number than 0
        kernel = kernel * seen + (seen - 1)
    return kernel


@triton.jit
@no_type_check
def attend_to_keys(
    queries, keys, key_features, rule, bias, matrix, center, reaches, output, totals, doubts, heads, width, features,
    rounding, tolerance, blocks,
    OWN: tl.constexpr, OTHER: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr, POWER: tl.constexpr,
    CENTERED: tl.constexpr, DOUBTFUL: tl.constexpr, NORMALIZED: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr,
    MATRIX: tl.constexpr,
):  # fmt: skip
    """Store the output of a block of queries, the sum of the kernel's values, and whether differences were required.

    With `DOUBTFUL` only of those queries that are in doubt.
    """
    first, sequence = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    n, m = queries.length, keys.length
    rows, dims, value_dims = first + tl.arange(0, OWN), tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    inside = rows < n
    if DOUBTFUL:
        inside = tl.load(doubts + sequence * n + rows, mask=inside, other=0) != 0
        if tl.max(inside.to(tl.int32), 0) == 0:
            return
    query, query_norms = load_points(queries, center, batch, head, sequence, rows, dims, width, CENTERED)
    reach = load_reach(reaches, sequence)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(rule.lengths + sequence), m)
    start, sure_start, sure_stop, stop = find_columns(
        first, tl.minimum(first + OWN, n) - 1, end, rule.left, rule.right, OTHER, LEFT, RIGHT, DOCUMENTS or MATRIX
    )
    total = tl.zeros((OWN,), tl.float32)
    mixed = tl.zeros((OWN, FEATURES), tl.float32)
    exact, attempts = 0, 1
    while attempts > 0:
        total = tl.zeros((OWN,), tl.float32)
        mixed = tl.zeros((OWN, FEATURES), tl.float32)
        variance = tl.zeros((OWN,), tl.float32)
        for col in range(start, stop, OTHER):
            cols = col + tl.arange(0, OTHER)
            points, norms = load_points(keys, center, batch, head, sequence, cols, dims, width, CENTERED)
            values = load_tile(key_features, batch, head, cols, value_dims, m, features)
            kernel, _, variances, _ = compare_points(
                queries, keys, query, points, query_norms, norms, batch, head, rows, cols, reach, width, rounding,
                tolerance, exact != 0, OWN, OTHER, POWER, False, PRECISION,
            )  # fmt: skip
            if (col < sure_start) | (col + OTHER > sure_stop):
                kernel = hide_pairs(
                    kernel, rule, matrix, batch, head, sequence, rows[:, None], cols[None, :], end, n, m, LEFT, RIGHT,
                    DOCUMENTS, MATRIX,
                )  # fmt: skip
            weights = tl.where(kernel >= 0, 1.0, 0.0) if POWER == 0 else tl.maximum(kernel, 0.0)
            if BIAS:
                factors = load_bias_factors(bias, batch, head, rows[:, None], cols[None, :], n, m)
                weights *= factors
                variances *= factors * factors
            total += tl.sum(weights, 1)
            if POWER != 0:
                variance += tl.sum(variances, 1)
            mixed += multiply(weights, values, PRECISION)
        limit = tolerance * total
        doubtful = tl.max((variance > limit * limit).to(tl.int32), 0)
        attempts = doubtful * (1 - exact)
        exact = tl.maximum(exact, doubtful)
    tl.store(doubts + sequence * n + rows, tl.full((OWN,), 1, tl.int32) * (1 + exact), mask=inside)
    if NORMALIZED:
        mixed = mixed * (1 / tl.where(total > 0, total, 1.0))[:, None]
        tl.store(totals + sequence * n + rows, tl.where(total > 0, total, float("inf")), mask=inside)
    places = output + (sequence * n + rows)[:, None] * features + value_dims[None, :]
    tl.store(places, mixed.to(output.dtype.element_ty), mask=inside[:, None] & (value_dims < features)[None, :])


@triton.jit
@no_type_check
def add_differences(sums, own, other, factors, batch, head, own_indices, other_indices, dims, width):
    """Add to a sum for each own point its differences to all others, times a factor of each pair."""
    for dim in tl.range(0, width, num_stages=1, loop_unroll_factor=1):
        own_coordinate = load_coordinate(own, batch, head, own_indices, dim).to(tl.float32)
        other_coordinate = load_coordinate(other, batch, head, other_indices, dim).to(tl.float32)
        differences = own_coordinate[:, None] - other_coordinate[None, :]
        sums += tl.where(dims[None, :] == dim, tl.sum(factors * differences, 1)[:, None], 0.0)
    return sums


@triton.jit
@no_type_check
def differentiate(
    own, own_features, other, other_features, rule, bias, matrix, center, reaches, totals, deltas, doubts, doubtful,
    of_points, of_features, of_reach, heads, width, features, rounding, tolerance, blocks,
    OF_KEYS: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr,
    POWER: tl.constexpr, CENTERED: tl.constexpr, DOUBTFUL: tl.constexpr, POINTS: tl.constexpr, VALUES: tl.constexpr,
    REACH: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Store gradients of a block of own points: queries, with the width's, or with `OF_KEYS` keys and their values.

    The features of queries are the gradients of their output, those of keys the values. `POINTS` and `VALUES` tell
    which gradients are needed. With `DOUBTFUL`, queries that are not in doubt are left out: their gradients are there
    already, and those of keys are what those of other queries are added to. `doubtful` tells which sequences have any.
    """
    first, sequence = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    n, m = (other.length, own.length) if OF_KEYS else (own.length, other.length)
    indices, dims, feature_dims = first + tl.arange(0, OWN), tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    inside = indices < own.length
    if DOUBTFUL:
        if tl.load(doubtful + sequence) == 0:
            return
        if not OF_KEYS:
            inside = tl.load(doubts + sequence * n + indices, mask=inside, other=0) != 0
            if tl.max(inside.to(tl.int32), 0) == 0:
                return
    points, norms = load_points(own, center, batch, head, sequence, indices, dims, width, CENTERED)
    features_of_own = load_tile(own_features, batch, head, indices, feature_dims, own.length, features)
    reach = load_reach(reaches, sequence)
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(rule.lengths + sequence), m)
    last = tl.minimum(first + OWN, own.length) - 1
    if OF_KEYS:
        start, sure_start, sure_stop, stop = find_columns(
            first, last, n, -rule.right, -rule.left, OTHER, RIGHT, LEFT, DOCUMENTS or MATRIX
        )
        if LENGTHS:
            stop = tl.where(first < end, stop, start)
            sure_stop = tl.where(last < end, sure_stop, sure_start)
    else:
        start, sure_start, sure_stop, stop = find_columns(
            first, last, end, rule.left, rule.right, OTHER, LEFT, RIGHT, DOCUMENTS or MATRIX
        )
    point_sums = tl.zeros((OWN, WIDTH), tl.float32)
    factor_sums = tl.zeros((OWN,), tl.float32)
    feature_sums = tl.zeros((OWN, FEATURES), tl.float32)
    reach_sums = tl.zeros((OWN,), tl.float32)
    for position in range(start, stop, OTHER):
        others = position + tl.arange(0, OTHER)
        other_points, other_norms = load_points(
            other, center, batch, head, sequence, others, dims, width, CENTERED
        )  # fmt: skip
        features_of_others = load_tile(other_features, batch, head, others, feature_dims, other.length, features)
        if OF_KEYS:
            queries, rows, cols = others, others[None, :], indices[:, None]
        else:
            queries, rows, cols = indices, indices[:, None], others[None, :]
        places = sequence * n + queries
        inverse = 1 / tl.load(totals + places, mask=queries < n, other=float("inf"))
        doubt = tl.load(doubts + places, mask=queries < n, other=0)
        if DOUBTFUL:
            inverse = tl.where(doubt != 0, inverse, 0.0)
        exact = tl.max(doubt, 0) > 1
        kernel, slope, _, from_differences = compare_points(
            own, other, points, other_points, norms, other_norms, batch, head, indices, others, reach, width, rounding,
            tolerance, exact, OWN, OTHER, POWER, POINTS, PRECISION,
        )  # fmt: skip
        if (position < sure_start) | (position + OTHER > sure_stop):
            kernel = hide_pairs(
                kernel, rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX
            )
        rates = (inverse[None, :] if OF_KEYS else inverse[:, None]) * tl.where(kernel >= 0, 1.0, 0.0)
        if BIAS:
            rates *= load_bias_factors(bias, batch, head, rows, cols, n, m)
        if VALUES:
            weights = rates if POWER == 0 else rates * tl.maximum(kernel, 0.0)
            feature_sums += multiply(weights, features_of_others, PRECISION)
        if POINTS:
            delta = tl.load(deltas + places, mask=queries < n, other=0.0)
            products = tl.dot(features_of_own, tl.trans(features_of_others), input_precision=PRECISION)
            of_kernel = rates * (products - (delta[None, :] if OF_KEYS else delta[:, None]))
            factors = of_kernel * slope
            if REACH:
                reach_sums += tl.sum(of_kernel * tl.where(kernel >= 0, 1 - kernel, 0.0), 1)
            if from_differences:
                point_sums = add_differences(point_sums, own, other, factors, batch, head, indices, others, dims, width)
                factors = tl.zeros((OWN, OTHER), tl.float32)
            if other_points.dtype == tl.bfloat16:
                factors = factors.to(tl.bfloat16).to(tl.float32)  # as in the product, so that both sums fit
            factor_sums += tl.sum(factors, 1)
            point_sums -= multiply(factors, other_points, PRECISION)
    places = (sequence * own.length + indices)[:, None]
    if POINTS:
        point_sums += points.to(tl.float32) * factor_sums[:, None]
        gradient = point_sums * (-POWER / (reach * reach))
        pointers, stored = of_points + places * width + dims[None, :], inside[:, None] & (dims < width)[None, :]
        if DOUBTFUL and OF_KEYS:
            gradient += tl.load(pointers, mask=stored, other=0.0).to(tl.float32)
        tl.store(pointers, gradient.to(of_points.dtype.element_ty), mask=stored)
        if REACH:
            tl.store(of_reach + sequence * n + indices, reach_sums * (POWER / reach), mask=inside)
    if VALUES:
        pointers = of_features + places * features + feature_dims[None, :]
        stored = inside[:, None] & (feature_dims < features)[None, :]
        if DOUBTFUL and OF_KEYS:
            feature_sums += tl.load(pointers, mask=stored, other=0.0).to(tl.float32)
        tl.store(pointers, feature_sums.to(of_features.dtype.element_ty), mask=stored)
