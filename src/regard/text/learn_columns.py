"""Learn the tokenizers of sides that consist of table columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from regard.errors import RegardError
from regard.text.column_tokenizer import TAB, join_tokenizers
from regard.text.column_units import TOKENS, UNITS, ColumnUnit, choose_column_unit, resolve_unit
from regard.text.learn import learn_tokenizer
from regard.text.steps import NO_STEPS, TextSteps
from regard.text.tokenizer import Kind, Tokenizer


class Column(NamedTuple):
    """A column of a side, for people."""

    name: str
    unit: str | None = None  # a key of `UNITS`; None to choose it from the data
    number: str = ""  # number in the table, if the name is not in its header


class SpelledSide(NamedTuple):
    """What is spelled or written in words on a side: its texts without columns of whole tokens, and their kind."""

    texts: list[str]
    kind: Kind


class LearnedSide(NamedTuple):
    """The tokenizer of a side, and its columns with their units as text: lemma (letters) + tags (whole tokens)."""

    tokenizer: Tokenizer
    description: str


def learn_column_tokenizer(
    columns: Sequence[Column],
    texts: Sequence[str],
    beside: Sequence[str],
    *,
    kind: str = "auto",
    vocab_size: int | None = None,
    min_frequency: int = 1,
    steps: TextSteps = NO_STEPS,
) -> LearnedSide:
    r"""Learn the tokenizer of a side of one or more columns.

    Args:
        columns: The columns.
        texts: The texts of the side: its cells, separated by tabs.
        beside: The text of the other side in each row, which tells spelled text from tags.
        kind: Kind of the columns of text whose unit is open, as in `learn_tokenizer`; "auto" to choose it.
        vocab_size: Size of the vocabulary of each column of text.
        min_frequency: As in `learn_tokenizer`, for each column.
        steps: Preprocessing of the columns of text; whole tokens stay as they are.

    Returns:
        A `ColumnTokenizer` for several columns, otherwise a plain `Tokenizer`, and a description of the columns.

    Raises:
        RegardError: An argument is invalid, or there is no text.

    Example:
        >>> columns = [Column("lemma"), Column("tags")]
        >>> side = learn_column_tokenizer(columns, ["go\tV;PST"] * 3, ["goed"] * 3)
        >>> side.description
        'lemma (letters) + tags (whole tokens separated by ;)'
    """
    tokenizers, descriptions = [], []
    for column, cells in zip(columns, split_columns(columns, texts), strict=True):
        unit = choose_unit(column, cells, beside, kind)
        is_text = unit.unit != TOKENS
        tokenizers.append(
            learn_tokenizer(
                unit.kind,
                cells,
                vocab_size=vocab_size if is_text else None,
                min_frequency=min_frequency,
                steps=steps if is_text else TextSteps(separator=unit.separator),
            )
        )
        descriptions.append(f"{column.number} {column.name} ({unit})".strip())
    names = [column.name for column in columns]
    tokenizer = tokenizers[0] if len(columns) == 1 else join_tokenizers(names, tokenizers)
    return LearnedSide(tokenizer, " + ".join(descriptions))


def select_spelled(
    columns: Sequence[Column], texts: Sequence[str], beside: Sequence[str], kind: str = "auto"
) -> SpelledSide:
    """Return a side without its columns of whole tokens, unless it has no others; arguments as in learning."""
    cells = split_columns(columns, texts)
    units = [choose_unit(column, own, beside, kind) for column, own in zip(columns, cells, strict=True)]
    spelled = [index for index, unit in enumerate(units) if unit.unit != TOKENS] or list(range(len(columns)))
    rows = zip(*(cells[index] for index in spelled), strict=True)
    return SpelledSide([TAB.join(row) for row in rows], units[spelled[0]].kind)


def split_columns(columns: Sequence[Column], texts: Sequence[str]) -> list[list[str]]:
    """Return the cells of each column of the texts of a side."""
    rows = [text.split(TAB) for text in texts] if len(columns) > 1 else [[text] for text in texts]
    return [[row[index] for row in rows] for index in range(len(columns))]


def choose_unit(column: Column, cells: Sequence[str], beside: Sequence[str], kind: str) -> ColumnUnit:
    """Return the unit of a column: the given one, or one chosen from the data; `kind` is that of text, or "auto"."""
    if column.unit is not None:
        return resolve_unit(column.unit, cells)
    chosen = choose_column_unit(cells, beside)
    if chosen.unit == TOKENS or kind == "auto":
        return chosen
    return ColumnUnit(find_unit(kind))


def find_unit(kind: str) -> str:
    """Return the unit of a kind of tokenizer."""
    units: dict[Kind | str, str] = {kind: unit for unit, kind in UNITS.items() if unit != TOKENS}
    if kind not in units:
        raise RegardError(f'unknown kind "{kind}"; choose from {", ".join(sorted(units))}')
    return units[kind]
