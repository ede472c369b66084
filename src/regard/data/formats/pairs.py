"""Pairs of texts from any file: which format it has, what is done about empty sides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from regard.data.example import Example
from regard.data.formats.catalogs import read_mo, read_po
from regard.data.formats.lines import Found, Path, format_by_name, numbered_lines, shown
from regard.data.formats.tables import Columns, read_csv, read_jsonl, read_tsv
from regard.data.formats.tmx import read_tmx
from regard.errors import RegardError, unknown_name

FORMATS: dict[str, Callable[[Path, Columns | None], Iterator[Found]]] = {
    "csv": read_csv,
    "jsonl": read_jsonl,
    "mo": read_mo,
    "po": read_po,
    "tmx": read_tmx,
    "tsv": read_tsv,
}
"""Every format that holds both sides in one file, by name."""

ENDINGS = {**{f".{name}": name for name in FORMATS}, ".gmo": "mo", ".ndjson": "jsonl", ".tab": "tsv"}
EMPTY = ("error", "skip")
"""What can be done with a pair whose source or target is empty."""


def read_pairs(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Sequence[str | int] | None = None,
    empty: str = "error",
) -> Iterator[Example]:
    """The pairs of one file, one after another.

    Args:
        path: The file; a name that ends in .gz is unzipped, `-` is standard input.
        format: A name of `FORMATS`; what the file's name says unless told otherwise, TSV from standard input.
        columns: Where source and target are: columns by name or number (TSV, CSV), keys (JSON lines),
            languages (TMX), msgid and msgstr in either order (PO, MO).
        empty: What to do with a pair without a source or target: "error" or "skip".
    """
    chosen = format or format_by_name(path, ENDINGS, "if it is text, name a language model (--model lstm-lm)")
    if chosen not in FORMATS:
        raise unknown_name("data.format", chosen, FORMATS)
    if columns is not None and len(columns) != 2:
        raise RegardError(f"data.columns: found {len(columns)}; two are needed, source and target")
    two = None if columns is None else (columns[0], columns[1])
    where = f"{shown(path)}, {'entry' if chosen == 'mo' else 'line'}"
    return examples(FORMATS[chosen](path, two), where, empty)


def read_parallel(source_path: Path, target_path: Path, *, empty: str = "error") -> Iterator[Example]:
    """The pairs of two files of which line n of one translates line n of the other."""
    if os.fspath(source_path) == os.fspath(target_path) == "-":
        raise RegardError("standard input: was given for source and target; one of them must be a file")
    return examples(
        side_by_side(source_path, target_path), f"{shown(source_path)} and {shown(target_path)}, line", empty
    )


def side_by_side(source_path: Path, target_path: Path) -> Iterator[Found]:
    """The lines of two files together, which must have equally many."""
    sources, targets = numbered_lines(source_path), numbered_lines(target_path)
    for both in zip_longest(sources, targets):
        source, target = both
        if source is None or target is None:
            longer, (shared, _) = (targets, target) if source is None else (sources, source)
            most = shared + sum(1 for _ in longer)
            ours, theirs = (shared - 1, most) if source is None else (most, shared - 1)
            raise RegardError(
                f"{shown(source_path)} has {ours} lines, {shown(target_path)} {theirs}; "
                "line n of one must translate line n of the other"
            )
        yield Found(source[0], source[1], target[1])


def examples(found: Iterator[Found], where: str, empty: str) -> Iterator[Example]:
    """Pairs without the whitespace around them; what to do with empty ones is checked at once."""
    if empty not in EMPTY:
        raise unknown_name("data.empty", empty, EMPTY)
    return filled(found, where, skip=empty == "skip")


def filled(found: Iterator[Found], where: str, *, skip: bool) -> Iterator[Example]:
    """Pairs of which both sides have text; others are left out or refused."""
    for place, *texts in found:
        source, target = (text.strip() for text in texts)
        if source and target:
            yield Example(source, target)
        elif not skip:
            side = "the source is" if target else "the target is" if source else "source and target are"
            raise RegardError(f"{where} {place}: {side} empty; fill it, or leave such pairs out: --data.empty skip")
