"""The name under which this command was called."""

from __future__ import annotations

import os
import shutil
import sys


def get_command_name() -> str:
    """Return `regard`, or the path or `python -m regard` if `regard` is not on the PATH."""
    path = sys.argv[0]
    if path.endswith(os.path.join("regard", "__main__.py")):
        return f"{os.path.basename(sys.executable)} -m regard"
    return os.path.relpath(path) if os.path.basename(path) == "regard" and not shutil.which("regard") else "regard"
