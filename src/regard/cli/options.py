"""What the options of several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter


def check_file(_: Any, value: object) -> None:
    """Raise an error, which the parser makes a line of, for the next option in the place of a file."""
    if str(value).startswith("-") and str(value) != "-":
        raise ValueError("A file is needed, or - for stdin.")


STDIN_TOO = Parameter(allow_leading_hyphen=True, validator=check_file)

Flag = Annotated[bool, Parameter(show_default=False)]
"""An option without a value."""

File = Annotated[Path, STDIN_TOO]
"""A file to read, or - for stdin."""
