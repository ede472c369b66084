"""Ctrl-C as a wish: the step is finished, the checkpoint saved, and only then training ends."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopAsked:
    """True from the first Ctrl-C (or SIGTERM) on; a second one stops at once.

    A signal that was ignored before still is. Signals reach the main thread alone;
    elsewhere nothing is changed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.asked

    def __enter__(self) -> StopAsked:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: set by another than Python
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
