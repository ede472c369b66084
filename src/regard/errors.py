"""Errors that users can fix, and helpers to raise them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches

from regard.aliases import suggest

NO_MEMORY = "out of memory; try smaller batches, shorter texts or a smaller model"

ALLOCATION_FAILURES = (
    "can't allocate memory",
    "DefaultCPUAllocator",
    "not enough memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
    "Storage size calculation overflowed",  # sizes that no memory has
    "Overflow when unpacking long",
)
"""What PyTorch's errors say when memory cannot be allocated."""


class RegardError(Exception):
    """Invalid input. The message says where it is, what it is, and what is expected.

    The command line prints the message on one line and exits with status 2. Any other
    exception is a bug in regard.
    """


def unknown_name(subject: str, name: object, choices: Iterable[str], advice: str | None = None) -> RegardError:
    """Return the error for an unknown name, with the closest valid name or all of them.

    Args:
        subject: What is named and, before it, where: `score`, `explain: label`, `--cell`, `de.toml: [model] score`.
        name: The unknown name.
        choices: The valid names.
        advice: What to use instead, if that is known.
    """
    names = sorted(choices)
    near = suggest(str(name), names) or next(iter(get_close_matches(str(name), names, n=1)), None)
    hint = f'; did you mean "{near}"?' if near else f"; choose from {', '.join(names)}"
    hint = hint if advice is None else f"; {advice}"
    if match := re.fullmatch(r"(?s:(.*: )?)(\[.*\]) setting", subject):
        location, section = match.groups(default="")
        return RegardError(f'{location}unknown setting "{name}" in {section}{hint}')
    if match := re.fullmatch(r"(?s:(.*: |.*\] )?)(\w[\w. -]*)", subject):
        location, kind = match.groups(default="")
        return RegardError(f'{location}unknown {kind} "{name}"{hint}')
    return RegardError(f'{subject}: unknown value "{name}"{hint}')


def refuse_less(location: str, minimum: int, **values: int) -> None:
    """Raise a `RegardError` if a value is below the minimum."""
    for name, value in values.items():
        if value < minimum:
            raise RegardError(f"{location}: {name} must be at least {minimum}, got {value}")


def format_json(value: object, max_length: int = 60) -> str:
    """Return a value read from JSON for a message: as JSON, in ASCII, truncated."""
    try:
        text = json.dumps(value)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def format_os_error(error: OSError) -> str:
    """Return the reason for an operating system error: "not found", "permission denied"."""
    if isinstance(error, FileNotFoundError):
        return "not found"
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def is_out_of_memory(error: Exception) -> bool:
    """Return whether Python or PyTorch ran out of memory. On a CPU, only the message of PyTorch's error tells."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | TypeError) and any(text in str(error) for text in ALLOCATION_FAILURES)
