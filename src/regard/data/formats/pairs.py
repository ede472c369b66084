"""Read pairs of texts from a file of any format, or from two parallel files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest

from regard.data.example import Example
from regard.data.formats.catalogs import read_mo, read_po
from regard.data.formats.columns import TABLE_FORMATS, parse_sides
from regard.data.formats.lines import NumberedPair, Path, format_path, guess_format, iter_numbered_lines
from regard.data.formats.tables import Columns, iter_csv_rows, iter_keys_of_records, read_csv, read_jsonl, read_tsv
from regard.data.formats.tmx import read_tmx
from regard.errors import RegardError, unknown_name

FORMATS: dict[str, Callable[[Path, Columns | None], Iterator[NumberedPair]]] = {
    "csv": read_csv,
    "jsonl": read_jsonl,
    "mo": read_mo,
    "po": read_po,
    "tmx": read_tmx,
    "tsv": read_tsv,
}
"""Readers of formats with both sides in one file, by name."""

TABLES = ("csv", "jsonl", "tsv")

ENDINGS = {**{f".{name}": name for name in FORMATS}, ".gmo": "mo", ".ndjson": "jsonl", ".tab": "tsv"}
HINT = "for lemma, form and features, pass --format unimorph; for plain text, choose a language model (--model lstm-lm)"
"""What else a file may be whose name does not tell its format."""

ON_EMPTY = ("error", "skip")
"""What to do with a pair whose source or target is empty."""


def read_pairs(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Sequence[str | int] | None = None,
    on_empty: str = "error",
) -> Iterator[Example]:
    """Yield the pairs of one file.

    Args:
        path: File to read; a name ending in .gz is decompressed, `-` is standard input.
        format: A key of `FORMATS` or `TABLE_FORMATS`. By default inferred from the file name; TSV for standard input.
        columns: Source and target: columns by name or number (TSV, CSV), keys (JSON lines),
            languages (TMX), or msgid and msgstr in either order (PO, MO). Several columns of a table are joined by `+`
            (`lemma+features`); the text of that side has their cells, separated by tabs.
        on_empty: What to do with a pair without source or target: `error` or `skip`.

    Yields:
        One `Example` per pair.

    Raises:
        RegardError: An argument is invalid, or a line cannot be read.

    Example:
        >>> examples = list(read_pairs("train.tsv", columns=("de", "en")))
    """
    chosen = choose_format(path, format)
    location = f"{format_path(path)}, {'entry' if chosen == 'mo' else 'line'}"
    return build_pairs(read_numbered_pairs(path, format=chosen, columns=columns), location, on_empty)


def choose_format(path: Path, format: str | None) -> str:  # noqa: A002
    """Return a key of `FORMATS` or `TABLE_FORMATS`: the given format, or that of the file name."""
    chosen = format or guess_format(path, ENDINGS, HINT)
    if chosen not in FORMATS and chosen not in TABLE_FORMATS:
        raise unknown_name("data.format", chosen, [*FORMATS, *TABLE_FORMATS])
    return chosen


def read_numbered_pairs(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Sequence[str | int] | None = None,
) -> Iterator[NumberedPair]:
    """Yield the pairs of one file as they are, with empty ones; the arguments are those of `read_pairs`."""
    chosen = choose_format(path, format)
    if chosen in TABLE_FORMATS:
        pairs = read_numbered_pairs(path, format="tsv", columns=columns or TABLE_FORMATS[chosen].columns)
        return (pair for pair in pairs if pair.source or pair.target)  # blank lines separate paradigms
    if columns is None:
        return FORMATS[chosen](path, None)
    if not parse_sides(columns).is_plain and chosen not in TABLES:
        raise RegardError(
            f"data.columns: joined columns and units require a table ({', '.join(TABLES)}), got the format {chosen}"
        )
    return FORMATS[chosen](path, (columns[0], columns[1]))


def read_rows(path: Path, format: str | None = None) -> Iterator[list[str]]:  # noqa: A002
    """Yield the rows of a TSV or CSV file that are not blank; of JSON lines, the keys of the first; of others, none."""
    chosen = choose_format(path, format)
    if chosen == "tsv":
        yield from (text.split("\t") for _, text in iter_numbered_lines(path) if text.strip())
    elif chosen == "csv":
        yield from (cells for _, cells in iter_csv_rows(path) if "".join(cells).strip())
    elif chosen == "jsonl":
        yield from islice(iter_keys_of_records(path), 1)


def read_parallel(source_path: Path, target_path: Path, *, on_empty: str = "error") -> Iterator[Example]:
    """Yield the pairs of two files, where line n of one translates line n of the other.

    Args:
        source_path: File of sources, one per line; `-` is standard input.
        target_path: File of targets, one per line; `-` is standard input.
        on_empty: What to do with a pair without source or target: `error` or `skip`.

    Raises:
        RegardError: A file cannot be read, or the files have different numbers of lines.

    Example:
        >>> examples = list(read_parallel("train.de", "train.en"))
    """
    if os.fspath(source_path) == os.fspath(target_path) == "-":
        raise RegardError("standard input cannot be both source and target; one of them must be a file")
    return build_pairs(
        zip_lines(source_path, target_path),
        f"{format_path(source_path)} and {format_path(target_path)}, line",
        on_empty,
    )


def zip_lines(source_path: Path, target_path: Path) -> Iterator[NumberedPair]:
    """Yield the lines of two files in parallel; raise a `RegardError` if the numbers of lines differ."""
    sources, targets = iter_numbered_lines(source_path), iter_numbered_lines(target_path)
    for lines in zip_longest(sources, targets):
        source, target = lines
        if source is None or target is None:
            longer, (shared, _) = (targets, target) if source is None else (sources, source)
            line_count = shared + sum(1 for _ in longer)
            source_count, target_count = (shared - 1, line_count) if source is None else (line_count, shared - 1)
            noun = "line" if source_count == 1 else "lines"
            raise RegardError(
                f"{format_path(source_path)} has {source_count} {noun}, {format_path(target_path)} {target_count}; "
                "line n of one must translate line n of the other"
            )
        yield NumberedPair(source[0], source[1], target[1])


def build_pairs(pairs: Iterator[NumberedPair], location: str, on_empty: str) -> Iterator[Example]:
    """Strip the texts of pairs and handle empty ones; `on_empty` is checked immediately."""
    if on_empty not in ON_EMPTY:
        raise unknown_name("data.on_empty", on_empty, ON_EMPTY)
    return iter_filled_pairs(pairs, location, skip=on_empty == "skip")


def iter_filled_pairs(pairs: Iterator[NumberedPair], location: str, *, skip: bool) -> Iterator[Example]:
    """Yield pairs where both sides have text; skip or reject the others."""
    for number, *texts in pairs:
        source, target = (text.strip() for text in texts)
        if source and target:
            yield Example(source, target)
        elif not skip:
            side = "the source is" if target else "the target is" if source else "source and target are"
            raise RegardError(f"{location} {number}: {side} empty; pass --data.on-empty skip to skip such pairs")
