"""Request queue and worker thread of a model, with dynamic batching.

    worker = Worker(handler, name="gpt", capacity=256, batch=32)
    worker.start()
    queued = worker.submit(request, on_event)  # from any thread; `on_event` runs in the worker thread
    worker.cancel(queued)

Requests that arrive while the model is busy are processed together in the next batch.
Batches that take many steps, such as text generation, are interleaved step by step, so
a short request does not wait for a long one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from regard.errors import NO_MEMORY, RegardError, is_out_of_memory
from regard.layers.embedding import check_at_each_step
from regard.serve.log import log_bug
from regard.serve.messages import Failure, ServerRequest, WorkerEvent

MAX_ACTIVE_BATCHES = 16
"""Maximum number of batches that are interleaved."""

OUR_BUG = "internal server error; see the server log"


Steps = Generator[list[WorkerEvent | None], None, None]
"""Events for the requests of a batch, one list per step; None for a request without a new event."""


@runtime_checkable
class RequestHandler(Protocol):
    """Processes batches of requests."""

    def batch_key(self, request: ServerRequest) -> Hashable:
        """Return a key; requests with equal keys can share a batch. None means no batching."""

    def handle(self, requests: Sequence[ServerRequest]) -> Steps:
        """Yield the events of all requests after every step; None for those already answered."""


class QueueFullError(Exception):
    """The queue is full."""


class RequestCanceledError(Exception):
    """All requests of the current batch were canceled."""


@dataclass(eq=False)
class QueuedRequest:
    """A submitted request, until it is answered or canceled."""

    request: ServerRequest
    on_event: Callable[[WorkerEvent], object]
    arrived_at: float = field(default_factory=time.monotonic)
    started_at: float | None = None  # None while it waits
    batch_size: int = 1  # number of requests in its batch
    done: bool = False


@dataclass(eq=False)
class RequestBatch:
    """Requests that are processed together, and their steps."""

    requests: list[QueuedRequest]
    steps: Steps
    has_sent: bool = False  # whether any event was sent


class Worker(threading.Thread):
    """The thread that runs a model."""

    def __init__(self, handler: RequestHandler, *, name: str, capacity: int, batch: int) -> None:
        super().__init__(name=f"regard-{name}", daemon=True)
        self.handler, self.capacity, self.batch = handler, capacity, batch
        self.waiting: deque[QueuedRequest] = deque()
        self.batches: deque[RequestBatch] = deque()
        self.current: RequestBatch | None = None  # the batch being processed
        self.open_count = 0  # requests waiting or being processed
        self.batch_sizes: Counter[int] = Counter()  # size -> number of batches
        self.tokens = 0  # generated tokens of all answers
        self.stopping = False
        self.changed = threading.Condition()

    def submit(self, request: ServerRequest, on_event: Callable[[WorkerEvent], object]) -> QueuedRequest:
        """Add a request to the queue, or raise `QueueFullError`."""
        with self.changed:
            if self.open_count >= self.capacity or self.stopping:
                raise QueueFullError
            queued = QueuedRequest(request, on_event)
            self.waiting.append(queued)
            self.open_count += 1
            self.changed.notify()
            return queued

    def cancel(self, queued: QueuedRequest) -> None:
        """Cancel a waiting or running request. Does nothing if it is already answered."""
        with self.changed:
            if queued.done:
                return
            queued.done = True
            self.open_count -= 1
            if queued.started_at is None:
                self.waiting.remove(queued)

    def raise_if_canceled(self) -> None:
        """Raise `RequestCanceledError` if all requests of the current batch were canceled."""
        if self.current is not None and all(queued.done for queued in self.current.requests):
            raise RequestCanceledError

    def stop(self, seconds: float) -> None:
        """Reject new requests and wait until the open ones are answered."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.join(seconds)

    def run(self) -> None:
        try:
            with check_at_each_step(self.raise_if_canceled):
                while self._wait_for_work():
                    self._start_batches()
                    for batch in list(self.batches):
                        self._run_step(batch)
        except BaseException as error:  # a bug; the thread ends, so its requests would wait in vain
            log_bug(error)
            self._fail_all()

    def _fail_all(self) -> None:
        """Reject new requests and answer the open ones with an error."""
        with self.changed:
            self.stopping = True
            running = [queued for batch in self.batches for queued in batch.requests]
            unanswered = [*self.waiting, *running]
        for queued in unanswered:
            self._send(queued, Failure(500, OUR_BUG))
        self.waiting.clear()
        self.batches.clear()

    def _wait_for_work(self) -> bool:
        """Wait for requests; return False when the worker is stopping and none are left."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.batches or self.stopping)
            return bool(self.waiting or self.batches)

    def _start_batches(self) -> None:
        """Group waiting requests into batches, up to the batch size and the number of active batches."""
        with self.changed:
            count = min(len(self.waiting), self.batch) if len(self.batches) < MAX_ACTIVE_BATCHES else 0
            started = [self.waiting.popleft() for _ in range(count)]
            for queued in started:
                queued.started_at = time.monotonic()
        by_key: dict[Hashable, list[QueuedRequest]] = {}
        for queued in started:
            key = self._get_batch_key(queued)
            by_key.setdefault(queued if key is None else key, []).append(queued)
        for requests in by_key.values():
            self._add_batch(requests)

    def _get_batch_key(self, queued: QueuedRequest) -> Hashable:
        """Return the batch key of a request; None for an invalid one, so that its error is reported separately."""
        try:
            return self.handler.batch_key(queued.request)
        except Exception:
            return None

    def _add_batch(self, requests: list[QueuedRequest]) -> None:
        self.batch_sizes[len(requests)] += 1
        for queued in requests:
            queued.batch_size = len(requests)
        self.batches.append(RequestBatch(requests, self.handler.handle([queued.request for queued in requests])))

    def _run_step(self, batch: RequestBatch) -> None:
        """Run one step of a batch; remove it when it ends, fails or is canceled."""
        if all(queued.done for queued in batch.requests):
            batch.steps.close()
            self.batches.remove(batch)
            return
        self.current = batch
        try:
            events = next(batch.steps, None)
        except RequestCanceledError:
            self.batches.remove(batch)
            return
        except Exception as error:
            self.batches.remove(batch)
            self._handle_error(batch, error)
            return
        if events is None:
            self.batches.remove(batch)
            return
        batch.has_sent = True
        for queued, event in zip(batch.requests, events, strict=True):
            if event is not None:
                self._send(queued, event)

    def _handle_error(self, batch: RequestBatch, error: Exception) -> None:
        """Send the error to the requests of a batch; retry them one by one if only one may be at fault."""
        unanswered = [queued for queued in batch.requests if not queued.done]
        if len(batch.requests) > 1 and not batch.has_sent:
            for queued in unanswered:
                self._add_batch([queued])
            return
        for queued in unanswered:
            self._send(queued, to_failure(error))

    def _send(self, queued: QueuedRequest, event: WorkerEvent) -> None:
        with self.changed:
            if queued.done:
                return
            if isinstance(event, Failure) or event.final:
                queued.done = True
                self.open_count -= 1
                self.tokens += 0 if isinstance(event, Failure) else event.tokens
        queued.on_event(event)


def to_failure(error: Exception) -> Failure:
    """Convert an error to a failure: the message of a `RegardError`, no details of a bug."""
    if isinstance(error, RegardError):
        return Failure(422, " ".join(str(error).splitlines()))
    if is_out_of_memory(error):
        return Failure(422, NO_MEMORY)
    log_bug(error)
    return Failure(500, OUR_BUG)
