"""Stream the events of one request from the worker to the client, with timeout and cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from regard.serve.batching import QueuedRequest, QueueFullError, Worker
from regard.serve.messages import Event, Failure, ServerRequest, WorkerEvent
from regard.serve.security import CLIENT_CLOSED_REQUEST, RequestError, build_busy_error


async def stream_events(
    worker: Worker, request: ServerRequest, receive: Any, seconds: float, log: dict[str, Any]
) -> AsyncGenerator[Event, None]:
    """Yield the events of a request, ending with the answer. Cancel it if the client disconnects or it times out.

    Args:
        worker: The worker of the model.
        request: The request to submit.
        receive: The ASGI `receive` function, which reports a disconnect.
        seconds: Timeout of the request.
        log: Updated with the times and the batch size of the request.
    """
    loop, events = asyncio.get_running_loop(), asyncio.Queue[WorkerEvent | None]()

    def on_event(event: WorkerEvent) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(events.put_nowait, event)

    try:
        queued = worker.submit(request, on_event)
    except QueueFullError:
        raise build_busy_error("the queue of this model is full; retry later") from None
    disconnect_task = loop.create_task(wait_for_disconnect(receive, events))
    try:
        while True:
            event = await wait_for_event(events, queued, seconds)
            yield event
            if event.final:
                return
    finally:
        disconnect_task.cancel()
        worker.cancel(queued)
        log |= measure_times(queued)


async def wait_for_disconnect(receive: Any, events: asyncio.Queue[WorkerEvent | None]) -> None:
    """Put None into the queue when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    events.put_nowait(None)


async def wait_for_event(events: asyncio.Queue[WorkerEvent | None], queued: QueuedRequest, seconds: float) -> Event:
    """Return the next event, or raise `RequestError` on failure, timeout or disconnect."""
    try:
        event = await asyncio.wait_for(events.get(), queued.arrived_at + seconds - time.monotonic())
    except TimeoutError:
        if queued.started_at is None:
            raise build_busy_error(f"the server is busy: the request waited {seconds:g} seconds; retry later") from None
        raise RequestError(
            422, f"the request timed out after {seconds:g} seconds; shorten the text or lower max_tokens"
        ) from None
    if event is None:
        raise RequestError(CLIENT_CLOSED_REQUEST, "the client disconnected")
    if isinstance(event, Failure):
        raise RequestError(event.status, event.line)
    return event


def measure_times(queued: QueuedRequest) -> dict[str, Any]:
    """Return the times and the batch size of a request for the log."""
    ended_at = time.monotonic()
    started_at = ended_at if queued.started_at is None else queued.started_at
    return {
        "waiting_ms": round(1000 * (started_at - queued.arrived_at), 1),
        "processing_ms": round(1000 * (ended_at - started_at), 1),
        "batch_size": queued.batch_size,
    }
