"""ASGI middleware: authentication, request limits, security headers and the request log.

    app = Guard(app, settings, Metrics(), routes={"/health"})

It checks the headers, reads the body within limits before the application sees it,
answers internal errors with status 500, and logs every request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import Container, Mapping
from typing import Any

from regard.serve.batching import OUR_BUG
from regard.serve.log import log, log_bug
from regard.serve.metrics import Metrics
from regard.serve.settings import LOOPBACK, ServeSettings

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
PROBES = ("/health", "/ready", "/metrics")
"""Paths for monitoring, which are answered even if there are too many requests or connections."""

TOKEN_PATHS = ("/api/", "/metrics")
"""Prefixes of the paths that need the token, if there is one."""

MAX_HEADER_BYTES = 16_384
"""Maximum size of all headers."""

OVER_LIMIT = "over_limit"
"""Key in the state of a scope whose connection is one too many."""

TOO_MANY_CONNECTIONS = "too many connections; retry later"

HOST = re.compile(r"(?:(?P<name>[a-z0-9_.-]+)|\[(?P<address>[0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE)
"""A Host header: a name or an address, and optionally a port."""

MAX_REQUESTS_PER_PLACE = 4
"""Open requests per place in the queue; more are rejected at once."""

MAX_DISCARDED_BYTES = 50_000_000
"""Bytes of an oversized body to read and discard before closing the connection."""

RETRY_SECONDS = 1
CLIENT_CLOSED_REQUEST = 499
"""Status in the log for a client that disconnected (as in nginx)."""


class RequestError(Exception):
    """An HTTP error: its status, message and headers."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status, self.line, self.headers = status, line, dict(headers or {})


class UnreadError(Exception):
    """The client does not read the response."""


def build_busy_error(line: str, headers: Mapping[str, str] | None = None) -> RequestError:
    """Return a 503 error with a Retry-After header."""
    return RequestError(503, line, {"retry-after": str(RETRY_SECONDS), **(headers or {})})


class Guard:
    """ASGI middleware that guards an application."""

    def __init__(self, app: Any, settings: ServeSettings, metrics: Metrics, routes: Container[str]) -> None:
        self.app, self.settings, self.metrics, self.routes = app, settings, metrics, routes
        self.hosts = {*LOOPBACK, *(name.lower() for name in settings.allow_hosts)} if settings.local else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request; other ASGI scopes are passed through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started_at, response = time.monotonic(), GuardedResponse(send, self.settings.send_timeout)
        self.metrics.in_flight += 1
        try:
            self._check_headers(scope)
            self._check_load(scope)
            body = await self._read_body(receive)
            await self.app(scope, replay(body, receive), response.send)
        except RequestError as refused:
            await response.send_error(refused)
        except UnreadError:
            response.status = CLIENT_CLOSED_REQUEST  # the incomplete response closes the connection
        except Exception as error:
            log_bug(error)
            await response.send_error(RequestError(500, OUR_BUG))
        finally:
            seconds = time.monotonic() - started_at
            self.metrics.in_flight -= 1
            self.metrics.count_request(
                scope["path"] if scope["path"] in self.routes else "other", response.status, seconds
            )
            log_request(scope, response.status, seconds)

    def _check_load(self, scope: Any) -> None:
        """Raise `RequestError` if there are too many connections or requests."""
        if scope["path"] in PROBES:
            return
        if scope.get("state", {}).get(OVER_LIMIT):
            raise build_busy_error(TOO_MANY_CONNECTIONS, {"connection": "close"})
        if self.metrics.in_flight > MAX_REQUESTS_PER_PLACE * self.settings.queue_size:
            raise build_busy_error("too many requests; retry later")

    def _check_headers(self, scope: Any) -> None:
        """Raise `RequestError` for headers that are ambiguous, malformed or wrong, before the body is read."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            raise RequestError(431, f"the request headers must be at most {MAX_HEADER_BYTES} bytes")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if "content-length" in headers and "transfer-encoding" in headers:
            line = "Content-Length and Transfer-Encoding cannot be combined"
            raise RequestError(400, line, {"connection": "close"})
        host = parse_host(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            raise RequestError(421, "unknown Host header; add the host name with --allow-hosts")
        if self.settings.token is not None and scope["path"].startswith(TOKEN_PATHS):
            scheme, _, sent_token = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not is_same_token(sent_token.strip(), self.settings.token):
                line = "missing or wrong bearer token in the Authorization header"
                raise RequestError(401, line, {"www-authenticate": "Bearer"})
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and media_type != "application/json":
            raise RequestError(415, "expected Content-Type: application/json")

    async def _read_body(self, receive: Any) -> bytes:
        """Read the request body, or raise `RequestError` if it is too large or too slow.

        An oversized body is read and discarded, since many clients do not read the response
        before they have sent everything.
        """
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(CLIENT_CLOSED_REQUEST, "the client disconnected")
                    part = message.get("body", b"")
                    size += len(part)
                    body += part[: self.settings.max_bytes + 1 - len(body)]
                    if size > MAX_DISCARDED_BYTES:
                        raise self._build_too_large_error({"connection": "close"})
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            if size > self.settings.max_bytes:
                raise self._build_too_large_error({"connection": "close"}) from None
            line = f"the request body was incomplete after {self.settings.body_timeout:g} seconds"
            raise RequestError(408, line, {"connection": "close"}) from None
        if size > self.settings.max_bytes:
            raise self._build_too_large_error()
        return bytes(body)

    def _build_too_large_error(self, headers: Mapping[str, str] | None = None) -> RequestError:
        line = f"the request must be at most {self.settings.max_bytes} bytes"
        return RequestError(413, line, headers)


class GuardedResponse:
    """The response: adds the security headers and records the status."""

    def __init__(self, send: Any, timeout: float) -> None:
        self._send, self.timeout, self.status = send, timeout, 0

    async def send(self, message: Any) -> None:
        """Forward an ASGI message of the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            header_names = {name for name, _ in message["headers"]}
            extra = [
                (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in header_names
            ]
            message = {**message, "headers": [*message["headers"], *extra]}
        try:
            async with asyncio.timeout(self.timeout):
                await self._send(message)
        except TimeoutError:
            raise UnreadError from None

    async def send_error(self, error: RequestError) -> None:
        """Send an error, unless the response has already started."""
        if self.status:
            return
        body = json.dumps({"error": error.line}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "cache-control": "no-store"}
        pairs = [(name.encode(), value.encode()) for name, value in {**headers, **error.headers}.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})


def replay(body: bytes, receive: Any) -> Any:
    """Return a `receive` function that first yields a body that was already read."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return messages.pop() if messages else await receive()

    return received


def parse_host(header: str) -> str:
    """Return the host name of a Host header in lower case, without the port, or raise `RequestError`.

    An empty header, as HTTP/1.0 clients may send it, gives an empty name.
    """
    match = HOST.fullmatch(header)
    if match is None and header:
        raise RequestError(400, "malformed Host header; expected a host name, with or without a port")
    return (match["name"] or match["address"]).lower() if match else ""


def is_same_token(sent_token: str, token: str) -> bool:
    """Return whether two tokens are equal, in constant time."""
    digests = [hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest() for value in (sent_token, token)]
    return hmac.compare_digest(*digests)


def log_request(scope: Any, status: int, seconds: float) -> None:
    """Log a request by its route; the raw path may contain private text."""
    route = getattr(scope.get("route"), "path", None)
    is_standard = scope["method"] in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH")
    method = scope["method"] if is_standard else "other"
    milliseconds = round(1000 * seconds, 1)
    log("request", method=method, route=route, status=status, milliseconds=milliseconds, **scope.get("regard", {}))
