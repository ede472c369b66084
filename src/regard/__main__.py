"""The entry point of the command: `regard` and `python -m regard`.

It handles Ctrl-C before anything else is imported. Importing PyTorch takes a second or more, and a KeyboardInterrupt
in an import ends in a traceback, or leaves modules half imported.
"""

import os
import signal
import sys
from types import FrameType

from regard.training import stop as stopping
from regard.training.stop import build_interrupt, is_importing

SAVING = (["train"], ["compare"])
"""Commands that save and stop on SIGTERM, as on Ctrl-C."""


def start() -> int:
    """Run the command line of this process and return its exit status."""
    for signal_number in (signal.SIGINT, signal.SIGTERM) if sys.argv[1:2] in SAVING else (signal.SIGINT,):
        if signal.getsignal(signal_number) not in (signal.SIG_IGN, None):  # None: not set from Python
            signal.signal(signal_number, stop)
    stopping.exit_process = exit_at_once
    try:
        from regard.cli import main

        status = main()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop but the exit of Python
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    if status in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        exit_at_once(status)
    return status


def is_training() -> bool:
    """Return whether the command is `regard train`."""
    return sys.argv[1:2] == ["train"]


def stop(signal_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; in an import, end the process, since training has not started then."""
    if not is_importing(frame):
        raise build_interrupt(signal_number)
    exit_at_once(128 + signal_number)


def exit_at_once(status: int) -> None:
    """End the process without the exit functions of libraries, which an interrupt may have left in any state."""
    if is_training() and not stopping.training_reports:
        os.write(2, b"stopped before the first step; nothing was saved\n")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(status)


if __name__ == "__main__":
    sys.exit(start())
