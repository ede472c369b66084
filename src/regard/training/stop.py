"""Stop on Ctrl-C only after the current step, so that a checkpoint can be saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopRequest:
    """A flag that the first Ctrl-C (or SIGTERM) sets; a second one raises KeyboardInterrupt.

    Signals that were ignored before stay ignored. Outside the main thread, which alone
    receives signals, nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous_handlers: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.requested

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for signal_number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(signal_number) not in (signal.SIG_IGN, None):  # None: not set from Python
                    self._previous_handlers[signal_number] = signal.signal(signal_number, self._request_stop)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for signal_number, handler in self._previous_handlers.items():
            signal.signal(signal_number, handler)

    def _request_stop(self, signal_number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
