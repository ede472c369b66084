"""Server log: one JSON object per line on stderr.

Input and output texts are never logged.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime


def log(event: str, **fields: object) -> None:
    """Write one event to the log."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    write_line(json.dumps({"time": time, "event": event, **fields}))


def write_line(line: str) -> None:
    """Write a line to stderr, ignoring a closed pipe."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def log_bug(error: BaseException) -> None:
    """Log the type and traceback locations of an internal error, without its message, which may contain text."""
    frames = traceback.extract_tb(error.__traceback__)
    locations = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    log("bug", error=type(error).__name__, traceback=locations)
