"""Tables of text: tabs between the columns, commas (CSV), or one JSON object a line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from regard.data.formats.lines import Found, Path, numbered_lines, quoted, shown
from regard.errors import RegardError

Columns = tuple[str | int, str | int]
"""Which column is the source and which the target: by name, or by number, counted from 1."""

NAMES = ("source", "target")

Rows = Iterator[tuple[int, list[str]]]
"""Every row of a table, with the number of its line."""

Find = Callable[[str, Sequence[str], bool], tuple[dict[str, int], bool]]
"""Where the first row is, its cells, and if tabs part them -> the place of each role, and whether it is a header."""


def read_tsv(path: Path, columns: Columns | None) -> Iterator[Found]:
    """Columns with a tab between; a first line that names source and target is a header."""
    rows = ((number, text.split("\t")) for number, text in numbered_lines(path))
    return from_rows(shown(path), rows, columns, tabs=True)


def read_csv(path: Path, columns: Columns | None) -> Iterator[Found]:
    """Columns with a comma between, in double quotes where needed, as RFC 4180 has them; a header as in TSV."""
    return from_rows(shown(path), csv_rows(path), columns, tabs=False)


def csv_rows(path: Path) -> Rows:
    """Every row of a CSV file with the number of its first line: a quoted text may go over several."""
    reader = csv.reader((f"{text}\n" for _, text in numbered_lines(path)), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise RegardError(
                f'{shown(path)}, line {number}: is no CSV ({error}); a text with a comma or a quote stands in "", '
                "and a quote in it is doubled"
            ) from None


def from_rows(name: str, rows: Rows, columns: Columns | None, *, tabs: bool) -> Iterator[Found]:
    """Source and target of each row."""
    hint = "" if columns else "; if there are columns to leave out, choose: --data.columns 1,2"
    for number, texts in by_role(name, rows, partial(find_columns, columns), tabs=tabs, hint=hint):
        yield Found(number, texts.get("source", ""), texts.get("target", ""))


def by_role(name: str, rows: Rows, find: Find, *, tabs: bool, hint: str = "") -> Iterator[tuple[int, dict[str, str]]]:
    """What stands in the columns of each row, nothing in a blank one; all must have as many columns as the first."""
    places: dict[str, int] | None = None
    first = width = 0
    for number, cells in rows:
        if len(cells) < 2 and not "".join(cells).strip():
            yield number, {}
            continue
        if places is None:
            places, header = find(f"{name}, line {number}", cells, tabs)
            first, width = number, len(cells)
            if header:
                continue
        if len(cells) != width:
            found = counted(len(cells), tabs=tabs)
            raise RegardError(f"{name}, line {number}: found {found}; line {first} has {width}{hint}")
        yield number, {role: cells[place] for role, place in places.items()}


def find_columns(columns: Columns | None, where: str, cells: Sequence[str], tabs: bool) -> tuple[dict[str, int], bool]:
    """Where source and target stand, counted from 0, and whether this first row is a header."""
    names = [cell.strip() for cell in cells]
    lowered = [name.lower() for name in names]
    header = all(name in lowered for name in NAMES)
    if columns is None and header:
        return {name: lowered.index(name) for name in NAMES}, True
    if columns is None:
        if len(cells) == 1 and not tabs and ";" in cells[0]:
            raise RegardError(f"{where}: found semicolons between the columns; save the file with commas, or with tabs")
        if len(cells) != 2:
            raise RegardError(
                f"{where}: found {counted(len(cells), tabs=tabs)}; source and target make 2 "
                "(of several, choose two by number or name: --data.columns 1,2)"
            )
        columns = 1, 2
    places = {name: find_column(where, names, column) for name, column in zip(NAMES, columns, strict=True)}
    return places, header or any(as_number(column) is None for column in columns)


def find_column(where: str, names: Sequence[str], column: str | int) -> int:
    """The place of one column, counted from 0."""
    number = as_number(column)
    if number is None:
        if column not in names:
            raise RegardError(f'{where}: names no column "{column}"; it has {quoted(", ".join(names))}')
        return names.index(str(column))
    if number < 1:
        raise RegardError(f"columns: found {number}; the first column is 1")
    if number > len(names):
        raise RegardError(f"{where}: found {len(names)} columns; column {number} is wanted")
    return number - 1


def as_number(column: str | int) -> int | None:
    """The number of a column, unless it was chosen by name."""
    if isinstance(column, int):
        return column
    return int(column) if column.isascii() and column.isdigit() else None


def counted(columns: int, *, tabs: bool) -> str:
    """How many columns a row has, in words."""
    words = f"{columns} column{'' if columns == 1 else 's'}"
    return f"{words} ({columns - 1} tab{'' if columns == 2 else 's'})" if tabs else words


def read_jsonl(path: Path, columns: Columns | None) -> Iterator[Found]:
    """One JSON object a line; a dot in a chosen key goes inside: translation.de."""
    keys = columns or NAMES
    for key in keys:
        if isinstance(key, int):
            raise RegardError(f"{shown(path)}: column {key} was chosen; JSON lines have names: --data.columns de,en")
    for number, text in numbered_lines(path):
        if not text.strip():
            yield Found(number, "", "")
            continue
        where = f"{shown(path)}, line {number}"
        record = parsed(where, text)
        yield Found(number, value(where, record, str(keys[0])), value(where, record, str(keys[1])))


def parsed(where: str, text: str) -> Mapping[str, object]:
    """The JSON object of a line; a number is its text, as it stands there."""
    try:
        record = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{where}: is no JSON ({error}); one object a line is expected") from None
    if not isinstance(record, dict):
        raise RegardError(f'{where}: found {quoted(text)}; an object is expected, {{"source": "…", "target": "…"}}')
    return record


def value(where: str, record: Mapping[str, object], key: str) -> str:
    """The text under a key; null is an empty text."""
    outer, _, inner = key.partition(".")
    nested = record.get(outer)
    if key in record:
        found = record[key]
    elif isinstance(nested, dict) and inner in nested:
        found = nested[inner]
    else:
        raise RegardError(f'{where}: has no "{key}"; it has {quoted(", ".join(keys_of(record)))} (--data.columns a,b)')
    if found is None:
        return ""
    if not isinstance(found, str):
        raise RegardError(f'{where}: "{key}" is {quoted(json.dumps(found))}; a text is expected')
    if any("\ud800" <= letter <= "\udfff" for letter in found):
        raise RegardError(f'{where}: "{key}" has half a surrogate pair, \\ud800 to \\udfff; both halves make a letter')
    return found


def keys_of(record: Mapping[str, object]) -> Iterator[str]:
    """Every key that can be chosen, those one level down with a dot."""
    for key, found in record.items():
        if isinstance(found, dict):
            yield from (f"{key}.{inner}" for inner in found)
        else:
            yield key
