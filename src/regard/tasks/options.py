"""Options as dataclasses: what their fields mean, and between which bounds they lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from regard.errors import RegardError


class Between(NamedTuple):
    """The least and the greatest value of an option, in its annotation; `above` is less than any."""

    least: float | None = None
    greatest: float | None = None
    above: float | None = None


@cache
def help_of(kind: type) -> dict[str, str]:
    """What the fields of a dataclass mean, by the docstrings of it and of those it extends."""
    from docstring_parser import parse

    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        document = parse(base.__doc__ or "")
        found |= {each.arg_name: (each.description or "").replace("\n", " ") for each in document.params}
    return {field.name: found.get(field.name, "") for field in fields(kind)}


def names_of(kinds: Iterable[type[Any]]) -> set[str]:
    """The names of the fields of some dataclasses."""
    return {field.name for kind in kinds for field in fields(kind)}


def check_range(what: str, name: str, value: float | None, least: int, greatest: int) -> None:
    """Raise a `RegardError` for a number that lies outside of its bounds."""
    if value is not None and not least <= value <= greatest:
        raise RegardError(f"{what}: {name} is {value}; a number from {least} to {greatest} is needed")
