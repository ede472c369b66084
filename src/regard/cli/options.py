"""Build options of commands from the fields of a dataclass: names, types, defaults and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from regard.settings import Field, get_fields

Command = TypeVar("Command", bound=Callable[..., None])


def with_settings(kind: type, quick: object = None) -> Callable[[Command], Command]:
    """Add the settings of a dataclass to the options of a command.

    Args:
        kind: The dataclass; fields marked "no_option" are skipped.
        quick: The settings of `--quick`, if the command has that option.
    """

    def mark(command: Command) -> Command:
        known = inspect.signature(command, eval_str=True).parameters
        own = [each for each in known.values() if each.kind != inspect.Parameter.VAR_KEYWORD]
        settings = [
            option(each, quick)
            for name, each in get_fields(kind).items()
            if name not in known and "no_option" not in each.marks
        ]
        return with_parameters(command, sorted([*settings, *own], key=lambda each: each.kind))

    return mark


def option(setting: Field, quick: object) -> inspect.Parameter:
    """Build an option from a setting; its help shows the default, and that of `--quick` if it differs."""
    fast = getattr(quick, setting.name, setting.default)
    shown = f"{setting.default}, with --quick {fast}" if fast != setting.default else None
    remark = Parameter(help=setting.help, show_default=shown)
    return keyword(setting.name, Annotated[setting.type, remark], setting.default)


def keyword(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Build a keyword-only parameter."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def with_parameters(command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """Give a command the signature that the parser reads."""
    signature = inspect.Signature(list(parameters))
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command
