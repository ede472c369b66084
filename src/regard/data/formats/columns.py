"""Columns of a table that make up source and target: how to name them, and the column orders of shared tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from regard.errors import RegardError

JOIN = "+"
TAB = "\t"


class ColumnChoice(NamedTuple):
    """A column, by name or by number from 1, and its unit, a key of `UNITS`, if it is given."""

    column: str | int
    unit: str | None = None


class Sides(NamedTuple):
    """The columns of source and target."""

    source: tuple[ColumnChoice, ...]
    target: tuple[ColumnChoice, ...]

    @property
    def is_plain(self) -> bool:
        """Whether each side is one column without a unit."""
        return all(len(side) == 1 and side[0].unit is None for side in self)


def parse_sides(columns: Sequence[str | int]) -> Sides:
    """Parse the columns of source and target: `lemma+features,form`, `1:letters+3:tokens,2`.

    Columns of one side are joined by `+`; a unit, a key of `UNITS`, follows a colon.
    """
    if len(columns) != 2:
        raise RegardError(f"data.columns: expected 2 columns, source and target, got {len(columns)}")
    sides = Sides(parse_side(columns[0]), parse_side(columns[1]))
    check_distinct(sides)
    return sides


def check_distinct(sides: Sides) -> None:
    """Raise a `RegardError` if a column is joined with itself, or with others while it is the other side, too."""
    names = [str(choice.column) for side in sides for choice in side]
    if len(names) > len(Sides._fields) and len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise RegardError(f"data.columns: column {repeated} is used twice; join different columns, such as 1+3,2")


def parse_side(side: str | int) -> tuple[ColumnChoice, ...]:
    """Parse the columns of one side."""
    from regard.text.column_units import UNITS  # imports torch, which commands that read no data do without

    if isinstance(side, int):
        return (ColumnChoice(side),)
    choices = []
    for part in side.split(JOIN):
        name, colon, unit = part.strip().rpartition(":")
        choice = ColumnChoice(name, unit) if colon and unit in UNITS else ColumnChoice(part.strip())
        if not choice.column:
            raise RegardError(
                f'data.columns: "{side}" has an empty column; expected names or numbers joined by +, '
                "such as lemma+features"
            )
        choices.append(choice)
    return tuple(choices)


def join_cells(cells: Sequence[str]) -> str:
    """Join the cells of a side to a text, separated by tabs; an empty one makes the text empty."""
    if len(cells) == 1:
        return cells[0]
    stripped = [cell.replace(TAB, " ").strip() for cell in cells]
    return TAB.join(stripped) if all(stripped) else ""


LEMMA, FORM, FEATURES = "lemma", "form", "features"
INFLECTION_UNITS = {LEMMA: "letters", FORM: "letters", FEATURES: "tokens"}


class TableFormat(NamedTuple):
    """A format by name: a TSV file without a header, whose columns have a known order."""

    names: tuple[str, ...]
    sources: tuple[str, ...]  # names of the columns of the source; the target is the other one
    units: Mapping[str, str]

    @property
    def columns(self) -> tuple[str, str]:
        """Columns of source and target, by number, with units: `1:letters+3:tokens`, `2:letters`."""
        targets = tuple(name for name in self.names if name not in self.sources)
        return self._format(self.sources), self._format(targets)

    def _format(self, names: Sequence[str]) -> str:
        return JOIN.join(f"{self.names.index(name) + 1}:{self.units[name]}" for name in names)

    @property
    def labels(self) -> dict[str, str]:
        """Number of a column -> its name."""
        return {str(number): name for number, name in enumerate(self.names, start=1)}


def build_inflection_format(*names: str) -> TableFormat:
    """Return the format of a table of lemma, form and features in this order."""
    return TableFormat(names, (LEMMA, FEATURES), INFLECTION_UNITS)


FORM_SECOND = build_inflection_format(LEMMA, FORM, FEATURES)
FORM_LAST = build_inflection_format(LEMMA, FEATURES, FORM)
FEATURES_FIRST = build_inflection_format(FEATURES, LEMMA, FORM)
ORDERS_BY_FEATURES = (FEATURES_FIRST, FORM_LAST, FORM_SECOND)
"""Index of the features in a row -> format; the lemma comes before the form."""

TABLE_FORMATS: dict[str, TableFormat] = {
    "g2p": TableFormat(("word", "phones"), ("word",), {"word": "letters", "phones": "tokens"}),
    "sigmorphon2016": FORM_LAST,
    "sigmorphon2017": FORM_SECOND,
    "sigmorphon2018": FORM_SECOND,
    "sigmorphon2019": FORM_SECOND,
    "sigmorphon2020": FORM_SECOND,
    "sigmorphon2021": FORM_SECOND,
    "sigmorphon2022": FORM_SECOND,
    "sigmorphon2023": FORM_LAST,
    "unimorph": FORM_SECOND,
}
"""Formats by name: letters to phones, the inflection tasks of SIGMORPHON, and UniMorph."""


def find_inflection_format(columns: Sequence[str | int]) -> TableFormat | None:
    """Return the order of lemma, form and features that some columns select by number, with or without units."""
    numbers = strip_units(columns)
    return next((order for order in ORDERS_BY_FEATURES if strip_units(order.columns) == numbers), None)


def strip_units(columns: Sequence[str | int]) -> list[list[str]]:
    """Return the columns of each side, by name or number."""
    return [[str(choice.column) for choice in side] for side in parse_sides(columns)]
