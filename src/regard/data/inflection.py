"""Recognize a table of lemma, form and features by its cells or its header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from regard.data.formats.columns import FORM_LAST, FORM_SECOND, JOIN, TableFormat
from regard.text.column_units import find_separator, has_tags, is_short

HEADERS = {
    "lemma": ("lemma",),
    "form": ("form", "inflected form", "inflected", "inflection"),
    "features": ("features", "feats", "tags", "msd", "morphology"),
}
"""Names of the columns in a header, lowercased."""

FORMATS_BY_PLACE: dict[int, TableFormat] = {1: FORM_LAST, 2: FORM_SECOND}
"""Index of the features in a row -> format; the lemma comes before the form."""


class Detection(NamedTuple):
    """The columns of source and target, and the names of columns that have none in a header, by number."""

    columns: tuple[str, str]
    labels: dict[str, str]


def detect_inflection(rows: Sequence[Sequence[str]]) -> Detection | None:
    """Detect lemma, form and features in the first rows of a table with three columns.

    The features are the only column of whole tokens, such as N;DAT;PL or PST; the other two must be short texts.
    """
    if not rows or any(len(row) != 3 for row in rows):
        return None
    if (named := find_header(rows[0])) is not None:
        return named
    table = [[row[index].strip() for row in rows] for index in range(3)]
    candidates = [
        index
        for index, cells in enumerate(table)
        if find_separator(cells) is not None or has_tags(cells, join_others(table, index))
    ]
    if len(candidates) != 1 or candidates[0] not in FORMATS_BY_PLACE:
        return None
    texts = [cells for index, cells in enumerate(table) if index != candidates[0]]
    if not all(map(is_short, texts)):
        return None
    found = FORMATS_BY_PLACE[candidates[0]]
    return Detection(found.columns, found.labels)


def join_others(table: Sequence[Sequence[str]], index: int) -> list[str]:
    """Return the cells of all columns but one, joined row by row."""
    others = [cells for other, cells in enumerate(table) if other != index]
    return [" ".join(cells) for cells in zip(*others, strict=True)]


def find_header(row: Sequence[str]) -> Detection | None:
    """Return the columns that a header names, or None."""
    lowered = [cell.strip().lower() for cell in row]
    found = {
        role: row[lowered.index(name)].strip() for role, names in HEADERS.items() for name in names if name in lowered
    }
    if len(found) < len(HEADERS):
        return None
    columns = (f"{found['lemma']}:letters{JOIN}{found['features']}:tokens", f"{found['form']}:letters")
    return Detection(columns, {})
