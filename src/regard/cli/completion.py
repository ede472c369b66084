"""`regard --install-completion`: complete commands and options in your shell."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts.completion.detect import ShellDetectionError, detect_shell

from regard.errors import RegardError
from regard.messages import print_message


def install_completion(
    *, shell: Literal["bash", "zsh", "fish", "powershell"] | None = None, output: Path | None = None
) -> None:
    """Install completion of commands and options for your shell.

    Args:
        shell: Shell; the one you are using by default.
        output: File for the script; by default where the shell looks for such scripts.
    """
    from regard.cli import build_app

    try:
        shell = shell or detect_shell()
        path = build_app([]).install_completion(shell=shell, output=output)
    except ShellDetectionError:
        raise RegardError("cannot detect your shell; pass --shell bash, zsh, fish or powershell") from None
    except OSError as error:
        raise RegardError(f"{error.filename}: cannot be written: {error.strerror}") from None
    print_message(f"wrote {path}; start a new {shell} to use it")
