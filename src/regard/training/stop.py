"""Stop on Ctrl-C or SIGTERM: never inside an import, and during training after the running update, or else at once."""

from __future__ import annotations

import _thread
import select
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

RETRY_SECONDS = 0.02
REPORT_SECONDS = 1.0
"""Time after the first signal until a training that still runs says what it waits for."""
INTERRUPT_SECONDS = 2.0
"""Time after the second signal until a process is ended in which Python has not run since."""

exit_process: Callable[[int], object] | None = None
"""Ends this process with a status. The command sets it; in Python, the process is not ours to end."""

training_reports = False
"""Whether a training has begun that says itself what is kept when it is stopped."""


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
    """A flag that the first Ctrl-C (or SIGTERM) sets; a second one raises KeyboardInterrupt.

    Python handles a signal only between two operations, and one of a large model can take minutes. So a thread watches
    the signals, too.

    Args:
        report_wait: Called in the thread if the context is not left soon after the first signal.
        report_exit: Called in the thread before it ends the process (see `exit_process`), since no exception could be
            raised soon after the second signal.
    """

    def __init__(
        self, report_wait: Callable[[], object] = lambda: None, report_exit: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__()
        self.report_wait, self.report_exit = report_wait, report_exit
        self.signal_number: int | None = None
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        return self.signal_number is not None

    def __enter__(self) -> StopRequest:
        super().__enter__()
        if self._previous_handlers:
            self._receiver, self._sender = socket.socketpair()
            self._sender.setblocking(False)
            self._previous_sender = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self.watch, name="regard-signals", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._thread is not None:
            signal.set_wakeup_fd(self._previous_sender)
            self._sender.close()  # which ends the thread
            self._thread.join()
            self._receiver.close()
        super().__exit__()

    def watch(self) -> None:
        """Watch the signals of the process, in a thread; each is a byte with its number."""
        if not self.receive() or self.is_left(REPORT_SECONDS):
            return
        self.report_wait()
        if (signal_number := self.receive()) and not self.is_left(INTERRUPT_SECONDS) and exit_process is not None:
            self.report_exit()
            exit_process(128 + signal_number)

    def receive(self) -> int:
        """Wait for a signal that stops, and return its number; 0 once the context is left."""
        while received := self._receiver.recv(1):
            if received[0] in self._previous_handlers:
                return received[0]
        return 0

    def is_left(self, seconds: float) -> bool:
        """Wait for some time, or until the context is left; return whether it is."""
        ready, _, _ = select.select([self._receiver], [], [], seconds)
        return bool(ready) and self._receiver.recv(1, socket.MSG_PEEK) == b""

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
