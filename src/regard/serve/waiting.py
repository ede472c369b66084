"""A client that waits: its place in the queue, what it is told, and the ways in which waiting ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from regard.serve.asked import Asked, Event, Failed, Told
from regard.serve.batching import FullError, Place, Worker
from regard.serve.security import WENT_AWAY, RequestError, busy


async def told(
    worker: Worker, asked: Asked, receive: Any, seconds: float, log: dict[str, Any]
) -> AsyncGenerator[Told, None]:
    """What the model says, up to the answer. A client that goes away, or waits too long, leaves its place.

    Args:
        worker: Of the model.
        asked: What to ask it.
        receive: That of the request, which tells when the client goes away.
        seconds: To wait at the most.
        log: Gets how long the request waited and was worked on, and with how many others.
    """
    loop, events = asyncio.get_running_loop(), asyncio.Queue[Event | None]()

    def tell(event: Event) -> None:
        with suppress(RuntimeError):  # a loop that is closed has nobody to tell
            loop.call_soon_threadsafe(events.put_nowait, event)

    try:
        place = worker.join_queue(asked, tell)
    except FullError:
        raise busy("the queue of this model is full; try again later") from None
    watcher = loop.create_task(until_gone(receive, events))
    try:
        while True:
            event = await next_event(events, place, seconds)
            yield event
            if event.whole:
                return
    finally:
        watcher.cancel()
        worker.leave(place)
        log |= times(place)


async def until_gone(receive: Any, events: asyncio.Queue[Event | None]) -> None:
    """Put None when the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    events.put_nowait(None)


async def next_event(events: asyncio.Queue[Event | None], place: Place, seconds: float) -> Told:
    """The next thing that is said, or `RequestError`."""
    try:
        event = await asyncio.wait_for(events.get(), place.came + seconds - time.monotonic())
    except TimeoutError:
        if place.began is None:
            raise busy(f"no answer was begun in {seconds:g} seconds, so much is asked for; try again later") from None
        raise RequestError(422, f"the answer would take more than {seconds:g} seconds; ask for less") from None
    if event is None:
        raise RequestError(WENT_AWAY, "the client went away")
    if isinstance(event, Failed):
        raise RequestError(event.status, event.line)
    return event


def times(place: Place) -> dict[str, Any]:
    """How long a place waited, how long it was worked on, and with how many others."""
    now = time.monotonic()
    began = now if place.began is None else place.began
    found = {"waited": round(1000 * (began - place.came), 1), "worked": round(1000 * (now - began), 1)}
    return {**found, "together": place.together}
