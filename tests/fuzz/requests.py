"""Random HTTP requests to a server, and what a proper answer to them is."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIMITS = {"header_timeout": 0.5, "body_timeout": 0.5, "max_tokens": 20, "max_beam": 4, "max_bytes": 100_000}
"""Settings of a server to fuzz: short limits, so that no case takes long."""

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW", "get")
PATHS = ("/", "/docs", "/openapi.json", "/health", "/ready", "/metrics", "/api/models", "/api", "/serve/static/app.js")
POSTS = ("/api/predict", "/api/look", "/api/stream")
FIELDS = (
    "text", "model", "beam", "nbest", "max_tokens", "max_length", "length_penalty", "temperature", "top_k", "top_p",
    "greedy", "seed", "second", "kind", "target", "words", "top", "layer", "head", "prompt", "", "\ud800",
)  # fmt: skip
TEXTS = (
    "a b c",
    "",
    " ",
    "\x00",
    "\ud800",
    "\u202e",
    "😀" * 9,
    "a\r\nb",
    "<script>",
    "a" * 10_001,
    "é",
    "\x1b[31m",
    "0",
)
NUMBERS = (0, 1, -1, 3, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 1e-320, True)
HEADERS = (
    "Accept: */*", "Accept-Encoding: gzip, \xff", "Authorization: Bearer \xe9", "Cookie: a=b; c",
    "Expect: 100-continue",
    "Upgrade: websocket\r\nConnection: upgrade", "Upgrade: h2c", "X-Forwarded-For: 1.2.3.4, a", "If-None-Match: *",
    "Range: bytes=0-1", "Origin: null", "X: " + "a" * 5000, "X:", "Content-Encoding: gzip", "Forwarded: host=evil.com",
    "Content-Type: text/plain", "Connection: close, a", "Keep-Alive: timeout=0", "TE: trailers", "Max-Forwards: -1",
)  # fmt: skip
HOSTS = ("localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST", "evil.com", "[::1].evil.com", "localhost:1@evil.com", "")
TYPES = (
    "application/json",
    "application/json; charset=utf-8",
    "application/json;charset=utf-16",
    "text/plain",
    "",
    "\xff",
)


@dataclass(frozen=True)
class Case:
    """A request as bytes."""

    request: bytes
    answered: bool = True  # whether it must be answered; one that is cut off may not
    has_body: bool = True  # whether the response to this method has a body


READY = Case(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
"""Asks whether the server can still answer."""


def draw_value(draw: random.Random, depth: int = 0) -> Any:
    """Return a random JSON value."""
    kind = draw.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return draw.choice(TEXTS)
    if kind == 2:
        return "".join(chr(draw.randrange(1, 0x3000)) for _ in range(draw.randrange(30)))
    if kind == 3:
        return draw.choice(NUMBERS)
    if kind < 6:
        return draw.choice((None, True, False, draw.randrange(-5, 50)))
    if kind == 6:
        return [draw_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(FIELDS): draw_value(draw, depth + 1) for _ in range(draw.randrange(4))}


def draw_options(draw: random.Random) -> bytes:
    """Return a request that is right or nearly right."""
    texts = ("a b c",) * len(TEXTS) + TEXTS
    body: dict[str, Any] = {"text": draw.choice(texts) if draw.random() < 0.9 else draw_value(draw)}
    if draw.random() < 0.5:
        body["model"] = draw.choice(("pairs", "text", "label", "tag", "none"))
    for _ in range(draw.choice((0, 0, 1, 2))):
        body[draw.choice(FIELDS)] = draw.randrange(1, 9) if draw.random() < 0.5 else draw_value(draw)
    return json.dumps(body, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")


def draw_changed(draw: random.Random) -> bytes:
    """Return a request with some bytes changed, removed or repeated."""
    body = bytearray(draw_options(draw))
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(body) + 1)
        body[at : at + draw.randrange(3)] = draw.choice(
            (b"", b"\xff", b'"', b"{", b"\x00", b",", b"1e9", bytes(body[:20]))
        )
    return bytes(body)


def draw_nested(draw: random.Random) -> bytes:
    """Return deeply nested JSON, sometimes without its end."""
    depth = draw.choice((10, 500, 900, 990, 1000, 5000, 40_000))
    start, end = draw.choice(((b"[", b"]"), (b'{"text": ', b"}")))
    depth = min(depth, 90_000 // len(start))
    inner = start * depth + draw.choice((b"1", b"", b'"a"')) + end * (depth if draw.random() < 0.8 else 0)
    return draw.choice((inner, b'{"text": "a", "model": ' + inner + b"}", b'{"text": ' + inner + b"}"))


def draw_other(draw: random.Random) -> bytes:
    """Return bytes that are hardly a request."""
    return draw.choice(
        (
            b"", b"null", b"[]", b'"a"', b"5", b"NaN", b'{"text": "a"}' * 2,
            b'{"text": "a", "beam": ' + b"9" * 5000 + b"}",
            '{"text": "a"}'.encode("utf-16"), '{"text": "a"}'.encode("utf-32"), b'\xef\xbb\xbf{"text": "a"}',
            draw.randbytes(draw.randrange(300)), b'{"text": "' + b"a" * 120_000 + b'"}', b'{"text": "a", "text": 5}',
            b'{"text": "a", "length_penalty": 1e999}', b'{"text": "\\ud800"}', b'{"text": "a", "beam": -Infinity}',
        )
    )  # fmt: skip


BODIES: tuple[Callable[[random.Random], bytes], ...] = (
    draw_options,
    draw_options,
    draw_changed,
    draw_nested,
    draw_other,
)


def draw_path(draw: random.Random) -> str:
    """Return a path, mostly of the server, with or without a query."""
    path = draw.choice(PATHS + POSTS)
    if draw.random() < 0.2:
        path = draw.choice(
            (path + "/", "/" + path, path + "%00", "/%ff%fe", "/..%2f..", path.upper(), "*", "http://a/b")
        )
    if draw.random() < 0.3:
        query = (f"text={draw.randrange(9)}", "a=%zz", "&&==", "%", "a" * 3000, "model[]=1")
        path += "?" + draw.choice(query)
    return path


def draw_case(draw: random.Random) -> Case:
    """Return a random request."""
    if draw.random() < 0.05:
        return Case(draw.randbytes(draw.randrange(1, 400)) + b"\r\n\r\n")
    is_post = draw.random() < 0.6
    method = "POST" if is_post else draw.choice(METHODS)
    path = draw.choice(POSTS) if is_post and draw.random() < 0.9 else draw_path(draw)
    lines = [f"Host: {'localhost' if draw.random() < 0.85 else draw.choice(HOSTS)}", "Connection: close"]
    lines.append(f"Content-Type: {'application/json' if draw.random() < 0.85 else draw.choice(TYPES)}")
    lines += draw.sample(HEADERS, draw.choice((0, 0, 0, 1, 2)))
    body = draw.choice(BODIES)(draw) if is_post or draw.random() < 0.2 else b""
    framing, body, answered = frame(draw, body)
    draw.shuffle(lines)
    head = "\r\n".join([f"{method} {path} {draw.choice(('HTTP/1.1',) * 19 + ('HTTP/1.0',))}", *lines, *framing, "", ""])
    request = head.encode("latin-1") + body
    if draw.random() < 0.03:
        return Case(request[: draw.randrange(1, len(request))], answered=False)
    return Case(request, answered, has_body=method != "HEAD")


def frame(draw: random.Random, body: bytes) -> tuple[list[str], bytes, bool]:
    """Return headers that give the length of a body, the body as it is sent, and whether it must be answered."""
    kind = draw.random()
    if kind < 0.85:
        return [f"Content-Length: {len(body)}"], body, True
    at = draw.randrange(len(body) + 1)
    parts = [part for part in (body[:at], body[at:]) if part]
    chunked = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"
    if kind < 0.92:
        return ["Transfer-Encoding: chunked"], chunked, True
    if kind < 0.95:
        return ["Transfer-Encoding: chunked", f"Content-Length: {len(body)}"], chunked, len(chunked) < 5000
    wrong = draw.choice(("-1", "1e3", "9" * 30, str(len(body) + 5), "0", "x"))
    return [f"Content-Length: {wrong}"], body, len(body) < 5000


def send(port: int, request: bytes) -> bytes:
    """Send a request and return all that is sent back, until the server closes the connection."""
    content = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(request)
            while part := connection.recv(100_000):
                content += part
        except (BrokenPipeError, ConnectionResetError):
            pass  # closed after an early answer
    return content


def check(case: Case, content: bytes) -> int:
    """Return the status of an answer, 0 if there is none and need be none.

    Raises:
        AssertionError: It is neither a success nor a client's error as one line of JSON.
    """
    if not content:
        assert not case.answered, f"no answer to {case.request[:500]!r}"
        return 0
    content = content.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").removeprefix(b"HTTP/1.1 100 \r\n\r\n")
    head, _, body = content.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert 200 <= status < 300 or status == 304 or 400 <= status < 500, f"{status} for {case.request[:500]!r}"
    if status >= 400 and case.has_body:
        error = json.loads(body)
        assert list(error) == ["error"], f"{body[:500]!r} for {case.request[:500]!r}"
        assert error["error"], f"{body[:500]!r} for {case.request[:500]!r}"
        assert "\n" not in error["error"], f"{body[:500]!r} for {case.request[:500]!r}"
    return status
