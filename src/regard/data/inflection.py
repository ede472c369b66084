"""Recognize a table of lemma, form and features by its cells or its header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from regard.data.formats.columns import JOIN, ORDERS_BY_FEATURES
from regard.text.column_units import (
    MAX_SHARED,
    compute_shared_letters,
    find_separator,
    has_spaced_tokens,
    has_tags,
    is_short,
)

HEADERS = {
    "lemma": ("lemma",),
    "form": ("form", "inflected form", "inflected", "inflection"),
    "features": ("features", "feats", "tags", "msd", "morphology"),
}
"""Names of the columns in a header, lowercased."""

MIN_WHOLE = 0.9
"""Share of rows with three columns from which a table has three."""


class Detection(NamedTuple):
    """The columns of source and target, and the names of columns that have none in a header, by number."""

    columns: tuple[str, str]
    labels: dict[str, str]


def detect_inflection(rows: Sequence[Sequence[str]]) -> Detection | None:
    """Detect lemma, form and features in the first rows of a table with three columns.

    The features are the only column of whole tokens, such as N;DAT;PL or PST; the other two must be short texts. If
    spaces separate the features, as phones, these texts must also be alike, as lemma and form are. A few rows may be
    damaged, which reading them reports.
    """
    whole_rows = [row for row in rows if len(row) == 3]
    if not whole_rows or len(whole_rows) < MIN_WHOLE * len(rows):
        return None
    rows = whole_rows
    if (named := find_header(rows[0])) is not None:
        return named
    table = [[row[index].strip() for row in rows] for index in range(3)]
    candidates = [
        index
        for index, cells in enumerate(table)
        if find_separator(cells) is not None or has_tags(cells, join_others(table, index))
    ] or [index for index in range(3) if is_spaced_features(table, index)]
    if len(candidates) != 1:
        return None
    if not all(map(is_short, list_others(table, candidates[0]))):
        return None
    found = ORDERS_BY_FEATURES[candidates[0]]
    return Detection(found.columns, found.labels)


def is_spaced_features(table: Sequence[Sequence[str]], index: int) -> bool:
    """Return whether a column is features separated by spaces, beside two columns that share most letters."""
    first, second = list_others(table, index)
    return (
        has_spaced_tokens(table[index], join_others(table, index))
        and compute_shared_letters(first, second) >= MAX_SHARED
    )


def list_others(table: Sequence[Sequence[str]], index: int) -> list[Sequence[str]]:
    """Return all columns but one."""
    return [cells for other, cells in enumerate(table) if other != index]


def join_others(table: Sequence[Sequence[str]], index: int) -> list[str]:
    """Return the cells of all columns but one, joined row by row."""
    return [" ".join(cells) for cells in zip(*list_others(table, index), strict=True)]


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
