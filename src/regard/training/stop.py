"""Stop on Ctrl-C or SIGTERM: never inside an import, and during training only after the current step."""

from __future__ import annotations

import _thread
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

RETRY_SECONDS = 0.02


class Terminated(KeyboardInterrupt):
    """SIGTERM, which stops training as Ctrl-C does."""


class SignalHandler:
    """Handle SIGINT and SIGTERM inside a context: raise KeyboardInterrupt, or `Terminated`, but not in an import.

    An exception in an import leaves modules half imported, and what uses them afterward fails. So a signal during an
    import waits until it is over. Signals that were ignored before stay ignored. Outside the main thread, which
    alone receives signals, nothing changes.
    """

    def __init__(self) -> None:
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        if threading.current_thread() is threading.main_thread():
            for signal_number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(signal_number) not in (signal.SIG_IGN, None):  # None: not set from Python
                    self._previous_handlers[signal_number] = signal.signal(signal_number, self.handle)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for signal_number, handler in self._previous_handlers.items():
            signal.signal(signal_number, handler)

    def handle(self, signal_number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if is_importing(frame):
            retry = threading.Timer(RETRY_SECONDS, _thread.interrupt_main, (signal_number,))
            retry.daemon = True
            retry.start()
        else:
            raise build_interrupt(signal_number)


class StopRequest(SignalHandler):
    """A flag that the first Ctrl-C (or SIGTERM) sets; a second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        super().__init__()
        self.signal_number: int | None = None

    def __bool__(self) -> bool:
        return self.signal_number is not None

    def __enter__(self) -> StopRequest:
        super().__enter__()
        return self

    def handle(self, signal_number: int, frame: FrameType | None) -> None:
        if self:
            super().handle(signal_number, frame)
        self.signal_number = signal_number

    def raise_interrupt(self) -> None:
        """Raise KeyboardInterrupt, or `Terminated` after a SIGTERM, if a stop was requested."""
        if self.signal_number is not None:
            raise build_interrupt(self.signal_number)


def build_interrupt(signal_number: int) -> KeyboardInterrupt:
    """Return the exception for a signal."""
    return Terminated() if signal_number == signal.SIGTERM else KeyboardInterrupt()


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a frame runs inside an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
