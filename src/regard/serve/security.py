"""What stands before the application: who may ask, how much, and what browsers are told.

    served = Guard(application, settings)

It looks at a request's headers, and then reads its body whole, within limits, before
anything is made of it; it answers errors of ours; and it logs every request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from regard.serve.batching import OUR_BUG
from regard.serve.log import log, log_bug
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
BODY_SECONDS = 10.0
"""That a client may take to send its request."""

SEND_SECONDS = 10.0
"""That a client may take to read a part of its answer before the next one is sent."""

CROWD = 4
"""Requests that are let in for each place in a queue; the rest would only wait to be refused."""

MOST_THROWN_AWAY = 50_000_000
"""Bytes of a request that is too large, before the connection is closed."""

RETRY_SECONDS = 1
WENT_AWAY = 499
"""The status by which the log says that nobody was there to be answered."""


class RequestError(Exception):
    """An answer that is an error: its status, one line, and headers."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status, self.line, self.headers = status, line, dict(headers or {})


class UnreadError(Exception):
    """A client does not read its answer."""


def busy(line: str) -> RequestError:
    """The answer of a server that has too much to do."""
    return RequestError(503, line, {"retry-after": str(RETRY_SECONDS)})


class Guard:
    """An ASGI application around another."""

    def __init__(self, inner: Any, settings: ServeSettings) -> None:
        self.inner, self.settings = inner, settings
        self.inside = 0  # requests that are being answered
        self.hosts = {*LOOPBACK, *settings.allow_hosts} if settings.local else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; the application's own start and stop go through."""
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        began, answer = time.monotonic(), Answer(send)
        self.inside += 1
        try:
            if self.inside > CROWD * self.settings.queue:
                raise busy("there are too many requests at once; try again later")
            self._check(scope)
            body = await self._body(receive)
            await self.inner(scope, replay(body, receive), answer.send)
        except RequestError as refused:
            await answer.refuse(refused)
        except UnreadError:
            answer.status = WENT_AWAY  # the connection is closed, since the answer is not whole
        except Exception as error:
            log_bug(error)
            await answer.refuse(RequestError(500, OUR_BUG))
        finally:
            self.inside -= 1
            log_request(scope, answer.status, time.monotonic() - began)

    def _check(self, scope: Any) -> None:
        """Raise `RequestError` for a request whose body is not even read; the server throws it away as it comes."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self.hosts is not None and host_of(headers.get("host", "")) not in self.hosts:
            raise RequestError(421, "the Host header names another server; --allow-hosts lets its name in")
        if self.settings.token is not None and scope["path"].startswith("/api/"):
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not same(shown.strip(), self.settings.token):
                line = "a bearer token is needed, in the header Authorization"
                raise RequestError(401, line, {"www-authenticate": "Bearer"})
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            raise RequestError(415, "JSON is needed, with the header Content-Type: application/json")

    async def _body(self, receive: Any) -> bytes:
        """What the client sends; of what is too large, only so much that this is seen.

        The rest is thrown away as it comes, since many a client reads no answer before it has
        sent all.
        """
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(WENT_AWAY, "the client went away")
                    part = message.get("body", b"")
                    size += len(part)
                    body += part[: self.settings.most_bytes + 1 - len(body)]
                    if size > MOST_THROWN_AWAY:
                        raise self._too_large({"connection": "close"})
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            line = f"the request was not whole after {BODY_SECONDS:g} seconds; send it faster"
            raise RequestError(408, line, {"connection": "close"}) from None
        if size > self.settings.most_bytes:
            raise self._too_large()
        return bytes(body)

    def _too_large(self, headers: Mapping[str, str] | None = None) -> RequestError:
        line = f"the request is larger than {self.settings.most_bytes} bytes; send less at once"
        return RequestError(413, line, headers)


class Answer:
    """What is sent back: with the headers of every answer, and its status known."""

    def __init__(self, send: Any) -> None:
        self._send, self.status = send, 0

    async def send(self, message: Any) -> None:
        """Send on a message of the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message["headers"]}
            extra = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
            message = {**message, "headers": [*message["headers"], *extra]}
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(message)
        except TimeoutError:
            raise UnreadError from None

    async def refuse(self, refused: RequestError) -> None:
        """Send an error, unless an answer has begun already."""
        if self.status:
            return
        body = json.dumps({"error": refused.line}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "cache-control": "no-store"}
        pairs = [(name.encode(), value.encode()) for name, value in {**headers, **refused.headers}.items()]
        await self.send({"type": "http.response.start", "status": refused.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})


def replay(body: bytes, receive: Any) -> Any:
    """What gives a body that was read already, and then what else there is to receive."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return left.pop() if left else await receive()

    return received


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def same(shown: str, token: str) -> bool:
    """Whether two tokens are equal, in a time that does not tell how far they are."""
    digests = [hashlib.sha256(each.encode("utf-8", "surrogatepass")).digest() for each in (shown, token)]
    return hmac.compare_digest(*digests)


def log_request(scope: Any, status: int, seconds: float) -> None:
    """One line for a request: by its route and not its path, which may hold anything."""
    route = getattr(scope.get("route"), "path", None)
    known = scope["method"] in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH")
    method = scope["method"] if known else "other"
    milliseconds = round(1000 * seconds, 1)
    log("request", method=method, route=route, status=status, milliseconds=milliseconds, **scope.get("regard", {}))
