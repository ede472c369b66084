import socket
import time

import pytest

from regard.serve.app import create_app
from regard.serve.security import POLICY, RequestError, is_same_token, parse_host
from regard.serve.served_models import ModelPool
from regard.serve.settings import ServeSettings
from tests.serve.running import running

ALL = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/api/models", "/nothing", "/serve/static/app.js"])
def test_every_answer_has_the_headers(client, path):
    headers = client.ask(path).headers
    assert {name: headers.get(name) for name in ALL} == ALL


def test_the_policy_lets_nothing_in_from_elsewhere():
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules.pop("require-trusted-types-for") == "'script'"
    assert set(rules.values()) == {"'none'", "'self'"}
    assert rules["default-src"] == "'none'"


def test_without_the_token_nothing_is_told(models):
    line = "missing or wrong bearer token in the Authorization header"
    with running(models, token="correct") as client:
        for shown in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic correct"},
            {"Authorization": "\xff"},
        ):
            paths = ("/api/models", None), ("/api/predict", {"text": "a"}), ("/api/nothing", None), ("/metrics", None)
            for path, body in paths:
                answer = client.ask(path, body, **shown)
                assert (answer.status, answer.error) == (401, line)
                assert answer.headers["www-authenticate"] == "Bearer"
        assert client.ask("/api/models", Authorization="Bearer correct").status == 200
        assert client.ask("/api/predict", {"text": "a b"}, Authorization="bearer correct").status == 200
        assert client.ask("/metrics", Authorization="Bearer correct").status == 200
        assert client.ask("/health").status == 200
        assert client.ask("/ready").status == 200
        assert client.ask("/").status == 200
    assert "correct" not in str(client.lines)
    assert "wrong" not in str(client.lines)


def test_without_the_token_no_body_is_read(models):
    with running(models, token="correct") as client:
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            head = "POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode() + b'{"text"')
            connection.settimeout(5)  # half of what the body may take
            assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
        assert client.ask("/api/predict", b"a" * 10_000_000).status == 401  # and one that sends all gets its answer
        assert client.ask("/api/predict", {"text": "a b"}, Authorization="Bearer correct").status == 200


def test_tokens_are_compared_whole():
    assert is_same_token("a", "a")
    assert not is_same_token("a", "ab")
    assert not is_same_token("", "a")


def test_another_name_may_be_another_page_in_disguise(models):
    with running(models) as client:
        for name in ("localhost", "localhost:80", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"):
            assert client.ask("/health", Host=name).status == 200
        for name in ("[::1].evil.com", "localhost:8765@evil.com"):
            assert client.ask("/health", Host=name).status == 400
        answer = client.ask("/health", Host="evil.example")
        assert (answer.status, answer.error) == (
            421,
            "unknown Host header; add the host name with --allow-hosts",
        )
    with running(models, allow_hosts=("Model.example",)) as client:
        assert client.ask("/health", Host="model.example").status == 200
    with running(models, host="0.0.0.0") as client:
        assert client.ask("/health", Host="evil.example").status == 200


@pytest.mark.parametrize(
    ("header", "name"),
    [("a", "a"), ("A:80", "a"), ("[::1]", "::1"), ("[::1]:80", "::1"), ("", ""), ("a_b.c-d", "a_b.c-d")],
)
def test_the_name_of_a_host(header, name):
    assert parse_host(header) == name


@pytest.mark.parametrize(
    "header",
    [
        "[::1].evil.com",
        "localhost:8765@evil.com",
        "localhost@evil.com",
        "localhost:",
        "localhost:80:80",
        "localhost:http",
        "localhost:123456",
        "localhost/",
        "localhost#a",
        "localhost, evil.com",
        "http://localhost",
        "::1",
        "[::1",
        "[localhost]",
        "localh\xf6st",
        "local%68ost",
    ],
)
def test_a_malformed_host_is_refused(models, header):
    for host in ("127.0.0.1", "0.0.0.0"):
        guard = create_app(ModelPool(models), ServeSettings(host=host))
        with pytest.raises(RequestError) as caught:
            guard._check_headers({"headers": [(b"host", header.encode("latin-1"))], "path": "/", "method": "GET"})
        line = "malformed Host header; expected a host name, with or without a port"
        assert (caught.value.status, caught.value.line) == (400, line)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_of_another_page_is_refused(client, kind):
    answer = client.ask("/api/predict", {"text": "a"}, Content_Type=kind)
    assert (answer.status, answer.error) == (415, "expected Content-Type: application/json")


def test_a_request_that_does_not_end_is_given_up(models):
    with running(models, body_timeout=0.2) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            head = "POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode() + b'{"text"')
            connection.settimeout(10)
            answer = b"".join(iter(lambda: connection.recv(10_000), b""))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.endswith(b'{"error": "the request body was incomplete after 0.2 seconds"}')


def test_a_large_request_that_does_not_end_is_too_large(models):
    head = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with running(models, body_timeout=0.2, max_bytes=100) as client:
        answer = exchange(client, head + b"Content-Length: 1000\r\n\r\n" + b"a" * 200)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b'{"error": "the request must be at most 100 bytes"}')


def test_two_lengths_of_a_body_are_refused(client):
    head = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for lengths in (
        b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\ncontent-length: 13\r\n",
    ):
        answer = exchange(client, head + lengths + b'\r\nd\r\n{"text": "a"}\r\n0\r\n\r\n')
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b'{"error": "Content-Length and Transfer-Encoding cannot be combined"}')
    answer = exchange(client, head + b"Content-Length: 13\r\nContent-Length: 14\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


def exchange(client, request):
    """Send bytes; return all that is sent back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(10_000), b""))


def test_more_requests_than_can_wait_are_refused(models):
    with running(models, queue_size=1) as client:
        head = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: 100\r\n\r\n"
        connections = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(4)]
        for connection in connections:
            connection.sendall(head)
        answer = client.ask("/api/models")
        while answer.status == 200:  # until the others have come
            time.sleep(0.01)
            answer = client.ask("/api/models")
        assert (answer.status, answer.error) == (503, "too many requests; retry later")
        assert answer.headers["retry-after"] == "1"
        assert client.ask("/health").status == 200
        for connection in connections:
            connection.close()


def test_a_request_is_logged_without_its_text(models):
    with running(models) as client:
        client.ask("/api/predict", {"text": "a secret b"})
        client.ask("/a-secret-path?secret")
        client.ask("/serve/static/app.js")
    first, second, third = client.logged
    assert {"event", "method", "route", "status", "model", "action", "characters"} <= set(first)
    assert (first["model"], first["characters"], first["batch_size"], first["status"]) == ("reverse", 10, 1, 200)
    assert (second["route"], second["status"]) == (None, 404)
    assert third["file"] == "/serve/static/app.js"
    assert "secret" not in str(client.lines)
