"""The weights of an attention map: all of them, as an array, or the largest of each row.

All of them are (layers, heads, rows, columns). A long text has too many of those to keep or
to draw, and nearly all are next to nothing: `TopWeights` holds what `Weights.top` and
`Weights.received` give, which grows with the rows and not with rows times columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int64

from regard.errors import RegardError

EXCESS = 0.01  # how far a sum of bfloat16 weights may pass one
LARGEST_MATRIX = 4096 * 4096  # cells; what a matrix of top weights is filled up to

FIELDS = ("values", "indices", "received")


@dataclass(frozen=True, eq=False)
class TopWeights:
    """The largest weights of every row, where they stand, and what every column gets from all rows."""

    values: Float[np.ndarray, "..."]  # (layers, heads, rows, kept); kept as float32
    indices: Int[np.ndarray, "..."]  # the column of each; -1 where a row has no more, and the value is 0
    received: Float[np.ndarray, "..."]  # (layers, heads, columns)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", as_weights(self.values))
        object.__setattr__(self, "indices", as_indices(self.indices))
        object.__setattr__(self, "received", as_weights(self.received))
        check_top(self.values, self.indices, self.received)
        for array in (self.values, self.indices, self.received):
            array.flags.writeable = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """That of all weights: layers, heads, rows, columns."""
        layers, heads, rows, _ = self.values.shape
        return layers, heads, rows, self.received.shape[-1]

    @property
    def kept(self) -> int:
        """How many weights of a row there are."""
        return self.values.shape[-1]

    def matrix(self, layers: slice, heads: slice) -> Float32[np.ndarray, "rows columns"]:
        """The mean over layers and heads, with nothing where no weight is kept."""
        rows, columns = self.shape[2:]
        if rows * columns > LARGEST_MATRIX:
            raise RegardError(
                f"attention map: {rows} rows and {columns} columns are too many for a matrix; look at the HTML page"
            )
        values, indices = self.values[layers, heads], self.indices[layers, heads]
        _, _, row, _ = np.nonzero(indices >= 0)
        cell = row * columns + indices[indices >= 0]
        total = np.bincount(cell, values[indices >= 0], minlength=rows * columns)
        return (total / (values.shape[0] * values.shape[1])).reshape(rows, columns).astype(np.float32)


MapWeights = Float[np.ndarray, "..."] | TopWeights


def known_weights(found: Any) -> MapWeights:
    """Weights that cannot be changed from outside: an array, top weights, or the record of either."""
    if isinstance(found, TopWeights):
        return found
    if isinstance(found, Mapping):
        if sorted(found) != sorted(FIELDS):
            raise RegardError(f"attention map: weights have {', '.join(found)}; {', '.join(FIELDS)} are needed")
        return TopWeights(as_weights(found["values"]), as_indices(found["indices"]), as_weights(found["received"]))
    array = as_weights(found)
    array.flags.writeable = False
    return array


def weights_record(weights: MapWeights) -> Any:
    """The weights as plain data, ready for JSON."""
    if not isinstance(weights, TopWeights):
        return digits(weights)
    values, received = digits(weights.values), digits(weights.received)
    return {"values": values, "indices": weights.indices.tolist(), "received": received}


def same_weights(one: MapWeights, other: MapWeights) -> bool:
    """Whether two maps have the same weights, and as many."""
    if isinstance(one, TopWeights) and isinstance(other, TopWeights):
        return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)
    if isinstance(one, TopWeights) or isinstance(other, TopWeights):
        return False
    return np.array_equal(one, other)


def mean_matrix(weights: MapWeights, layers: slice, heads: slice) -> Float32[np.ndarray, "rows columns"]:
    """The mean over some layers and heads; of top weights, with nothing where none is kept."""
    if isinstance(weights, TopWeights):
        return weights.matrix(layers, heads)
    return weights[layers, heads].mean((0, 1), dtype=np.float64).astype(np.float32)


def mean_received(weights: MapWeights, layers: slice, heads: slice) -> Float32[np.ndarray, " columns"]:
    """What every column gets from all rows, as a mean over some layers and heads."""
    if isinstance(weights, TopWeights):
        return weights.received[layers, heads].mean((0, 1), dtype=np.float64).astype(np.float32)
    return mean_matrix(weights, layers, heads).sum(0, dtype=np.float64).astype(np.float32)


def largest(weights: MapWeights, count: int) -> TopWeights:
    """The `count` largest weights of every row, the greatest first."""
    if isinstance(weights, TopWeights):
        order = np.argsort(-weights.values, axis=-1, kind="stable")[..., :count]
        values, indices = (np.take_along_axis(array, order, -1) for array in (weights.values, weights.indices))
        return TopWeights(values, indices, weights.received)
    layers, heads, rows, columns = weights.shape
    count = min(count, columns)
    values = np.zeros((layers, heads, rows, count), np.float32)
    indices = np.zeros((layers, heads, rows, count), np.int64)
    for layer, head in np.ndindex(layers, heads):  # one at a time: sorting takes more memory than the weights
        here = weights[layer, head]
        kept = np.argpartition(-here, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(here, kept, 1), axis=1, kind="stable")
        indices[layer, head] = np.take_along_axis(kept, order, 1)
        values[layer, head] = np.take_along_axis(here, indices[layer, head], 1)
    return TopWeights(values, np.where(values > 0, indices, -1), weights.sum(2, dtype=np.float64).astype(np.float32))


def digits(array: Float32[np.ndarray, "..."]) -> Any:
    """The numbers as nested lists; nine digits tell every float32 from its neighbours."""
    return np.reshape([float(f"{number:.9g}") for number in array.ravel().tolist()], array.shape).tolist()


def as_weights(found: Any) -> Float32[np.ndarray, "..."]:
    """The weights as a float32 array of their own, or a `RegardError`."""
    array = as_array("weights", found, "fiu", "numbers")
    with np.errstate(over="ignore"):  # what is too large is refused later, as infinite
        return array.astype(np.float32)


def as_indices(found: Any) -> Int64[np.ndarray, "..."]:
    """The indices as an array of their own, or a `RegardError`."""
    return as_array("indices", found, "iu", "whole numbers").astype(np.int64)


def as_array(name: str, found: Any, kinds: str, needed: str) -> np.ndarray:
    """What is found as an array of one of some kinds of numbers, as numpy names them, or a `RegardError`."""
    try:
        array = np.asarray(found)
    except (TypeError, ValueError) as error:
        raise RegardError(f"attention map: {name} are no array: {error}") from None
    if array.dtype.kind not in kinds:
        raise RegardError(f"attention map: {name} are of type {array.dtype}; {needed} are needed")
    return array


def check_weights(weights: MapWeights, rows: int, columns: int) -> None:
    """Raise a `RegardError` unless there is a weight between 0 and 1 for every row and column."""
    if len(weights.shape) != 4 or weights.shape[2:] != (rows, columns) or 0 in weights.shape:
        raise RegardError(
            f"attention map: weights have shape {weights.shape}; "
            f"(layers, heads, {rows} rows, {columns} columns) are needed"
        )
    if not isinstance(weights, TopWeights):
        check_range(weights, "layer, head, row, column")


def check_top(
    values: Float32[np.ndarray, "..."], indices: Int64[np.ndarray, "..."], received: Float32[np.ndarray, "..."]
) -> None:
    """Raise a `RegardError` unless the arrays belong together and every index is a column of its own."""
    if (
        values.ndim != 4
        or values.shape != indices.shape
        or received.ndim != 3
        or received.shape[:2] != values.shape[:2]
    ):
        raise RegardError(
            f"attention map: values have shape {values.shape}, indices {indices.shape}, received {received.shape}; "
            "(layers, heads, rows, kept) twice and (layers, heads, columns) are needed"
        )
    check_range(values, "layer, head, row, place")
    columns = received.shape[-1]
    check_cells((indices >= -1) & (indices < columns), indices, f"columns go from 0 to {columns - 1}")
    check_cells((indices >= 0) | (values == 0), indices, "there only a weight of 0 may stand")
    order = np.sort(indices, axis=-1)
    twice = (order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)
    check_cells(~twice, order[..., 1:], "each column stands once in a row")
    if not (np.isfinite(received) & (received >= 0)).all():
        raise RegardError("attention map: received holds a number below 0 or none; it sums weights")


def check_cells(right: Bool[np.ndarray, "..."], indices: Int[np.ndarray, "..."], rule: str) -> None:
    """Raise a `RegardError` for the first index that is not right."""
    wrong = np.argwhere(~right)
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise RegardError(f"attention map: an index at layer, head, row {place[:3]} is {indices[place]}; {rule}")


def check_range(weights: Float32[np.ndarray, "..."], axes: str) -> None:
    """Raise a `RegardError` for the first weight that does not lie between 0 and 1."""
    wrong = np.argwhere(~((weights >= 0) & (weights <= 1 + EXCESS)))  # a NaN is wrong as well
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise RegardError(
            f"attention map: the weight at {axes} {place} is {weights[place]:g}; weights lie between 0 and 1"
        )
