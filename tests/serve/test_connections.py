"""Clients that send slowly, send nothing, send nonsense or do not read: through real sockets."""

import http.client
import json
import os
import resource
import socket
import time
from contextlib import ExitStack, closing, contextmanager

import pytest
from fastapi.responses import Response

from regard.serve import connections
from regard.serve.connections import RESERVED_FILES, count_open_files, limit_connections
from regard.serve.settings import ServeSettings
from tests.serve.running import in_process, running

HALF_HEADER = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Half: "
HEAD = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALF_BODY = HEAD + b'Content-Length: 100\r\n\r\n{"text"'
NOT_HTTP = "the request is not valid HTTP/1.1, or its headers exceed 16 kB"
TOO_MANY = "too many connections; retry later"


@contextmanager
def connected(client, *requests):
    """Yield a connection for each request, which has been sent."""
    with ExitStack() as stack:
        found = []
        for request in requests:
            connection = socket.create_connection(("127.0.0.1", client.port), timeout=20)
            stack.enter_context(connection)
            connection.sendall(request)
            found.append(connection)
        yield found


def read_all(connection):
    """Return status and error of the response, after which the server closes; None if it only closes."""
    try:
        content = b"".join(iter(lambda: connection.recv(100_000), b""))
    except ConnectionResetError:
        return None
    if not content:
        return None
    head, _, body = content.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]


def read_status(connection):
    """Read one response with a Content-Length; return its status."""
    with connection.makefile("rb") as file:
        head = b"".join(iter(file.readline, b"\r\n"))
        file.read(int(head.split(b"content-length: ")[1].split()[0]))
        return int(head.split()[1])


def read_metrics(client, connection=None):
    """Return the metrics by name and labels."""
    if connection is None:
        body = client.ask("/metrics").body
    else:
        connection.request("GET", "/metrics")
        body = connection.getresponse().read()
    return dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))


def test_headers_that_do_not_end_are_given_up(models):
    with running(models, header_timeout=0.2) as client:
        with connected(client, HALF_HEADER, b"", b"G") as (half, nothing, letter):
            line = "the request headers were incomplete after 0.2 seconds"
            assert read_all(half) == read_all(letter) == (408, line)
            assert read_all(nothing) is None
        assert read_metrics(client)['regard_connections_closed_total{reason="header_timeout"}'] == "3"


def test_headers_that_come_letter_by_letter_get_no_more_time(models):
    with running(models, header_timeout=0.3) as client, connected(client, HALF_HEADER) as (connection,):
        connection.settimeout(0.05)
        answer = b""
        while not answer:
            connection.sendall(b"a")
            try:
                answer = connection.recv(1000)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_the_headers_of_a_second_request_have_a_limit_too(models):
    with running(models, header_timeout=0.2) as client:
        whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with connected(client, whole) as (connection,):
            assert read_status(connection) == 200
            time.sleep(0.3)  # longer than headers may take; a connection may rest between two requests
            connection.sendall(whole)
            assert read_status(connection) == 200
            connection.sendall(HALF_HEADER)
            assert read_all(connection) == (408, "the request headers were incomplete after 0.2 seconds")


def test_a_body_that_nobody_waits_for_has_a_limit_too(models):
    endless = HEAD + b"Content-Length: 1000000000\r\n\r\n"
    with running(models, body_timeout=0.2, token="secret") as client, connected(client, endless) as (connection,):
        assert connection.recv(10_000).startswith(b"HTTP/1.1 401 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_slowly(connection)


def send_slowly(connection):
    for _ in range(1000):
        connection.sendall(b"a")
        time.sleep(0.01)


def test_new_connections_replace_those_that_wait_longest(models):
    four = [HALF_HEADER, b"", HALF_HEADER, HALF_BODY]
    with (
        running(models, max_connections=5) as client,
        connected(client, *four) as half,
        closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)) as monitor,
    ):
        while read_metrics(client, monitor)["regard_requests_in_flight"] != "2":  # until all have come
            time.sleep(0.01)
        assert client.ask("/health").status == 200
        assert read_all(half[0]) == (503, TOO_MANY)
        with connected(client, *[HALF_HEADER] * 4):
            assert read_all(half[1]) is None
            assert read_all(half[3]) == (503, TOO_MANY)
            assert read_metrics(client, monitor)["regard_requests_in_flight"] == "1"


def test_at_the_limit_the_others_get_their_answers_and_a_new_one_is_refused(models, gpt_run):
    body = json.dumps({"model": "gpt", "text": "the", "max_tokens": 1000, "seed": 1}).encode()
    long = HEAD.replace(b"predict", b"stream") + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    with running(models, max_connections=2) as client, connected(client, long, long) as both:
        for connection in both:
            assert connection.recv(20).startswith(b"HTTP/1.1 200 ")
        answer = client.ask("/api/models")
        assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, TOO_MANY, "1")
        assert answer.headers["connection"] == "close"
        assert client.ask("/health").status == 200
        for connection in both:
            content = b""
            while b"event: answer" not in content:
                content += connection.recv(100_000)
        assert client.ask("/api/models").status == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50 + b"\r\n\r\n",  # TLS
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/x.y\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * 20_000,
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1e3\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http_is_answered_as_json(client, request_):
    with connected(client, request_) as (connection,):
        assert read_all(connection) == (400, NOT_HTTP)


def test_large_headers_are_refused(client):
    answer = client.ask("/health", X="a" * 17_000)
    assert (answer.status, answer.error) == (431, "the request headers must be at most 16384 bytes")


def test_nonsense_after_an_answer_closes_the_connection(models, capfd):
    chunks = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    with running(models, token="secret") as client, connected(client, chunks) as (connection,):
        assert read_status(connection) == 401
        connection.sendall(b"no number\r\n")
        assert connection.recv(10_000) == b""
    assert capfd.readouterr().err == ""


def test_a_client_that_never_reads_is_left(models, monkeypatch):
    with running(models, send_timeout=0.1) as client:
        monkeypatch.setattr("regard.serve.app.build_json_response", lambda _: Response(b"a" * 20_000_000))
        with connected(client, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            for _ in range(500):
                if client.lines and read_metrics(client)["regard_connections"] == "1":
                    break
                time.sleep(0.01)
            else:
                raise AssertionError("the connection is still open")


def test_an_upgrade_is_not_done(client):
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Key": "a", "Sec_WebSocket_Version": "13"}
    assert client.ask("/health", **headers).status == 200


def test_fewer_connections_if_few_files_may_be_open(monkeypatch):
    logged = []
    monkeypatch.setattr(connections, "log", lambda *event, **fields: logged.append((*event, fields)))
    monkeypatch.setattr(connections, "count_open_files", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert limit_connections(ServeSettings()) == 256 - 20 - RESERVED_FILES == 156
    message = "the limit of open files (256) allows 156 connections, not 512"
    assert logged == [("warning", {"message": message})]
    assert limit_connections(ServeSettings(max_connections=100)) == 100
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert limit_connections(ServeSettings()) == 512
    assert len(logged) == 1


def test_open_files_are_counted():
    before = count_open_files()
    with open(os.devnull), open(os.devnull):
        assert count_open_files() == before + 2


@pytest.mark.slow
def test_more_half_requests_than_files_do_not_silence_it(reverse_run):
    with in_process(reverse_run, max_files=256) as process:
        client = process.client
        with connected(client, *[HALF_HEADER] * 300, *[HALF_BODY, b""] * 100):
            for _ in range(3):
                assert client.ask("/health").status == 200
            assert client.ask("/api/predict", {"text": "a b"}).json["text"] == "b a"
            metrics = read_metrics(client)
            assert int(metrics['regard_connections_closed_total{reason="replaced"}']) >= 500 - 256
        logged = process.end()
    (warning,) = [each["message"] for each in logged if each["event"] == "warning"]
    assert warning.startswith("the limit of open files (256) allows ")
    assert {each["event"] for each in logged} == {"warning", "listening", "request", "stopped"}


@pytest.mark.slow
def test_a_signal_stops_it_whatever_its_connections_do(reverse_run):
    idle = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        in_process(reverse_run, "--body-timeout", "0.2") as process,
        connected(process.client, b"", HALF_HEADER, HALF_BODY, idle),
    ):
        time.sleep(0.1)
        process.end()
