"""`regard --install-completion`: complete commands and options in your shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from cyclopts.completion.detect import ShellDetectionError, detect_shell

from regard.errors import RegardError


def install_completion(
    *, shell: Literal["bash", "zsh", "fish", "powershell"] | None = None, output: Path | None = None
) -> None:
    """Let your shell complete commands and options.

    Args:
        shell: The shell that completes; if not given, the one you are using.
        output: Where to write the script; if not given, where that shell looks for such scripts.
    """
    from regard.cli import command_line

    try:
        shell = shell or detect_shell()
        path = command_line([]).install_completion(shell=shell, output=output)
    except ShellDetectionError:
        raise RegardError("cannot detect your shell; pass --shell bash, zsh, fish or powershell") from None
    except OSError as error:
        raise RegardError(f"{error.filename}: cannot be written: {error.strerror}") from None
    print(f"wrote {path}; start a new {shell} to use it", file=sys.stderr)
