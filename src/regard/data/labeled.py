"""Read texts with one or more labels from tables."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import PurePath
from typing import Any

from regard.data.example import Links
from regard.data.formats.lines import Path, format_path, guess_format, iter_numbered_lines, quote_text
from regard.data.formats.tables import (
    find_column,
    format_cells,
    format_column_count,
    get_text,
    iter_cells_by_role,
    iter_csv_rows,
    parse_column_number,
    parse_record,
)
from regard.errors import RegardError, unknown_name

Column = str | int
"""A column, by its name in the header (or key in JSON lines) or by its number, counted from 1."""

NumberedRow = tuple[int, Mapping[str, Any]]
"""A line number and the cells of that line by role (text, label, second, dialogue); empty for a blank line."""

LABELS = ("label", "labels")  # names of the label column
ROLES = ("text", "label", "second")
ON_EMPTY = ("error", "skip")


@dataclass(frozen=True, slots=True)
class LabeledText:
    """A text and its labels, with the second text of a pair and the preceding utterances, oldest first."""

    text: str
    labels: tuple[str, ...]
    second: str | None = None
    context: tuple[str, ...] = ()
    dialogue: int | None = field(default=None, compare=False)  # index of its dialogue, if context is read
    links: Links | None = field(default=None, repr=False)  # (word, label): the words that decide each label, if known


def read_labeled(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Sequence[Column] | None = None,
    dialogue: Column | None = None,
    separator: str = "|",
    context: int = 0,
    on_empty: str = "error",
) -> Iterator[LabeledText]:
    """Yield the labeled texts of a file.

    Args:
        path: File to read; a name ending in .gz is decompressed, `-` is standard input.
        format: `tsv`, `csv` or `jsonl`. By default inferred from the file name; TSV for standard input.
        columns: Columns of the text, the labels and, for text pairs, the second text. By default the columns named
            text and label (or labels) in the header; without a header, the first of two columns is the text.
        dialogue: Column that identifies the dialogue of an utterance. By default a blank line ends a dialogue.
        separator: Separator between several labels; "" reads every cell as one label. Repeated labels count once.
        context: Number of preceding utterances of the same dialogue to attach to each example.
        on_empty: What to do with an example without text or label: `error` or `skip`.

    Yields:
        One `LabeledText` per row.

    Raises:
        RegardError: An argument is invalid, or a line cannot be read.

    Example:
        >>> examples = list(read_labeled("train.tsv", columns=("text", "label")))
    """
    chosen = format or guess_format(path, ENDINGS)
    if chosen not in READERS:
        raise unknown_name("data.format", chosen, READERS)
    if columns is not None and len(columns) not in (2, 3):
        raise RegardError(f"data.columns: expected 2 or 3 columns (text, label, second text), got {len(columns)}")
    if context < 0:
        raise RegardError(f"data.context must be at least 0, got {context}")
    if on_empty not in ON_EMPTY:
        raise unknown_name("data.on_empty", on_empty, ON_EMPTY)
    role_columns = dict(zip(ROLES, columns or (), strict=False))
    if dialogue is not None:
        role_columns["dialogue"] = dialogue
    return build_labeled_examples(
        READERS[chosen](path, role_columns), format_path(path), separator, context, skip=on_empty == "skip"
    )


def read_tsv(path: Path, columns: Mapping[str, Column]) -> Iterator[NumberedRow]:
    """Yield the rows of a TSV file."""
    rows = ((number, text.split("\t")) for number, text in iter_numbered_lines(path))
    return iter_cells_by_role(format_path(path), rows, partial(find_role_columns, columns), tabs=True)


def read_csv(path: Path, columns: Mapping[str, Column]) -> Iterator[NumberedRow]:
    """Yield the rows of a CSV file."""
    return iter_cells_by_role(format_path(path), iter_csv_rows(path), partial(find_role_columns, columns), tabs=False)


def read_jsonl(path: Path, columns: Mapping[str, Column]) -> Iterator[NumberedRow]:
    """Yield the rows of a JSON lines file; labels may be a list."""
    for column in columns.values():
        if isinstance(column, int):
            raise RegardError(
                f"{format_path(path)}: JSON lines need column names, got {column}; as in --data.columns text,label"
            )
    for number, text in iter_numbered_lines(path):
        location = f"{format_path(path)}, line {number}"
        if not text.strip():
            yield number, {}
            continue
        if not text.lstrip().startswith("{"):
            raise RegardError(f'{location}: expected an object, {{"text": "…", "label": "…"}}, got {quote_text(text)}')
        record = parse_record(location, text)
        plural = "labels" in record and "label" not in record
        keys = {"text": "text", "label": "labels" if plural else "label", **columns}
        yield number, {role: get_cell(location, record, role, str(key)) for role, key in keys.items()}


def get_cell(location: str, record: Mapping[str, object], role: str, key: str) -> str | list[str]:
    """Return the value under a key; labels may be a list of strings."""
    cell = record.get(key)
    if role == "label" and isinstance(cell, list):
        if not all(isinstance(label, str) for label in cell):
            raise RegardError(f'{location}: expected a list of strings in "{key}", got {quote_text(json.dumps(cell))}')
        return cell
    return get_text(location, record, key)


def find_role_columns(
    columns: Mapping[str, Column], location: str, cells: Sequence[str], tabs: bool
) -> tuple[dict[str, int], bool]:
    """Return the column index of each role, and whether this first row is a header."""
    names = [cell.strip() for cell in cells]
    lowered = [name.lower() for name in names]
    label = next((name for name in LABELS if name in lowered), None)
    header = "text" in lowered and label is not None
    indices = {role: find_column(location, names, column) for role, column in columns.items()}
    if "text" not in indices and header:
        indices |= {"text": lowered.index("text"), "label": lowered.index(str(label))}
    elif "text" not in indices:
        free = [index for index in range(len(cells)) if index not in indices.values()]
        if len(free) != 2:
            raise RegardError(
                f"{location}: expected 2 columns, text and label, got {format_column_count(len(cells), tabs=tabs)}: "
                f"{format_cells(cells)}; pass the numbers of text and label: --data.columns TEXT,LABEL"
            )
        indices |= {"text": free[0], "label": free[1]}
    return indices, header or any(parse_column_number(column) is None for column in columns.values())


READERS: dict[str, Callable[[Path, Mapping[str, Column]], Iterator[NumberedRow]]] = {
    "csv": read_csv,
    "jsonl": read_jsonl,
    "tsv": read_tsv,
}
"""Readers of labeled texts, by format name."""

ENDINGS = {**{f".{name}": name for name in READERS}, ".ndjson": "jsonl", ".tab": "tsv"}


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table of labeled texts; standard input is none."""
    name = PurePath(path)
    return (PurePath(name.stem) if name.suffix.lower() == ".gz" else name).suffix.lower() in ENDINGS


def read_table_texts(
    path: Path, columns: Sequence[Column] = (), *, text_pairs: bool = False
) -> Iterator[dict[str, str]]:
    """Yield the texts of a table, with or without labels, which are not read.

    Args:
        path: A TSV, CSV or JSON lines file.
        columns: Columns of the text, the labels and the second text, as for `read_labeled`.
        text_pairs: Whether to read a second text.

    Yields:
        The texts of each row: `text` and, for text pairs, `second`. A blank line gives none.
    """
    roles = ("text", "second") if text_pairs else ("text",)
    role_columns = {role: column for role, column in zip(ROLES, columns, strict=False) if role in roles}
    chosen, name = guess_format(path, ENDINGS), format_path(path)
    if chosen == "jsonl":
        for number, line in iter_numbered_lines(path):
            location = f"{name}, line {number}"
            record = parse_record(location, line) if line.strip() else {}
            yield {role: get_text(location, record, str(role_columns.get(role, role))) for role in roles if record}
        return
    tabs = chosen == "tsv"
    rows = ((number, line.split("\t")) for number, line in iter_numbered_lines(path)) if tabs else iter_csv_rows(path)
    for _, cells in iter_cells_by_role(name, rows, partial(find_text_columns, roles, role_columns), tabs=tabs):
        yield cells


def find_text_columns(
    roles: Sequence[str], columns: Mapping[str, Column], location: str, cells: Sequence[str], tabs: bool
) -> tuple[dict[str, int], bool]:
    """Return the column index of each text, and whether this first row is a header; labels may be missing."""
    lowered = [cell.strip().lower() for cell in cells]
    named = [str(column).lower() for column in columns.values() if parse_column_number(column) is None]
    if len(cells) == len(roles):
        return {role: index for index, role in enumerate(roles)}, lowered in (list(roles), named)
    if len(roles) == 1 or len(columns) == len(roles):
        indices, header = find_role_columns(columns, location, cells, tabs)
        return {role: indices[role] for role in roles}, header
    raise RegardError(f"{location}: expected two texts, got {format_column_count(len(cells), tabs=tabs)}")


def build_labeled_examples(
    rows: Iterator[NumberedRow], name: str, separator: str, context: int, *, skip: bool
) -> Iterator[LabeledText]:
    """Yield rows as examples with their context; a skipped row still serves as context."""
    before = defaultdict[str, deque[str]](lambda: deque(maxlen=context))
    number_of = defaultdict[str, int](count().__next__)  # index of each dialogue, by name
    for number, row in rows:
        location = f"{name}, line {number}"
        if not row:
            before.pop("", None)  # only unnamed dialogues use this key
            number_of.pop("", None)
            continue
        texts = {role: row[role].strip() for role in row if role != "label"}
        labels = parse_labels(location, row["label"], separator)
        empty = [role for role in row if not (labels if role == "label" else texts[role])]
        if empty and not skip:
            raise RegardError(f"{location}: the {empty[0]} is empty; pass --data.on-empty skip to skip such examples")
        dialogue = texts.get("dialogue", "")
        utterances = before[dialogue]
        if not empty:
            dialogue_number = number_of[dialogue] if context else None
            yield LabeledText(texts["text"], labels, texts.get("second"), tuple(utterances), dialogue_number)
        if texts["text"]:
            utterances.append(texts["text"])


def parse_labels(location: str, cell: str | list[str], separator: str) -> tuple[str, ...]:
    """Return the distinct labels of a cell."""
    if isinstance(cell, str):
        cell = cell.split(separator) if separator else [cell]
    labels = tuple(dict.fromkeys(map(str.strip, cell)))
    if labels == ("",):
        return ()
    if "" in labels:
        raise RegardError(f"{location}: empty label in {quote_text(separator.join(cell))}")
    return labels
