"""The Triton programs for boxcar and Epanechnikov kernels of points in half precision: products of matrices only.

Squared distances are |q|² + |k|² - 2q·k in float32, whose rounding error has a bound for each query. A query for which
that is too much is left to the programs of `distance_programs`, which compute differences where they are required.
So no block of pairs has to wait for a decision about it, and loads and products of one run beside the arithmetic of
another.

A *doubt* is zero for a query computed here, one for another, and two if all of its distances have to be differences.
"""

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.kernels.triton.distance_programs import FAR, find_slope, load_bias_factors, load_reach, multiply
from regard.attention.kernels.triton.dot_programs import find_columns
from regard.attention.kernels.triton.rule_programs import find_places, find_visible, load_tile

ONES = tl.constexpr(16)  # the fewest columns of a product
EDGE = tl.constexpr(2.0**-12)  # the largest bound, relative to the edge, of errors of squared distances next to it


@triton.jit
@no_type_check
def sum_squares(points):
    """Return the squared norms of points."""
    numbers = points.to(tl.float32)
    return tl.sum(numbers * numbers, 1)


@triton.jit
@no_type_check
def store_norms(points, doubtful, heads, width, blocks, OWN: tl.constexpr, WIDTH: tl.constexpr):
    """Store the squared norms of a block of points, and that no query of their sequence is in doubt so far."""
    first, sequence = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    indices, dims = first + tl.arange(0, OWN), tl.arange(0, WIDTH)
    tile = load_tile(points, sequence // heads, sequence % heads, indices, dims, points.length, width)
    tl.store(points.norms + sequence * points.length + indices, sum_squares(tile), mask=indices < points.length)
    tl.store(doubtful + sequence, 0)


@triton.jit
@no_type_check
def load_others(view, batch, head, indices, dims, length, width, WHOLE: tl.constexpr):
    """Load rows of a tensor with four axes; without masks if the tile is inside of it, in both axes with `WHOLE`."""
    if WHOLE:
        tile = tl.load(find_places(view, batch, head, indices[:, None], dims[None, :]))
    else:
        tile = load_tile(view, batch, head, indices, dims, length, width)
    return tile


@triton.jit
@no_type_check
def load_numbers(numbers, start, indices, length, other, WHOLE: tl.constexpr):
    """Load one number of each point; without masks if all are inside."""
    if WHOLE:
        loaded = tl.load(numbers + start + indices)
    else:
        loaded = tl.load(numbers + start + indices, mask=indices < length, other=other)
    return loaded


@triton.jit
@no_type_check
def bound_errors(norms, reach, rounding):
    """Return a bound for each point of the errors of its squared distances up to the edge, in squared kernel widths."""
    farthest = tl.sqrt(norms) + reach
    return (norms + farthest * farthest) * rounding / (reach * reach)


@triton.jit
@no_type_check
def find_scale(reach, POWER: tl.constexpr):
    """Return a power of four for squared distances, the squared width of the kernel times it, and that ** (POWER / 2).

    It brings the width near 1, and nothing is rounded: points on the edge stay there.
    """
    exponent = reach.to(tl.int32, bitcast=True) & 0x7F800000
    inverse = (0x7F000000 - exponent).to(tl.float32, bitcast=True)
    edge = reach * reach * inverse * inverse
    if POWER == 1:
        top = reach * inverse
    elif POWER == 2:
        top = edge
    else:
        top = tl.exp2(tl.log2(edge) * (POWER / 2))
    return inverse * inverse, edge, top


@triton.jit
@no_type_check
def subtract_products(products, own_norms, other_norms, least, factor, POWER: tl.constexpr):
    """Return squared distances times a factor from products; not so near zero that slopes are only noise."""
    squared = (own_norms * factor)[:, None] + (other_norms * factor)[None, :] - (2 * factor) * products
    return squared if POWER == 2 else tl.maximum(squared, least[:, None])


@triton.jit
@no_type_check
def bound_deviation(errors, steepness, total, count, POWER: tl.constexpr):
    """Return a bound of the error of a sum of the kernel's values, for each row.

    `steepness` is the sum of the kernel's slope times its value, and `count` the number of the other points. The slope
    is that product and a rest, which is at most 1 for powers above 1. Errors from the first add up; the others, which
    are those of pairs near the edge, are of random sign.
    """
    if POWER >= 2:
        bound = total + tl.sqrt(count)
    elif POWER >= 1:
        bound = steepness + tl.sqrt(count)
    else:
        bound = 2 * steepness + 2 ** ((2 - POWER) / POWER) * tl.sqrt(count)
    return bound * (POWER / 2) * errors


@triton.jit
@no_type_check
def attend_by_products(
    queries, keys, key_features, rule, bias, matrix, reaches, output, totals, inverses, doubts, doubtful, heads, width,
    features, rounding, tolerance, blocks,
    OWN: tl.constexpr, OTHER: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr, WHOLE: tl.constexpr,
    POWER: tl.constexpr, NORMALIZED: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr,
    RIGHT: tl.constexpr, LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Store of a block of queries their squared norms, their output, and the sum of the kernel's values.

    Also store whether each is in doubt, whether any of them is, and what backward multiplies the weights of each by:
    zero if it is in doubt.
    """
    first, sequence = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    n, m = queries.length, keys.length
    rows, dims, value_dims = first + tl.arange(0, OWN), tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    query = load_tile(queries, batch, head, rows, dims, n, width)
    inside_rows, places = rows < n, sequence * n + rows
    query_norms = tl.where(inside_rows, sum_squares(query), FAR)
    tl.store(queries.norms + places, query_norms, mask=inside_rows)
    reach = load_reach(reaches, sequence)
    errors = bound_errors(query_norms, reach, rounding)
    factor, edge, top = find_scale(reach, POWER)
    least = 0.25 * errors * edge
    end = m
    if LENGTHS:
        end = tl.minimum(tl.load(rule.lengths + sequence), m)
    start, sure_start, sure_stop, stop = find_columns(
        first, tl.minimum(first + OWN, n) - 1, end, rule.left, rule.right, OTHER, LEFT, RIGHT, DOCUMENTS or MATRIX
    )
    total = tl.zeros((OWN,), tl.float32)
    steepness = tl.zeros((OWN,), tl.float32)
    count = tl.zeros((OWN,), tl.float32)
    mixed = tl.zeros((OWN, FEATURES), tl.float32)
    for phase in tl.static_range(3):
        begin = start if phase == 0 else (sure_start if phase == 1 else sure_stop)
        until = sure_start if phase == 0 else (sure_stop if phase == 1 else stop)
        if not (phase == 0 and not LEFT) and not (phase == 1 and (DOCUMENTS or MATRIX)):
            for col in range(begin, until, OTHER):
                cols = col + tl.arange(0, OTHER)
                points = load_others(keys, batch, head, cols, dims, m, width, phase == 1 and WHOLE)
                norms = load_numbers(keys.norms, sequence * m, cols, m, FAR, phase == 1)
                values = load_others(key_features, batch, head, cols, value_dims, m, features, phase == 1 and WHOLE)
                products = tl.dot(query, tl.trans(points), input_precision=PRECISION)
                if POWER == 0:
                    inside = 2 * products - norms[None, :] >= (query_norms - reach * reach)[:, None]
                    weights = tl.where(inside, 1.0, 0.0)
                else:
                    squared = subtract_products(products, query_norms, norms, least, factor, POWER)
                    slope = find_slope(squared, POWER)
                    weights = tl.maximum(top - squared * slope, 0.0)
                if phase != 1:
                    visible = find_visible(
                        rule, matrix, batch, head, sequence, rows[:, None], cols[None, :], end, n, m, LEFT, RIGHT,
                        DOCUMENTS, MATRIX,
                    )  # fmt: skip
                    weights = tl.where(visible, weights, 0.0)
                if BIAS:
                    bias_factors = load_bias_factors(bias, batch, head, rows[:, None], cols[None, :], n, m)
                    if POWER != 0:
                        count += tl.sum(tl.where(weights > 0, bias_factors * bias_factors, 0.0), 1)
                    weights *= bias_factors
                total += tl.sum(weights, 1)
                if POWER != 0 and POWER < 2:
                    steepness += tl.sum(weights * slope, 1)
                mixed += multiply(weights, values, PRECISION)
    if POWER == 0:
        certain = errors <= EDGE
    else:
        if not BIAS:
            count += tl.maximum(stop - start, 0)
        total *= 1 / top
        mixed *= 1 / top
        steepness *= edge / (top * top)
        certain = bound_deviation(errors, steepness, total, count, POWER) <= tolerance * total
        certain |= total == 0
    tl.store(doubts + places, tl.where(certain, 0, 1).to(tl.int8), mask=inside_rows)
    tl.store(doubtful + sequence, 1, mask=tl.max(tl.where(certain | (rows >= n), 0, 1), 0) == 1)
    inverse = tl.full((OWN,), 1.0, tl.float32)
    if NORMALIZED:
        inverse = tl.where(total > 0, 1 / tl.where(total > 0, total, 1.0), 0.0)
        mixed *= inverse[:, None]
        tl.store(totals + places, tl.where(total > 0, total, float("inf")), mask=inside_rows)
    tl.store(inverses + places, tl.where(certain, inverse, 0.0), mask=inside_rows)
    pointers = output + places[:, None] * features + value_dims[None, :]
    mask = inside_rows[:, None] & (value_dims < features)[None, :]
    tl.store(pointers, mixed.to(output.dtype.element_ty), mask=mask)


@triton.jit
@no_type_check
def differentiate_by_products(
    own, own_features, other, other_features, rule, bias, matrix, reaches, output, inverses, deltas, doubts, doubtful,
    of_points, of_features, of_reach, heads, width, features, rounding, tolerance, blocks,
    OF_KEYS: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr,
    WHOLE: tl.constexpr, POWER: tl.constexpr, NORMALIZED: tl.constexpr, POINTS: tl.constexpr, VALUES: tl.constexpr,
    REACH: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    LENGTHS: tl.constexpr, DOCUMENTS: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    """Store gradients of a block of own points: queries, with the width's, or with `OF_KEYS` keys and their values.

    The features of queries are the gradients of their output, those of keys the values. `POINTS` and `VALUES` tell
    which gradients are needed. The mean gradient of the weights of a query is stored for the keys. A query that is so
    near a key that the direction between them is in doubt is marked as such, for the keys, too.
    """
    first, sequence = tl.program_id(0) % blocks * OWN, (tl.program_id(0) // blocks).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    n, m = (other.length, own.length) if OF_KEYS else (own.length, other.length)
    indices, dims, feature_dims = first + tl.arange(0, OWN), tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    own_places = sequence * own.length + indices
    inside_own = indices < own.length
    points = load_tile(own, batch, head, indices, dims, own.length, width)
    norms = tl.load(own.norms + own_places, mask=inside_own, other=FAR)
    reach = load_reach(reaches, sequence)
    errors = bound_errors(norms, reach, rounding)
    factor, edge, top = find_scale(reach, POWER)
    least = 0.25 * errors * edge
    if POINTS:
        features_of_own = load_tile(own_features, batch, head, indices, feature_dims, own.length, features)
    if not OF_KEYS:  # of queries, gradients of the points are needed if any are
        own_inverse = tl.load(inverses + own_places, mask=inside_own, other=0.0)
        own_delta = tl.zeros((OWN,), tl.float32)
        if NORMALIZED:
            pointers = output + own_places[:, None] * features + feature_dims[None, :]
            means = tl.load(pointers, mask=inside_own[:, None] & (feature_dims < features)[None, :], other=0.0)
            own_delta = tl.sum(features_of_own.to(tl.float32) * means.to(tl.float32), 1)
        tl.store(deltas + own_places, own_delta, mask=inside_own)
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
            sure_start = tl.where(last < end, sure_start, start)
            sure_stop = tl.where(last < end, sure_stop, start)
    else:
        start, sure_start, sure_stop, stop = find_columns(
            first, last, end, rule.left, rule.right, OTHER, LEFT, RIGHT, DOCUMENTS or MATRIX
        )
    point_sums = tl.zeros((OWN, WIDTH), tl.float32)
    factor_sums = tl.zeros((OWN, ONES), tl.float32)
    ones = tl.full((OTHER, ONES), 1.0, points.dtype)
    feature_sums = tl.zeros((OWN, FEATURES), tl.float32)
    reach_sums = tl.zeros((OWN,), tl.float32)
    nearest = tl.zeros((OWN,), tl.float32) + edge
    for phase in tl.static_range(3):
        begin = start if phase == 0 else (sure_start if phase == 1 else sure_stop)
        until = sure_start if phase == 0 else (sure_stop if phase == 1 else stop)
        if not (phase == 0 and not (RIGHT if OF_KEYS else LEFT)) and not (phase == 1 and (DOCUMENTS or MATRIX)):
            for position in range(begin, until, OTHER):
                others = position + tl.arange(0, OTHER)
                start_of_others, length = sequence * other.length, other.length
                other_points = load_others(other, batch, head, others, dims, length, width, phase == 1 and WHOLE)
                features_of_others = load_others(
                    other_features, batch, head, others, feature_dims, length, features, phase == 1 and WHOLE
                )
                other_norms = load_numbers(other.norms, start_of_others, others, length, FAR, phase == 1)
                if OF_KEYS:
                    inverse = load_numbers(inverses, start_of_others, others, length, 0.0, phase == 1)[None, :]
                    rows, cols = others[None, :], indices[:, None]
                else:
                    rows, cols = indices[:, None], others[None, :]
                products = tl.dot(points, tl.trans(other_points), input_precision=PRECISION)
                if POWER == 0:
                    inside = 2 * products - other_norms[None, :] >= (norms - reach * reach)[:, None]
                else:
                    squared = subtract_products(products, norms, other_norms, least, factor, POWER)
                    slope = find_slope(squared, POWER)
                    inside = squared <= edge
                if phase != 1:
                    visible = find_visible(
                        rule, matrix, batch, head, sequence, rows, cols, end, n, m, LEFT, RIGHT, DOCUMENTS, MATRIX
                    )  # fmt: skip
                    inside &= visible
                if VALUES:
                    if POWER == 0:
                        weights = tl.where(inside, inverse, 0.0)
                    else:
                        weights = tl.maximum(top - squared * slope, 0.0) * inverse
                        if phase != 1:
                            weights = tl.where(visible, weights, 0.0)
                    if BIAS:
                        weights *= load_bias_factors(bias, batch, head, rows, cols, n, m)
                    feature_sums += multiply(weights, features_of_others, PRECISION)
                if POINTS:
                    of_weights = tl.dot(features_of_own, tl.trans(features_of_others), input_precision=PRECISION)
                    if OF_KEYS:
                        delta = load_numbers(deltas, start_of_others, others, length, 0.0, phase == 1)[None, :]
                        of_weights = of_weights * inverse - delta * inverse
                    else:
                        of_weights -= own_delta[:, None]
                    if BIAS:
                        of_weights *= load_bias_factors(bias, batch, head, rows, cols, n, m)
                    factors = of_weights * tl.where(inside, slope, 0.0)
                    if REACH:
                        reach_sums += tl.sum(factors * squared, 1)
                    if POWER < 2 and not OF_KEYS:
                        if phase != 1:
                            squared = tl.where(visible, squared, edge)
                        nearest = tl.minimum(nearest, tl.min(squared, 1))
                    factor_sums += multiply(factors, ones, PRECISION)  # rounded as in the next, so that both fit
                    point_sums += multiply(factors, other_points, PRECISION)
    places = own_places[:, None]
    if POINTS:
        factor_sums = tl.sum(factor_sums, 1) / ONES  # of equal numbers
        gradient = (points.to(tl.float32) * factor_sums[:, None] - point_sums) * (-POWER * factor / top)
        if not OF_KEYS:
            gradient *= own_inverse[:, None]
        mask = inside_own[:, None] & (dims < width)[None, :]
        tl.store(of_points + places * width + dims[None, :], gradient.to(of_points.dtype.element_ty), mask=mask)
        if not OF_KEYS:
            if REACH:
                tl.store(of_reach + own_places, reach_sums * own_inverse * (POWER / (reach * top)), mask=inside_own)
            if POWER < 2:
                near = inside_own & (own_inverse > 0) & (errors > 4 * tolerance * nearest / edge)
                tl.store(doubts + own_places, tl.full((OWN,), 1, tl.int8), mask=near)
                tl.store(doubtful + sequence, 1, mask=tl.max(near.to(tl.int32), 0) == 1)
                tl.store(inverses + own_places, tl.zeros((OWN,), tl.float32), mask=near)
    if VALUES:
        mask = inside_own[:, None] & (feature_dims < features)[None, :]
        if POWER != 0:
            feature_sums *= 1 / top
        pointers = of_features + places * features + feature_dims[None, :]
        tl.store(pointers, feature_sums.to(of_features.dtype.element_ty), mask=mask)
