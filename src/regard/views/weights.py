"""Weights of an attention map: a dense array, or the largest weights of each row.

A dense array has the shape (layers, heads, rows, columns), too large to store or draw for a
long text, where nearly all weights are close to zero. `TopWeights` holds the output of
`Weights.top` and `Weights.received`, whose size is linear in the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int64

from regard.errors import RegardError

EXCESS = 0.01  # rounding error allowed above 1, for sums of bfloat16 weights
LARGEST_MATRIX = 4096 * 4096  # cells of the largest matrix that top weights are expanded to

FIELDS = ("values", "indices", "received")


@dataclass(frozen=True, eq=False)
class TopWeights:
    """The largest weights of every row, their columns, and the total weight of every column."""

    values: Float[np.ndarray, "..."]  # (layers, heads, rows, kept), stored as float32
    indices: Int[np.ndarray, "..."]  # column of each weight; -1 with value 0 where a row has fewer
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
        """Shape of the dense weights: (layers, heads, rows, columns)."""
        layers, heads, rows, _ = self.values.shape
        return layers, heads, rows, self.received.shape[-1]

    @property
    def top_k(self) -> int:
        """Number of weights kept per row."""
        return self.values.shape[-1]

    def to_matrix(self, layers: slice, heads: slice) -> Float32[np.ndarray, "rows columns"]:
        """Return the mean over layers and heads as a dense matrix, with 0 for weights that were not kept."""
        rows, columns = self.shape[2:]
        if rows * columns > LARGEST_MATRIX:
            raise RegardError(
                f"attention map: {rows} rows and {columns} columns are too many for a matrix; use the HTML page"
            )
        values, indices = self.values[layers, heads], self.indices[layers, heads]
        _, _, row, _ = np.nonzero(indices >= 0)
        cell = row * columns + indices[indices >= 0]
        total = np.bincount(cell, values[indices >= 0], minlength=rows * columns)
        return (total / (values.shape[0] * values.shape[1])).reshape(rows, columns).astype(np.float32)


MapWeights = Float[np.ndarray, "..."] | TopWeights


def as_map_weights(value: Any) -> MapWeights:
    """Convert an array, top weights, or the record of either to read-only map weights."""
    if isinstance(value, TopWeights):
        return value
    if isinstance(value, Mapping):
        if sorted(value) != sorted(FIELDS):
            raise RegardError(f"attention map: weights: expected {', '.join(FIELDS)}, got {', '.join(value)}")
        return TopWeights(as_weights(value["values"]), as_indices(value["indices"]), as_weights(value["received"]))
    array = as_weights(value)
    array.flags.writeable = False
    return array


def to_weights_record(weights: MapWeights) -> Any:
    """Convert the weights to JSON-serializable data."""
    if not isinstance(weights, TopWeights):
        return to_nested_lists(weights)
    values, received = to_nested_lists(weights.values), to_nested_lists(weights.received)
    return {"values": values, "indices": weights.indices.tolist(), "received": received}


def is_same_weights(one: MapWeights, other: MapWeights) -> bool:
    """Return whether two maps have the same weights in the same form."""
    if isinstance(one, TopWeights) and isinstance(other, TopWeights):
        return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)
    if isinstance(one, TopWeights) or isinstance(other, TopWeights):
        return False
    return np.array_equal(one, other)


def mean_matrix(weights: MapWeights, layers: slice, heads: slice) -> Float32[np.ndarray, "rows columns"]:
    """Return the mean over layers and heads as a dense matrix."""
    if isinstance(weights, TopWeights):
        return weights.to_matrix(layers, heads)
    return weights[layers, heads].mean((0, 1), dtype=np.float64).astype(np.float32)


def mean_received(weights: MapWeights, layers: slice, heads: slice) -> Float32[np.ndarray, " columns"]:
    """Return the total weight of every column, averaged over layers and heads."""
    if isinstance(weights, TopWeights):
        return weights.received[layers, heads].mean((0, 1), dtype=np.float64).astype(np.float32)
    return mean_matrix(weights, layers, heads).sum(0, dtype=np.float64).astype(np.float32)


def keep_largest(weights: MapWeights, count: int) -> TopWeights:
    """Return the `count` largest weights of every row, in descending order."""
    if isinstance(weights, TopWeights):
        order = np.argsort(-weights.values, axis=-1, kind="stable")[..., :count]
        values, indices = (np.take_along_axis(array, order, -1) for array in (weights.values, weights.indices))
        return TopWeights(values, indices, weights.received)
    layers, heads, rows, columns = weights.shape
    count = min(count, columns)
    values = np.zeros((layers, heads, rows, count), np.float32)
    indices = np.zeros((layers, heads, rows, count), np.int64)
    for layer, head in np.ndindex(layers, heads):  # one at a time, since sorting needs more memory than the weights
        matrix = weights[layer, head]
        top_columns = np.argpartition(-matrix, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(matrix, top_columns, 1), axis=1, kind="stable")
        indices[layer, head] = np.take_along_axis(top_columns, order, 1)
        values[layer, head] = np.take_along_axis(matrix, indices[layer, head], 1)
    return TopWeights(values, np.where(values > 0, indices, -1), weights.sum(2, dtype=np.float64).astype(np.float32))


def to_nested_lists(array: Float32[np.ndarray, "..."]) -> Any:
    """Convert to nested lists with nine digits, which represent every float32 exactly."""
    return np.reshape([float(f"{value:.9g}") for value in array.ravel().tolist()], array.shape).tolist()


def as_weights(value: Any) -> Float32[np.ndarray, "..."]:
    """Copy the weights to a float32 array, or raise `RegardError`."""
    array = to_array("weights", value, "fiu", "numbers")
    with np.errstate(over="ignore"):  # overflow becomes infinity, which `check_weight_range` rejects
        return array.astype(np.float32)


def as_indices(value: Any) -> Int64[np.ndarray, "..."]:
    """Copy the indices to an int64 array, or raise `RegardError`."""
    return to_array("indices", value, "iu", "integers").astype(np.int64)


def to_array(name: str, value: Any, kinds: str, expected: str) -> np.ndarray:
    """Convert a value to an array whose dtype kind is one of `kinds`, or raise `RegardError`."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise RegardError(f"attention map: {name} cannot be converted to an array: {error}") from None
    if array.dtype.kind not in kinds:
        raise RegardError(f"attention map: {name}: expected {expected}, got {array.dtype}")
    return array


def check_weights(weights: MapWeights, rows: int, columns: int) -> None:
    """Raise `RegardError` unless there is a weight between 0 and 1 for every row and column."""
    if len(weights.shape) != 4 or weights.shape[2:] != (rows, columns) or 0 in weights.shape:
        raise RegardError(
            f"attention map: weights: expected shape (layers, heads, {rows}, {columns}), got {weights.shape}"
        )
    if not isinstance(weights, TopWeights):
        check_weight_range(weights, "layer, head, row, column")


def check_top(
    values: Float32[np.ndarray, "..."], indices: Int64[np.ndarray, "..."], received: Float32[np.ndarray, "..."]
) -> None:
    """Raise `RegardError` unless the shapes match and the indices of each row are distinct columns."""
    if (
        values.ndim != 4
        or values.shape != indices.shape
        or received.ndim != 3
        or received.shape[:2] != values.shape[:2]
    ):
        raise RegardError(
            "attention map: values and indices must have shape (layers, heads, rows, kept) and received "
            f"(layers, heads, columns), got {values.shape}, {indices.shape} and {received.shape}"
        )
    check_weight_range(values, "layer, head, row, index")
    columns = received.shape[-1]
    check_cells((indices >= -1) & (indices < columns), indices, f"must be -1 or from 0 to {columns - 1}")
    check_cells((indices >= 0) | (values == 0), indices, "must be a column where the weight is above 0")
    order = np.sort(indices, axis=-1)
    duplicated = (order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)
    check_cells(~duplicated, order[..., 1:], "must be unique in its row")
    if not (np.isfinite(received) & (received >= 0)).all():
        raise RegardError("attention map: received must hold finite numbers of at least 0")


def check_cells(valid: Bool[np.ndarray, "..."], indices: Int[np.ndarray, "..."], rule: str) -> None:
    """Raise `RegardError` for the first invalid index."""
    wrong = np.argwhere(~valid)
    if len(wrong):
        position = tuple(wrong[0].tolist())
        raise RegardError(f"attention map: index at layer, head, row {position[:3]} {rule}, got {indices[position]}")


def check_weight_range(weights: Float32[np.ndarray, "..."], axes: str) -> None:
    """Raise `RegardError` for the first weight that is not between 0 and 1."""
    wrong = np.argwhere(~((weights >= 0) & (weights <= 1 + EXCESS)))  # catches NaN as well
    if len(wrong):
        position = tuple(wrong[0].tolist())
        raise RegardError(
            f"attention map: weight at {axes} {position} must be between 0 and 1, got {weights[position]:g}"
        )
