"""Load training and validation pairs from files, stdin or a built-in corpus."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from regard.data.example import Example
from regard.data.formats import read_pairs, read_parallel
from regard.data.formats.columns import FEATURES, TABLE_FORMATS, find_inflection_format, parse_sides
from regard.data.formats.lines import format_path
from regard.data.formats.pairs import read_rows
from regard.data.formats.tables import parse_column_number
from regard.data.inflection import detect_inflection
from regard.data.pair_check import pluralize, split_validation_pairs
from regard.errors import RegardError, unknown_name
from regard.tasks.built_in import check_corpus_settings, generate_split, is_built_in, list_corpora
from regard.tasks.pairs.settings import PairData
from regard.text.column_units import TOKENS, resolve_unit
from regard.text.learn_columns import Column

ROWS = 1000
"""Number of rows that are read to detect what the columns are."""


@dataclass(frozen=True)
class PairSplit:
    """Training and validation examples, and a description of their origin."""

    train: Sequence[Example]
    valid: Sequence[Example]
    origin: str


def load_pair_split(settings: PairData, seed: int) -> PairSplit:
    """Read or generate the training and validation examples."""
    check_data_settings(settings)
    valid = None
    if settings.validation or settings.validation_source:
        valid = read_examples(settings, settings.validation, settings.validation_source, settings.validation_target)
    if is_built_in(settings.train, "pairs"):
        generated, generated_valid = generate_split(settings, seed)
        return PairSplit(
            generated, generated_valid if valid is None else valid, f"the built-in corpus {settings.train}, seed {seed}"
        )
    train = read_examples(settings, settings.train, settings.source, settings.target)
    origin = settings.train or f"{settings.source} and {settings.target}"
    if valid is not None:
        return PairSplit(train, valid, origin)
    train_part, valid_part = split_validation_pairs(train, share=settings.validation_share, seed=seed)
    return PairSplit(train_part, valid_part, f"{origin}, {pluralize(len(valid_part), 'pair')} split off for validation")


def resolve_columns(settings: PairData) -> tuple[PairData, dict[str, str]]:
    """Fill in the columns of a named format, or of a table of lemma, form and features.

    Returns:
        The settings, and the names of columns that have none in a header: `3` -> `features`.
    """
    settings, labels = find_columns(settings)
    if labels and settings.validation is not None:
        check_column_order(settings.validation, settings.format, settings.columns)
    return settings, labels


def find_columns(settings: PairData) -> tuple[PairData, dict[str, str]]:
    """Fill in the columns by the name of the format, or by the cells of the training file."""
    named = TABLE_FORMATS.get(settings.format or "")
    path = settings.train
    if named is not None:
        if settings.columns:
            return settings, named.labels if settings.columns == named.columns else {}
        if path is not None:
            check_column_order(path, settings.format, named.columns)
        return replace(settings, columns=named.columns), named.labels
    if settings.columns or path is None or not is_file_to_read_twice(path):
        return settings, {}
    check_pair_file(path)
    found = detect_inflection(list(islice(read_rows(path, settings.format), ROWS)))
    return (settings, {}) if found is None else (replace(settings, columns=found.columns), found.labels)


def is_file_to_read_twice(path: str) -> bool:
    """Return whether data can be looked into before they are read: neither stdin nor a built-in corpus."""
    return path != "-" and not is_built_in(path, "pairs")


def check_column_order(path: str, format_name: str | None, columns: Sequence[str]) -> None:
    """Raise a `RegardError` if a file looks like lemma, form and features in another order than that of some columns.

    Columns that are not lemma and features -> form are not checked, nor are those of a file with a header.
    """
    expected = find_inflection_format(columns)
    if expected is None or not is_file_to_read_twice(path):
        return
    table = "tsv" if format_name in TABLE_FORMATS else format_name
    rows = list(islice(read_rows(path, table), ROWS))
    found = detect_inflection(rows)
    if found is None or not found.labels or find_inflection_format(found.columns) == expected:
        return
    place = expected.names.index(FEATURES)
    if resolve_unit(TOKENS, [row[place] for row in rows if len(row) > place]).separator is not None:
        return  # features, but few; another column only repeats
    number = next(number for number, label in found.labels.items() if label == FEATURES)
    who = format_name if format_name in TABLE_FORMATS else "the training data"
    raise RegardError(
        f"{path}: column {number} looks like features, but {who} is {', '.join(expected.names)}; "
        f"select the columns with --columns {','.join(found.columns)}"
    )


def name_columns(settings: PairData, labels: Mapping[str, str]) -> tuple[list[Column], list[Column]] | None:
    """Return the columns of both sides for people; None if each side is one column whose unit is open."""
    if not settings.columns or parse_sides(settings.columns).is_plain:
        return None
    source, target = (
        [name_column(str(choice.column), choice.unit, labels) for choice in side]
        for side in parse_sides(settings.columns)
    )
    return source, target


def name_column(column: str, unit: str | None, labels: Mapping[str, str]) -> Column:
    """Return a column with its name in the header or in `labels`; otherwise its name is `column 2`."""
    if column in labels:
        return Column(labels[column], unit, column)
    return Column(column if parse_column_number(column) is None else f"column {column}", unit)


def read_examples(settings: PairData, path: str | None, source: str | None, target: str | None) -> list[Example]:
    """Read all pairs of one file or of two parallel files; raise a `RegardError` if there are none."""
    if path is not None:
        check_pair_file(path)
        name = format_path(path)
        examples = list(
            read_pairs(path, format=settings.format, columns=settings.columns or None, on_empty=settings.on_empty)
        )
    else:
        assert source is not None and target is not None
        name = f"{format_path(source)} and {format_path(target)}"
        examples = list(read_parallel(source, target, on_empty=settings.on_empty))
    if not examples:
        raise RegardError(f"{name}: no pairs; expected at least one")
    return examples


def check_pair_file(name: str) -> None:
    """Raise a `RegardError` for a folder, or a plain word that is neither a file nor a built-in corpus."""
    if os.path.isdir(name):
        raise RegardError(f"{name} is a folder; expected a file of pairs or a built-in corpus")
    if re.fullmatch(r"[\w-]+", name) and not os.path.exists(name) and name != "-":
        raise unknown_name("file or built-in corpus", name, list_corpora("pairs"))


def check_data_settings(settings: PairData) -> None:
    """Raise a `RegardError` for data settings that are missing, conflicting or invalid."""
    for path, source, target, prefix in (
        (settings.train, settings.source, settings.target, ""),
        (settings.validation, settings.validation_source, settings.validation_target, "validation-"),
    ):
        if (source is None) != (target is None):
            given, missing = ("source", "target") if target is None else ("target", "source")
            raise RegardError(f"data: --{prefix}{given} requires --{prefix}{missing}")
        if path is not None and source is not None:
            raise RegardError(
                f"data: {path} cannot be combined with --{prefix}source; pass one file of pairs, or two parallel files"
            )
    if settings.train is None and settings.source is None:
        raise RegardError(
            "data: no training data; pass a file of pairs, --source and --target, or a built-in corpus "
            f"({', '.join(list_corpora('pairs'))})"
        )
    check_corpus_settings(settings, "pairs")
    files = (
        getattr(settings, name)
        for name in ("train", "source", "target", "validation", "validation_source", "validation_target")
    )
    if list(files).count("-") > 1:
        raise RegardError("data: stdin (-) can be used for only one file")
