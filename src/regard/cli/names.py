"""How this command can be called from here."""

from __future__ import annotations

import os
import shutil
import sys


def as_typed() -> str:
    """By its name, or as it was called: by a path where the name is not found, or as a module of Python."""
    path = sys.argv[0]
    if path.endswith(os.path.join("regard", "__main__.py")):
        return f"{os.path.basename(sys.executable)} -m regard"
    return os.path.relpath(path) if os.path.basename(path) == "regard" and not shutil.which("regard") else "regard"
