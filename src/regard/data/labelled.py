"""Texts with one label or several, read from tables."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from regard.data.formats.lines import Path, format_by_name, numbered_lines, quoted, shown
from regard.data.formats.tables import as_number, by_role, counted, csv_rows, find_column, parsed, value
from regard.errors import RegardError, unknown_name

Column = str | int
"""A column by the name in the header (a key, in JSON lines), or by number, counted from 1."""

Row = tuple[int, Mapping[str, Any]]
"""The number of a line and what stands there by its role: text, label, second, dialogue; a blank line has nothing."""

LABELS = ("label", "labels")  # what the column of labels may be called
ROLES = ("text", "label", "second")
EMPTY = ("error", "skip")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and its labels; a second text where pairs are labelled, and the utterances before, the oldest first."""

    text: str
    labels: tuple[str, ...]
    second: str | None = None
    context: tuple[str, ...] = ()
    dialogue: int | None = field(default=None, compare=False)  # the number of its dialogue, where context is read


def read_labelled(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Sequence[Column] | None = None,
    dialogue: Column | None = None,
    separator: str = "|",
    context: int = 0,
    empty: str = "error",
) -> Iterator[Labelled]:
    """The labelled texts of a file, one after another.

    Args:
        path: The file; a name that ends in .gz is unzipped, `-` is standard input.
        format: tsv, csv or jsonl; what the file's name says unless told otherwise, TSV from standard input.
        columns: Where text and labels are, and third the second text if there is one. Unless told, those that a
            header calls text and label (or labels); without a header the first of two columns is the text.
        dialogue: Where it is said to which dialogue an utterance belongs. Unless told, a blank line ends a dialogue.
        separator: What stands between several labels; with none, every label is one. A label said twice counts once.
        context: How many utterances before, of the same dialogue, an example is given.
        empty: What to do with an example without text or label: "error" or "skip".
    """
    chosen = format or format_by_name(path, ENDINGS)
    if chosen not in READERS:
        raise unknown_name("data.format", chosen, READERS)
    if columns is not None and len(columns) not in (2, 3):
        raise RegardError(
            f"data.columns: found {len(columns)}; text and label are needed, and a second text if there is one"
        )
    if context < 0:
        raise RegardError(f"data.context: found {context}; 0 utterances is the least")
    if empty not in EMPTY:
        raise unknown_name("data.empty", empty, EMPTY)
    wanted = dict(zip(ROLES, columns or (), strict=False))
    if dialogue is not None:
        wanted["dialogue"] = dialogue
    return examples(READERS[chosen](path, wanted), shown(path), separator, context, skip=empty == "skip")


def read_tsv(path: Path, wanted: Mapping[str, Column]) -> Iterator[Row]:
    """Columns with a tab between."""
    rows = ((number, text.split("\t")) for number, text in numbered_lines(path))
    return by_role(shown(path), rows, partial(find_places, wanted), tabs=True)


def read_csv(path: Path, wanted: Mapping[str, Column]) -> Iterator[Row]:
    """Columns with a comma between, in double quotes where needed."""
    return by_role(shown(path), csv_rows(path), partial(find_places, wanted), tabs=False)


def read_jsonl(path: Path, wanted: Mapping[str, Column]) -> Iterator[Row]:
    """One JSON object a line, whose labels may be a list."""
    for column in wanted.values():
        if isinstance(column, int):
            raise RegardError(f"{shown(path)}: column {column} was chosen; JSON lines have names: text,label")
    for number, text in numbered_lines(path):
        where = f"{shown(path)}, line {number}"
        if not text.strip():
            yield number, {}
            continue
        if not text.lstrip().startswith("{"):
            raise RegardError(f'{where}: found {quoted(text)}; an object is expected, {{"text": "…", "label": "…"}}')
        record = parsed(where, text)
        plural = "labels" in record and "label" not in record
        keys = {"text": "text", "label": "labels" if plural else "label", **wanted}
        yield number, {role: from_record(where, record, role, str(key)) for role, key in keys.items()}


def from_record(where: str, record: Mapping[str, object], role: str, key: str) -> str | list[str]:
    """What stands under a key; for labels that may be a list of texts."""
    found = record.get(key)
    if role == "label" and isinstance(found, list):
        if not all(isinstance(each, str) for each in found):
            raise RegardError(f'{where}: "{key}" is {quoted(json.dumps(found))}; a list of texts is expected')
        return found
    return value(where, record, key)


def find_places(
    wanted: Mapping[str, Column], where: str, cells: Sequence[str], tabs: bool
) -> tuple[dict[str, int], bool]:
    """Where each role stands, counted from 0, and whether this first row is a header."""
    names = [cell.strip() for cell in cells]
    lowered = [name.lower() for name in names]
    label = next((name for name in LABELS if name in lowered), None)
    header = "text" in lowered and label is not None
    places = {role: find_column(where, names, column) for role, column in wanted.items()}
    if "text" not in places and header:
        places |= {"text": lowered.index("text"), "label": lowered.index(str(label))}
    elif "text" not in places:
        free = [place for place in range(len(cells)) if place not in places.values()]
        if len(free) != 2:
            raise RegardError(
                f"{where}: found {counted(len(cells), tabs=tabs)}; text and label make 2 "
                "(of several, choose by number or name: --data.columns 1,2)"
            )
        places |= {"text": free[0], "label": free[1]}
    return places, header or any(as_number(column) is None for column in wanted.values())


READERS: dict[str, Callable[[Path, Mapping[str, Column]], Iterator[Row]]] = {
    "csv": read_csv,
    "jsonl": read_jsonl,
    "tsv": read_tsv,
}
"""Every format of labelled texts, by name."""

ENDINGS = {**{f".{name}": name for name in READERS}, ".ndjson": "jsonl", ".tab": "tsv"}


def examples(rows: Iterator[Row], name: str, separator: str, context: int, *, skip: bool) -> Iterator[Labelled]:
    """Rows as examples, each with the utterances before; one without a label is left out, but is still an utterance."""
    before = defaultdict[str, deque[str]](lambda: deque(maxlen=context))
    number_of = defaultdict[str, int](count().__next__)  # of each dialogue, by its name
    for number, row in rows:
        where = f"{name}, line {number}"
        if not row:
            before.pop("", None)  # where dialogues have names, none has this one
            number_of.pop("", None)
            continue
        texts = {role: row[role].strip() for role in row if role != "label"}
        labels = labels_of(where, row["label"], separator)
        empty = [role for role in row if not (labels if role == "label" else texts[role])]
        if empty and not skip:
            raise RegardError(
                f"{where}: the {empty[0]} is empty; fill it, or leave such examples out: --data.empty skip"
            )
        dialogue = texts.get("dialogue", "")
        utterances = before[dialogue]
        if not empty:
            which = number_of[dialogue] if context else None
            yield Labelled(texts["text"], labels, texts.get("second"), tuple(utterances), which)
        if texts["text"]:
            utterances.append(texts["text"])


def labels_of(where: str, cell: str | list[str], separator: str) -> tuple[str, ...]:
    """The labels of a cell, each once."""
    if isinstance(cell, str):
        cell = cell.split(separator) if separator else [cell]
    labels = tuple(dict.fromkeys(map(str.strip, cell)))
    if labels == ("",):
        return ()
    if "" in labels:
        raise RegardError(f"{where}: found an empty label in {quoted(separator.join(cell))}; leave it out, or fill it")
    return labels
