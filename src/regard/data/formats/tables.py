"""Read tables of text: TSV, CSV and JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from regard.data.formats.columns import Sides, join_cells, parse_sides
from regard.data.formats.lines import NumberedPair, Path, format_path, iter_numbered_lines, quote_text
from regard.errors import RegardError, format_json

Columns = tuple[str | int, str | int]
"""Columns of source and target, as in `parse_sides`: by name or by number from 1, several joined by `+`."""

NAMES = ("source", "target")

JOIN_HINT = ", or join columns on one side: --data.columns 1+3,2"

MAX_CELLS = 6
"""Number of cells that are listed."""

Rows = Iterator[tuple[int, list[str]]]
"""Rows of a table with their line numbers."""

Find = Callable[[str, Sequence[str], bool], tuple[dict[str, int], bool]]
"""Location and cells of the first row, and whether it is TSV -> column index per role, and whether it is a header."""


def read_tsv(path: Path, columns: Columns | None) -> Iterator[NumberedPair]:
    """Yield the pairs of a TSV file; a first line that names source and target is a header."""
    rows = ((number, text.split("\t")) for number, text in iter_numbered_lines(path))
    return iter_pairs(format_path(path), rows, columns, tabs=True)


def read_csv(path: Path, columns: Columns | None) -> Iterator[NumberedPair]:
    """Yield the pairs of a CSV file (RFC 4180); a header is detected as in TSV."""
    return iter_pairs(format_path(path), iter_csv_rows(path), columns, tabs=False)


def iter_csv_rows(path: Path) -> Rows:
    """Yield every row of a CSV file with the number of its first line; quoted text may span lines."""
    reader = csv.reader((f"{text}\n" for _, text in iter_numbered_lines(path)), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise RegardError(
                f"{format_path(path)}, line {number} is not valid CSV: {error}; "
                'put text with commas or quotes in "", and double the quotes inside'
            ) from None


def iter_pairs(name: str, rows: Rows, columns: Columns | None, *, tabs: bool) -> Iterator[NumberedPair]:
    """Yield source and target of each row, each one cell or several joined by tabs."""
    sides = None if columns is None else parse_sides(columns)
    hint = "" if columns else "; to ignore other columns, pass --data.columns 1,2"
    for number, texts in iter_cells_by_role(name, rows, partial(find_columns, sides), tabs=tabs, hint=hint):
        source, target = (
            join_cells([cell for role, cell in texts.items() if role.partition(" ")[0] == side]) if texts else ""
            for side in NAMES
        )
        yield NumberedPair(number, source, target)


def iter_cells_by_role(
    name: str, rows: Rows, find: Find, *, tabs: bool, hint: str = ""
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the cells of each row by role, none for a blank row; all rows must have as many columns as the first."""
    indices: dict[str, int] | None = None
    first = width = 0
    for number, cells in rows:
        if len(cells) < 2 and not "".join(cells).strip():
            yield number, {}
            continue
        if indices is None:
            indices, header = find(f"{name}, line {number}", cells, tabs)
            first, width = number, len(cells)
            if header:
                continue
        if len(cells) != width:
            columns = format_column_count(len(cells), tabs=tabs)
            advice = hint if len(cells) > width else format_missing_separator(indices, width, tabs=tabs)
            raise RegardError(
                f"{name}, line {number}: expected {width} columns, as in line {first}, got {columns}{advice}"
            )
        yield number, {role: cells[index] for role, index in indices.items()}


def find_columns(sides: Sides | None, location: str, cells: Sequence[str], tabs: bool) -> tuple[dict[str, int], bool]:
    """Return the column indices of source and target, and whether this first row is a header.

    The columns of a side have its name and their number on that side: `source 0`, `source 1`, `target 0`.
    """
    names = [cell.strip() for cell in cells]
    lowered = [name.lower() for name in names]
    header = all(name in lowered for name in NAMES)
    if sides is None and header:
        return {name: lowered.index(name) for name in NAMES}, True
    if sides is None:
        if len(cells) == 1 and not tabs and ";" in cells[0]:
            raise RegardError(f"{location}: columns are separated by semicolons; save the file with commas or tabs")
        if len(cells) == 1:
            raise RegardError(
                f"{location}: expected source and target separated by a {'tab' if tabs else 'comma'}, "
                f"got {quote_text(cells[0])}"
            )
        if len(cells) != 2:
            raise RegardError(
                f"{location}: expected 2 columns, got {format_column_count(len(cells), tabs=tabs)}; "
                "choose source and target by number or name: --data.columns 1,2"
                f"{JOIN_HINT if len(cells) > 2 else ''}"
            )
        sides = parse_sides((1, 2))
    chosen = {
        f"{name} {n}": choice.column for name, side in zip(NAMES, sides, strict=True) for n, choice in enumerate(side)
    }
    indices = {role: find_column(location, names, column) for role, column in chosen.items()}
    return indices, header or any(parse_column_number(column) is None for column in chosen.values())


def find_column(location: str, names: Sequence[str], column: str | int) -> int:
    """Return the index of a column, counted from 0."""
    number = parse_column_number(column)
    if number is None:
        if column not in names:
            hint = format_unit_hint(str(column))
            advice = "" if hint else "; names need a header; without one, choose columns by number"
            raise RegardError(
                f'{location}: unknown column "{column}"{hint}; this line has {quote_text(", ".join(names))}{advice}'
            )
        return names.index(str(column))
    if number < 1:
        raise RegardError(f"column numbers start at 1, got {number}")
    if number > len(names):
        raise RegardError(f"{location}: column {number} does not exist; the line has {len(names)} columns")
    return number - 1


def format_unit_hint(column: str) -> str:
    """Return which units exist, for an unknown column that has one after a colon."""
    from regard.text.column_units import UNITS

    _, colon, unit = column.rpartition(":")
    return f' ("{unit}" is not a unit: {", ".join(UNITS)})' if colon else ""


def parse_column_number(column: str | int) -> int | None:
    """Return the number of a column, or None if it was chosen by name."""
    if isinstance(column, int):
        return column
    return int(column) if column.isascii() and column.isdigit() else None


def format_column_count(columns: int, *, tabs: bool) -> str:
    """Return the number of columns in words."""
    words = f"{columns} column{'' if columns == 1 else 's'}"
    return f"{words} ({columns - 1} tab{'' if columns == 2 else 's'})" if tabs else words


def format_missing_separator(indices: Mapping[str, int], width: int, *, tabs: bool) -> str:
    """Return what a row with too few columns lacks; of two columns, between which."""
    roles = [role.partition(" ")[0] for role in sorted(indices, key=indices.__getitem__)]
    between = f" between {' and '.join(roles)}" if len(roles) == width == 2 else ""
    return f"; a {'tab' if tabs else 'comma'}{between} is missing"


def format_cells(cells: Sequence[str]) -> str:
    """Return the first cells of a row with their column numbers."""
    listed = ", ".join(f"{n} {quote_text(cell, 30)}" for n, cell in enumerate(cells[:MAX_CELLS], start=1))
    return listed if len(cells) <= MAX_CELLS else f"{listed} and {len(cells) - MAX_CELLS} more"


def read_jsonl(path: Path, columns: Columns | None) -> Iterator[NumberedPair]:
    """Yield the pairs of a JSON lines file; a dot in a key selects a nested value: translation.de."""
    sides = [[choice.column for choice in side] for side in parse_sides(columns or NAMES)]
    for key in chain(*sides):
        if isinstance(key, int):
            raise RegardError(
                f"{format_path(path)}: JSON lines need column names, got {key}; as in --data.columns de,en"
            )
    for number, text in iter_numbered_lines(path):
        if not text.strip():
            yield NumberedPair(number, "", "")
            continue
        location = f"{format_path(path)}, line {number}"
        record = parse_record(location, text)
        source, target = (join_cells([get_text(location, record, str(key)) for key in keys]) for keys in sides)
        yield NumberedPair(number, source, target)


def iter_keys_of_records(path: Path) -> Iterator[list[str]]:
    """Yield the keys of each object of a JSON lines file."""
    for number, text in iter_numbered_lines(path):
        if text.strip():
            yield list(parse_record(f"{format_path(path)}, line {number}", text))


def parse_record(location: str, text: str) -> Mapping[str, object]:
    """Parse the JSON object of a line; numbers become text as written."""
    try:
        record = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{location} is not valid JSON: {error}") from None
    if not isinstance(record, dict):
        raise RegardError(f'{location}: expected an object, {{"source": "…", "target": "…"}}, got {quote_text(text)}')
    return record


def get_text(location: str, record: Mapping[str, object], key: str) -> str:
    """Return the text under a key; null gives an empty text."""
    outer, _, inner = key.partition(".")
    nested = record.get(outer)
    if key in record:
        text = record[key]
    elif isinstance(nested, dict) and inner in nested:
        text = nested[inner]
    else:
        raise RegardError(
            f'{location}: missing key "{key}"; this line has the keys {quote_text(", ".join(iter_keys(record)))}; '
            "to read other keys, pass them as --data.columns"
        )
    if text is None:
        return ""
    if not isinstance(text, str):
        raise RegardError(f'{location}: expected a string in "{key}", got {format_json(text)}')
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise RegardError(f'{location}: "{key}" contains an unpaired surrogate, \\ud800 to \\udfff')
    return text


def iter_keys(record: Mapping[str, object]) -> Iterator[str]:
    """Yield every key that can be chosen; nested keys have a dot."""
    for key, nested in record.items():
        if isinstance(nested, dict):
            yield from (f"{key}.{inner}" for inner in nested)
        else:
            yield key
