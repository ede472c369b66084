"""Actions: the commands on a run. The fields of an action are the options of its command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from cyclopts import Parameter

from regard.bounds import check_bounds

__all__ = ["FILE_OR_STDIN", "RUN_OR_HUGGING_FACE", "Action", "File", "Flag", "Invocation", "OptionalText", "OutputFile"]


def check_file_option(_: Any, value: object) -> None:
    """Raise a `ValueError`, which the parser reports, if an option follows where a file is expected."""
    if str(value).startswith("-") and str(value) != "-":
        raise ValueError("Expected a file, or - for stdin.")


def check_output_option(_: Any, value: object) -> None:
    """Raise a `ValueError`, which the parser reports, if an option follows where a file to write is expected."""
    if str(value).startswith("-") and str(value) != "-":
        raise ValueError("Expected a file, or - for stdout.")


RUN_OR_HUGGING_FACE = "Run folder made by regard train, or hf:FOLDER, a local Hugging Face model."
"""Help for the run of a command that also takes models of Hugging Face."""

FILE_OR_STDIN = Parameter(allow_leading_hyphen=True, validator=check_file_option)

Flag = Annotated[bool, Parameter(show_default=False)]
"""A flag, without a value."""

File = Annotated[Path, FILE_OR_STDIN]
"""A file to read, or - for stdin."""

OutputFile = Annotated[Path, Parameter(allow_leading_hyphen=True, validator=check_output_option)]
"""A text file to write, or - for stdout."""

OptionalText = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""A text that may begin with a hyphen."""


@dataclass(frozen=True)
class Invocation:
    """Arguments that all actions share."""

    run: Path
    text: str | None = None  # the argument after the run, for an action that reads a text
    device: str = "cpu"
    quiet: bool = False  # show no progress and no notes


@dataclass(frozen=True, kw_only=True)
class Action(ABC):
    """A command on a run; its fields are the options."""

    summary: ClassVar[str]  # what the command does, in the list of commands
    example: ClassVar[str]  # an example, without `regard`
    hint: ClassVar[str]  # advice for unexpected arguments: all {words}, or the {first}
    run_help: ClassVar[str] = "Run folder made by regard train."
    takes_ensemble: ClassVar[bool] = True  # whether several runs can be given as one
    reads_text: ClassVar[bool] = False  # whether the command takes a text after the run
    positional: ClassVar[tuple[str, ...]] = ()  # options that can be given after the run without their names

    def __post_init__(self) -> None:
        check_bounds(self, "--")

    def check(self) -> None:
        """Raise a `RegardError` for invalid combinations of options, before the model is loaded."""
        return

    @abstractmethod
    def run(self, predictor: Any, invocation: Invocation) -> None:
        """Run the command with a loaded model, and print the results to stdout."""
