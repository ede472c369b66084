"""Validate the fields of an attention map."""

from __future__ import annotations

import operator
import re
from typing import Any

from regard.errors import RegardError, format_json

FORMAT = "regard.attention_map/1"

Alternatives = tuple[tuple[tuple[str, float], ...], ...]


def as_labels(name: str, value: Any) -> tuple[str, ...]:
    """Convert the labels of one side to a tuple, or raise `RegardError`."""
    labels = (None,) if isinstance(value, str) or not hasattr(value, "__iter__") else tuple(value)
    if not all(isinstance(label, str) for label in labels):
        raise RegardError(f"attention map: {name}: expected a sequence of strings, got {shorten(value)}")
    if not labels:
        raise RegardError(f"attention map: {name} must not be empty")
    return labels


def as_links(value: Any) -> frozenset[tuple[int, int]] | None:
    """Convert links to pairs of integers, or raise `RegardError`."""
    if value is None:
        return None
    try:
        return frozenset((operator.index(column), operator.index(row)) for column, row in value)
    except (TypeError, ValueError):
        raise RegardError(
            f"attention map: links: expected pairs of integers (column, row), got {shorten(value)}"
        ) from None


def check_links(links: frozenset[tuple[int, int]], columns: int, rows: int) -> None:
    """Raise `RegardError` for a link outside the map."""
    for column, row in sorted(links):
        if not (0 <= column < columns and 0 <= row < rows):
            raise RegardError(
                f"attention map: link (column {column}, row {row}) is out of range; "
                f"columns are 0 to {columns - 1}, rows 0 to {rows - 1}"
            )


def as_alternatives(value: Any, rows: int) -> Alternatives | None:
    """Convert the alternatives of every row to (text, probability) pairs, or raise `RegardError`."""
    if value is None:
        return None
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != rows:
        raise RegardError(
            f"attention map: alternatives: expected one sequence for each of {rows} rows, got {shorten(value)}"
        )
    return tuple(as_row_alternatives(row, row_alternatives) for row, row_alternatives in enumerate(value))


def as_row_alternatives(row: int, value: Any) -> tuple[tuple[str, float], ...]:
    """Convert the alternatives of one row to (text, probability) pairs, or raise `RegardError`."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise RegardError(f"attention map: alternatives of row {row}: expected a sequence, got {shorten(value)}")
    return tuple(as_alternative(row, alternative) for alternative in value)


def as_alternative(row: int, value: Any) -> tuple[str, float]:
    """Convert one alternative to (text, probability), or raise `RegardError`."""
    try:
        text, probability = value
        if isinstance(text, str) and 0 <= probability <= 1:
            return text, float(probability)
    except (TypeError, ValueError):
        pass
    raise RegardError(
        f"attention map: alternatives of row {row}: expected a string and a probability between 0 and 1, "
        f"got {shorten(value)}"
    )


def as_generated(value: Any, rows: int) -> tuple[float, ...] | None:
    """Convert the probability of each row to generate its token to floats, or raise `RegardError`."""
    if value is None:
        return None
    try:
        probabilities = tuple(map(float, value))
        if len(probabilities) == rows and all(0 <= probability <= 1 for probability in probabilities):
            return probabilities
    except (TypeError, ValueError):
        pass
    raise RegardError(
        f"attention map: generated: expected a probability between 0 and 1 for each of {rows} rows, "
        f"got {shorten(value)}"
    )


def check_format(format_name: object) -> None:
    """Raise `RegardError` unless this version of regard can read the format."""
    if format_name == FORMAT:
        return
    name, version = FORMAT.split("/")
    match = re.fullmatch(rf"{re.escape(name)}/([0-9]{{1,9}})", format_name) if isinstance(format_name, str) else None
    if match and int(match[1]) > int(version):
        raise RegardError(f'format "{format_name}" requires a newer regard; this one reads "{FORMAT}"')
    raise RegardError(f'not an attention map: expected format "{FORMAT}", got {format_json(format_name)}')


def shorten(value: object, max_length: int = 200) -> str:
    """Return a value for a message, truncated."""
    text = repr(value)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"
