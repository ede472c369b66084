"""How this command can be called from here."""

from __future__ import annotations

import os
import shutil
import sys


def as_typed() -> str:
    """By its name, or by the path it was called by where the name is not found."""
    path = sys.argv[0]
    return os.path.relpath(path) if os.path.basename(path) == "regard" and not shutil.which("regard") else "regard"
