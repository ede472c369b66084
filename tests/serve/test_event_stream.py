import json
import socket
import threading
import time

import pytest

from regard.serve.batching import Worker
from regard.serve.handler import PredictorHandler
from regard.serve.messages import Event
from regard.serve.served_models import ServedModel
from tests.serve.running import running

TIMED_OUT = "the request timed out after 1 seconds; shorten the text or lower max_tokens"


class Slow(PredictorHandler):
    """Waits until `go_on` is set; streams parts in the meantime."""

    part = "x"

    def __init__(self, model):
        super().__init__(model, 1000)
        self.go_on, self.began, self.given_up = threading.Event(), threading.Event(), threading.Event()

    def batch_key(self, request):
        return None

    def handle(self, requests):
        self.began.set()
        try:
            while requests[0].action == "stream" and not self.go_on.is_set():
                time.sleep(0.01)
                yield [Event({"part": self.part}, final=False)]
            self.go_on.wait(10)
            yield [Event({"kind": "tag", "words": list(requests[0].request.input)})]
        finally:
            self.given_up.set()


@pytest.fixture
def slow(models):
    handler = Slow(models["tag"].predictor)
    yield handler
    handler.go_on.set()


def serving(handler, **settings):
    """A server of one slow handler, and its worker."""
    worker = Worker(handler, name="slow", capacity=settings.get("queue_size", 256), batch=32)
    worker.start()
    return worker, running({"slow": ServedModel("slow", handler.predictor, worker)}, **settings)


def connect(client, path="/api/predict"):
    connection = socket.create_connection(("127.0.0.1", client.port))
    body = json.dumps({"text": "a"})
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


def until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("timed out")


def test_a_full_queue_says_when_to_try_again(slow):
    worker, server = serving(slow, queue_size=2)
    with server as client:
        waiting = [connect(client) for _ in range(2)]
        until(lambda: worker.open_count == 2)
        answer = client.ask("/api/predict", {"text": "a"})
        assert (answer.status, answer.error) == (503, "the queue of this model is full; retry later")
        assert answer.headers["retry-after"] == "1"
        waiting[0].close()
        until(lambda: worker.open_count == 1)  # a place is free again
        slow.go_on.set()
        assert client.ask("/api/predict", {"text": "b"}).json["words"] == ["b"]
        waiting[1].close()
    assert 499 in [each["status"] for each in client.logged]


def test_a_client_that_goes_away_from_a_stream_ends_it(slow):
    worker, server = serving(slow)
    with server as client:
        connection = connect(client, "/api/stream")
        assert connection.recv(20).startswith(b"HTTP/1.1 200")
        assert worker.open_count == 1
        connection.close()
        until(lambda: worker.open_count == 0)
        assert slow.given_up.wait(10)


def test_a_client_that_does_not_read_its_answer_is_left(slow, monkeypatch):
    monkeypatch.setattr(slow, "part", "x" * 1_000_000)  # more than lies between a server and a client
    _, server = serving(slow, send_timeout=0.2)
    with server as client:
        connection = connect(client, "/api/stream")
        until(lambda: client.lines)
        connection.close()
    assert [(each["event"], each["status"]) for each in client.logged] == [("request", 499)]


@pytest.mark.slow
def test_what_takes_too_long_is_refused(slow):
    worker, server = serving(slow, timeout=1)
    with server as client:
        first = threading.Thread(target=lambda: answers.append(client.ask("/api/predict", {"text": "a"})))
        answers = []
        first.start()
        assert slow.began.wait(10)
        behind = client.ask("/api/predict", {"text": "b"})
        first.join()
        assert (answers[0].status, answers[0].error) == (422, TIMED_OUT)
        assert (behind.status, behind.error) == (
            503,
            "the server is busy: the request waited 1 seconds; retry later",
        )
        assert worker.open_count == 0


@pytest.mark.slow
def test_an_error_in_the_middle_of_a_stream_is_an_event(slow):
    _, server = serving(slow, timeout=1)
    with server as client:
        events = client.ask("/api/stream", {"text": "a"}).events
        assert events[0] == ("part", {"part": "x"})
        assert events[-1] == ("error", {"error": TIMED_OUT})


def test_stopping_waits_for_who_is_here(slow):
    _, server = serving(slow)
    answers = []
    with server as client:
        thread = threading.Thread(target=lambda: answers.append(client.ask("/api/predict", {"text": "a"})))
        thread.start()
        assert slow.began.wait(10)
        threading.Timer(0.3, slow.go_on.set).start()
    thread.join()
    assert answers[0].json["words"] == ["a"]
