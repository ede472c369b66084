"""What a server tells while it runs: a JSON object a line, on stderr.

No text that a user sent, and none that a model wrote, is ever among it.
"""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime


def log(event: str, **fields: object) -> None:
    """Write one line, at once and in one piece."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    write(json.dumps({"time": time, "event": event, **fields}))


def write(line: str) -> None:
    """Put a line where it is read; a log that nobody reads any more stops no server."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def log_bug(error: BaseException) -> None:
    """Write where an error of ours arose; not what it says, which may hold a text."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    log("bug", error=type(error).__name__, places=places)
