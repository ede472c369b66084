"""The fields of an attention map's record, checked: what is wrong with one is said in a line."""

from __future__ import annotations

import json
import operator
import re
from typing import Any

from regard.errors import RegardError

FORMAT = "regard.attention_map/1"

Alternatives = tuple[tuple[tuple[str, float], ...], ...]


def as_labels(name: str, found: Any) -> tuple[str, ...]:
    """The words of one side, as a tuple, or a `RegardError`."""
    labels = (None,) if isinstance(found, str) or not hasattr(found, "__iter__") else tuple(found)
    if not all(isinstance(label, str) for label in labels):
        raise RegardError(f"attention map: {name} are {found!r}; give a sequence of texts")
    if not labels:
        raise RegardError(f"attention map: there are no {name}; give at least one")
    return labels


def as_links(found: Any) -> frozenset[tuple[int, int]] | None:
    """The links as pairs of whole numbers, or a `RegardError`."""
    if found is None:
        return None
    try:
        return frozenset((operator.index(column), operator.index(row)) for column, row in found)
    except (TypeError, ValueError):
        raise RegardError(f"attention map: links are {found!r}; give pairs of whole numbers, (column, row)") from None


def check_links(links: frozenset[tuple[int, int]], columns: int, rows: int) -> None:
    """Raise a `RegardError` unless every link lies in the map."""
    for column, row in sorted(links):
        if not (0 <= column < columns and 0 <= row < rows):
            raise RegardError(
                f"attention map: the link (column {column}, row {row}) lies outside; "
                f"columns go from 0 to {columns - 1}, rows from 0 to {rows - 1}"
            )


def as_alternatives(found: Any, rows: int) -> Alternatives | None:
    """For every row pairs of a text and its probability, or a `RegardError`."""
    if found is None:
        return None
    if isinstance(found, str) or not hasattr(found, "__len__") or len(found) != rows:
        raise RegardError(f"attention map: alternatives are {found!r}; give a sequence for each of {rows} rows")
    return tuple(tuple(as_alternative(row, each) for each in several) for row, several in enumerate(found))


def as_alternative(row: int, found: Any) -> tuple[str, float]:
    """A text and its probability, or a `RegardError`."""
    try:
        text, probability = found
        if isinstance(text, str) and 0 <= probability <= 1:
            return text, float(probability)
    except (TypeError, ValueError):
        pass
    raise RegardError(
        f"attention map: an alternative of row {row} is {found!r}; give a text and a probability between 0 and 1"
    )


def check_format(found: object) -> None:
    """Raise a `RegardError` unless this version of regard reads the format."""
    if found == FORMAT:
        return
    name, version = FORMAT.split("/")
    match = re.fullmatch(rf"{re.escape(name)}/([0-9]+)", found) if isinstance(found, str) else None
    if match and int(match[1]) > int(version):
        raise RegardError(f'has format "{found}", of a newer regard; this one reads "{FORMAT}"')
    raise RegardError(f'has format {json.dumps(found)}; an attention map says "{FORMAT}"')
