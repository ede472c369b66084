"""HTTP connections with time limits, a limit of their number, and errors as JSON.

    config = uvicorn.Config(app, http=build_connection_class(settings, metrics))

A client that sends its headers too slowly, or that does not read its response, is disconnected. At the
limit of connections, a new one replaces the one that has waited longest for a complete request, so clients
that send nothing cannot keep others out; if all are being answered, the new one gets status 503.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.serve.log import log
from regard.serve.metrics import Metrics
from regard.serve.security import HEADERS, OVER_LIMIT, TOO_MANY_CONNECTIONS, RequestError, build_busy_error
from regard.serve.settings import ServeSettings

ACCEPTED_AT_ONCE = 16
"""Connections that the event loop accepts in one iteration; it takes a few iterations to close one again."""

RESERVED_FILES = 5 * ACCEPTED_AT_ONCE
"""File descriptors kept free for connections that are being accepted or closed."""

NOT_HTTP = "the request is not valid HTTP/1.1, or its headers exceed 16 kB"


def limit_connections(settings: ServeSettings) -> int:
    """Return the maximum number of connections: the setting, or fewer if the limit of open files is too low."""
    if sys.platform == "win32":
        return settings.max_connections
    import resource

    max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if max_files == resource.RLIM_INFINITY:
        return settings.max_connections
    limit = max(1, max_files - count_open_files() - RESERVED_FILES)
    if limit < settings.max_connections:
        message = f"the limit of open files ({max_files}) allows {limit} connections, not {settings.max_connections}"
        log("warning", message=message)
    return min(settings.max_connections, limit)


def count_open_files() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/dev/fd")) - 1  # one was opened to list them


class Connection(H11Protocol):
    """An HTTP/1.1 connection of uvicorn with time limits."""

    settings: ClassVar[ServeSettings]
    metrics: ClassVar[Metrics]
    max_connections: ClassVar[int]

    waiting_since = 0.0  # when it began to wait for its next request
    header_timer: asyncio.TimerHandle | None = None
    body_timer: asyncio.TimerHandle | None = None
    send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.metrics.connections += 1
        self.waiting_since = self.loop.time()
        transport.set_write_buffer_limits(high=0)  # so `pause_writing` is called for any data that cannot be sent
        self._start_header_timer()
        if len(self.connections) > self.max_connections:
            self._replace_oldest()

    def connection_lost(self, exc: Exception | None) -> None:
        self.metrics.connections -= 1
        for timer in (self.header_timer, self.body_timer, self.send_timer):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_header_timer()
        elif self.header_timer is None and self.timeout_keep_alive_task is None:  # first bytes of another request
            self._start_header_timer()
        if self.body_timer is not None and self.conn.their_state is not h11.SEND_BODY:
            self.body_timer.cancel()
            self.body_timer = None

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self.body_timer is None:  # an error that did not wait for it
            self.body_timer = self.loop.call_later(self.settings.body_timeout, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        # `Guard` stops waiting at the timeout and logs it. This is for data that the transport still holds after it.
        self.send_timer = self.loop.call_later(self.settings.send_timeout + 1, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.send_timer is not None:
            self.send_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not valid HTTP."""
        self.refuse(RequestError(400, NOT_HTTP), "invalid")

    def refuse(self, error: RequestError, reason: str) -> None:
        """Close the connection, with an error response if the client has begun a request that is not answered."""
        self.metrics.closed_connections.add(1, reason)
        self._stop_header_timer()
        has_begun = bool(self.conn.trailing_data[0]) or self.conn.their_state is not h11.IDLE
        if has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in build_error_events(error):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application can send nothing more
        self.transport.close()

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to send something before the server can answer."""
        return not self.transport.is_closing() and self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _start_header_timer(self) -> None:
        self.header_timer = self.loop.call_later(self.settings.header_timeout, self._on_header_timeout)

    def _stop_header_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _on_header_timeout(self) -> None:
        line = f"the request headers were incomplete after {self.settings.header_timeout:g} seconds"
        self.refuse(RequestError(408, line), "header_timeout")

    def _replace_oldest(self) -> None:
        """Close the connection that has waited longest for its client; if none waits, mark this one as one too many."""
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        waiting = [other for other in others if other.is_waiting]
        if waiting:
            oldest = min(waiting, key=lambda other: other.waiting_since)
            oldest.refuse(build_busy_error(TOO_MANY_CONNECTIONS), "replaced")
        elif sum(not other.transport.is_closing() for other in others) >= self.max_connections:
            self.app_state = {**self.app_state, OVER_LIMIT: True}  # `Guard` refuses its requests


def build_connection_class(settings: ServeSettings, metrics: Metrics) -> type[Connection]:
    """Return the class of the connections of a server, with its settings."""
    attributes = {"settings": settings, "metrics": metrics, "max_connections": limit_connections(settings)}
    return type("ServerConnection", (Connection,), attributes)


def build_error_events(error: RequestError) -> list[Any]:
    """Return the events of h11 for an error response that closes the connection."""
    body = json.dumps({"error": error.line}).encode()
    headers = {**HEADERS, **error.headers, "content-type": "application/json", "cache-control": "no-store"}
    headers |= {"content-length": str(len(body)), "connection": "close"}
    phrase = HTTPStatus(error.status).phrase.encode()
    response = h11.Response(status_code=error.status, headers=list(headers.items()), reason=phrase)
    return [response, h11.Data(data=body), h11.EndOfMessage()]
