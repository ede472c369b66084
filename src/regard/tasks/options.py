"""Option classes: help texts, merging across tasks, and bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints


@cache
def parse_field_help(kind: type[Any]) -> Mapping[str, str]:
    """Return the help text of each field, from the docstrings of a dataclass and its bases."""
    from docstring_parser import parse

    descriptions: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        document = parse(base.__doc__ or "")
        descriptions |= {
            parameter.arg_name: (parameter.description or "").replace("\n", " ") for parameter in document.params
        }
    return MappingProxyType({field.name: descriptions.get(field.name, "") for field in fields(kind)})


@cache
def get_option_types(kind: type[Any]) -> Mapping[str, Any]:
    """Return the annotated type of each field of a dataclass."""
    return MappingProxyType(get_type_hints(kind, include_extras=True))


def get_field_names(kind: type[Any]) -> set[str]:
    """Return the field names of a dataclass."""
    return {field.name for field in fields(kind)}


class Option(NamedTuple):
    """An option of one or more tasks."""

    hint: Any  # its annotated type
    default: Any
    help: dict[str, str]  # task name -> help text

    @property
    def meanings(self) -> dict[str, str]:
        """The names of tasks, with commas, for each different help text."""
        return {
            meaning: ", ".join(task for task, other in self.help.items() if other == meaning)
            for meaning in self.help.values()
        }

    @property
    def meaning(self) -> str:
        """The help text, by task where they differ."""
        if len(self.meanings) == 1:
            return next(iter(self.meanings))
        return " ".join(f"{tasks}: {meaning}" for meaning, tasks in self.meanings.items())

    @property
    def markdown(self) -> str:
        """The help text as Markdown, a list by task where they differ."""
        if len(self.meanings) == 1:
            return next(iter(self.meanings))
        return "By task of the model:\n\n" + "\n".join(
            f"- {tasks}: {meaning}" for meaning, tasks in self.meanings.items()
        )


def merge_options(kinds: Iterable[tuple[str, type[Any]]]) -> dict[str, Option]:
    """Merge the options of several tasks by name."""
    merged: dict[str, Option] = {}
    for task, kind in kinds:
        plain: type = kind
        hints, meanings = get_option_types(plain), parse_field_help(plain)
        for field in fields(kind):
            option = merged.setdefault(field.name, Option(hints[field.name], field.default, {}))
            option.help[task] = meanings[field.name]
    return merged
