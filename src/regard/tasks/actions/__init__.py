"""Actions: what the command line does with a run. The fields of an action are the options of its command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from cyclopts import Parameter

__all__ = ["STDIN_TOO", "Action", "File", "Flag", "Given", "Invocation"]


def check_file(_: Any, value: object) -> None:
    """Raise an error, which the parser makes a line of, for the next option in the place of a file."""
    if str(value).startswith("-") and str(value) != "-":
        raise ValueError("A file is needed, or - for stdin.")


STDIN_TOO = Parameter(allow_leading_hyphen=True, validator=check_file)

Flag = Annotated[bool, Parameter(show_default=False)]
"""An option without a value."""

File = Annotated[Path, STDIN_TOO]
"""A file to read, or - for stdin."""

Given = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""A text, which may begin with a hyphen."""


@dataclass(frozen=True)
class Invocation:
    """What every command line has, whatever its action and task."""

    run: Path
    text: str | None = None  # what follows the run, for an action that reads a text
    device: str = "cpu"
    quiet: bool = False  # show no progress and no notes


@dataclass(frozen=True, kw_only=True)
class Action(ABC):
    """What is done with a run, by the options that are its fields."""

    summary: ClassVar[str]  # what the command does, in the list of commands
    example: ClassVar[str]  # a command line, without `regard`
    instead: ClassVar[str]  # what to do with {words} that no option takes, or with the {first} of them
    reads_text: ClassVar[bool] = False  # whether a text may follow the run on the command line

    def check(self) -> None:
        """Raise a `RegardError` for options that do not go together, before a model is loaded."""
        return

    @abstractmethod
    def run(self, predictor: Any, given: Invocation) -> None:
        """Do it with a loaded run, and write the results to stdout."""
