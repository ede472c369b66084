"""Options of commands that are settings of a dataclass, which has their names, types, defaults and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from regard.settings import Field, fields_of

Command = TypeVar("Command", bound=Callable[..., None])


def with_settings(kind: type, quick: object = None) -> Callable[[Command], Command]:
    """Let a command take the settings of a dataclass, as far as they are given, besides options of its own.

    Args:
        kind: The dataclass; what is marked "no_option" is left out.
        quick: The settings of `--quick`, where the command has that.
    """

    def mark(command: Command) -> Command:
        known = inspect.signature(command, eval_str=True).parameters
        own = [each for each in known.values() if each.kind != inspect.Parameter.VAR_KEYWORD]
        settings = [
            option(each, quick)
            for name, each in fields_of(kind).items()
            if name not in known and "no_option" not in each.marks
        ]
        return with_parameters(command, sorted([*settings, *own], key=lambda each: each.kind))

    return mark


def option(setting: Field, quick: object) -> inspect.Parameter:
    """A setting as an option, which shows its default and that of `--quick` if it has another."""
    fast = getattr(quick, setting.name, setting.default)
    shown = f"{setting.default}, with --quick {fast}" if fast != setting.default else None
    remark = Parameter(help=setting.help, show_default=shown)
    return keyword(setting.name, Annotated[setting.type, remark], setting.default)


def keyword(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """A parameter that is given by its name."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def with_parameters(command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """A command as the parser takes it, with these parameters."""
    signature = inspect.Signature(list(parameters))
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command
