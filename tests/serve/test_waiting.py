import json
import socket
import threading
import time

import pytest

from regard.serve.asked import Told
from regard.serve.batching import Worker
from regard.serve.served import Served
from regard.serve.work import Work
from tests.serve.running import running


class Slow(Work):
    """Waits until it is let go on: at once, or step by step."""

    part = "x"

    def __init__(self, model):
        super().__init__(model, 1000)
        self.go_on, self.began, self.given_up = threading.Event(), threading.Event(), threading.Event()

    def key(self, asked):
        return None

    def work(self, several):
        self.began.set()
        try:
            while several[0].action == "stream" and not self.go_on.is_set():
                time.sleep(0.01)
                yield [Told({"part": self.part}, whole=False)]
            self.go_on.wait(10)
            yield [Told({"kind": "tag", "words": list(several[0].request.subject)})]
        finally:
            self.given_up.set()


@pytest.fixture
def slow(models):
    found = Slow(models["tag"].predictor)
    yield found
    found.go_on.set()


def serving(family, **settings):
    """A server of the slow family alone, and its worker."""
    worker = Worker(family, name="slow", places=settings.get("queue", 256), batch=32)
    worker.start()
    return worker, running({"slow": Served("slow", family.predictor, worker)}, **settings)


def connect(client, path="/api/predict"):
    own = socket.create_connection(("127.0.0.1", client.port))
    body = json.dumps({"text": "a"})
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    own.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return own


def until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_a_full_queue_says_when_to_try_again(slow):
    worker, server = serving(slow, queue=2)
    with server as client:
        waiting = [connect(client) for _ in range(2)]
        until(lambda: worker.taken == 2)
        answer = client.ask("/api/predict", {"text": "a"})
        assert (answer.status, answer.error) == (503, "the queue of this model is full; try again later")
        assert answer.headers["retry-after"] == "1"
        waiting[0].close()
        until(lambda: worker.taken == 1)  # a place is free again
        slow.go_on.set()
        assert client.ask("/api/predict", {"text": "b"}).json["words"] == ["b"]
        waiting[1].close()
    assert 499 in [each["status"] for each in client.logged]


def test_a_client_that_goes_away_from_a_stream_ends_it(slow):
    worker, server = serving(slow)
    with server as client:
        own = connect(client, "/api/stream")
        assert own.recv(20).startswith(b"HTTP/1.1 200")
        assert worker.taken == 1
        own.close()
        until(lambda: worker.taken == 0)
        assert slow.given_up.wait(10)


def test_a_client_that_does_not_read_its_answer_is_left(slow, monkeypatch):
    monkeypatch.setattr("regard.serve.security.SEND_SECONDS", 0.2)
    monkeypatch.setattr(slow, "part", "x" * 1_000_000)  # more than lies between a server and a client
    _, server = serving(slow)
    with server as client:
        own = connect(client, "/api/stream")
        until(lambda: client.lines)
        own.close()
    assert [(each["event"], each["status"]) for each in client.logged] == [("request", 499)]


@pytest.mark.slow
def test_what_takes_too_long_is_refused(slow):
    worker, server = serving(slow, seconds=1)
    with server as client:
        first = threading.Thread(target=lambda: answers.append(client.ask("/api/predict", {"text": "a"})))
        answers = []
        first.start()
        assert slow.began.wait(10)
        behind = client.ask("/api/predict", {"text": "b"})
        first.join()
        assert (answers[0].status, answers[0].error) == (422, "the answer would take more than 1 seconds; ask for less")
        assert (behind.status, behind.error) == (
            503,
            "no answer was begun in 1 seconds, so much is asked for; try again later",
        )
        assert worker.taken == 0


@pytest.mark.slow
def test_an_error_in_the_middle_of_a_stream_is_an_event(slow):
    _, server = serving(slow, seconds=1)
    with server as client:
        events = client.ask("/api/stream", {"text": "a"}).events
        assert events[0] == ("part", {"part": "x"})
        assert events[-1] == ("error", {"error": "the answer would take more than 1 seconds; ask for less"})


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
