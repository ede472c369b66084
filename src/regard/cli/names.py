"""How this command can be called from here."""

from __future__ import annotations

import os
import shutil
import sys


def as_typed() -> str:
    """By its name, or by its path where the name is not found."""
    return "regard" if shutil.which("regard") else os.path.relpath(sys.argv[0])
