"""Options as dataclasses: what their fields mean, and between which bounds they lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, NamedTuple, get_type_hints

from regard.errors import RegardError


def help_of(kind: type[Any]) -> dict[str, str]:
    """What the fields of a dataclass mean, by the docstrings of it and of those it extends."""
    from docstring_parser import parse

    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        document = parse(base.__doc__ or "")
        found |= {each.arg_name: (each.description or "").replace("\n", " ") for each in document.params}
    return {field.name: found.get(field.name, "") for field in fields(kind)}


def names_of(kind: type[Any]) -> set[str]:
    """The names of the fields of a dataclass."""
    return {field.name for field in fields(kind)}


class Option(NamedTuple):
    """An option that one or several tasks have."""

    hint: Any  # its type, with what its annotation says
    default: Any
    help: dict[str, str]  # the name of each task that has it -> what it means there

    @property
    def meaning(self) -> str:
        """What it means, task by task where they differ."""
        if len(set(self.help.values())) == 1:
            return next(iter(self.help.values()))
        return " ".join(f"{task}: {meaning}" for task, meaning in self.help.items())


def merge_options(kinds: Iterable[tuple[str, type[Any]]]) -> dict[str, Option]:
    """The options of some dataclasses, each of a task, by name."""
    merged: dict[str, Option] = {}
    for task, kind in kinds:
        hints, meanings = get_type_hints(kind, include_extras=True), help_of(kind)
        for each in fields(kind):
            option = merged.setdefault(each.name, Option(hints[each.name], each.default, {}))
            option.help[task] = meanings[each.name]
    return merged


def check_range(what: str, name: str, value: float | None, least: int, greatest: int) -> None:
    """Raise a `RegardError` for a number that lies outside of its bounds."""
    if value is not None and not least <= value <= greatest:
        raise RegardError(f"{what}: {name} is {value}; a number from {least} to {greatest} is needed")
