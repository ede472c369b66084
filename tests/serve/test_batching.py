import threading

import pytest

from regard.errors import RegardError
from regard.serve.batching import QueueFullError, Worker, to_failure
from regard.serve.messages import Event, Failure, ServerRequest
from regard.tasks.predictor import Request


class Echo:
    """Answers with the text in capitals, one step per letter; fails for "!" and "?"."""

    def __init__(self):
        self.batches, self.open = [], threading.Event()
        self.open.set()

    def batch_key(self, request):
        return len(request.request.input)

    def handle(self, requests):
        self.batches.append([request.request.input for request in requests])
        self.open.wait(10)
        for request in requests:
            if "!" in request.request.input:
                raise RegardError(f"cannot read\n{request.request.input}")
            if "?" in request.request.input:
                raise ZeroDivisionError
        for size in range(1, len(requests[0].request.input)):
            yield [Event({"part": request.request.input[:size]}, final=False) for request in requests]
        yield [Event({"text": request.request.input.upper()}) for request in requests]


class Crowd:
    """Clients of one worker."""

    def __init__(self, **settings):
        self.handler = Echo()
        self.worker = Worker(self.handler, name="echo", **{"capacity": 100, "batch": 32, **settings})
        self.events, self.changed = {}, threading.Condition()

    def ask(self, text):
        def on_event(event):
            with self.changed:
                self.events.setdefault(text, []).append(event)
                self.changed.notify()

        return self.worker.submit(ServerRequest("predict", Request(text, None)), on_event)

    def wait(self, *texts):
        """Wait until all are answered, and return their last events."""
        with self.changed:
            assert self.changed.wait_for(lambda: all(map(self.ended, texts)), 10)
            return [self.events[text][-1] for text in texts]

    def ended(self, text):
        last = self.events.get(text, [None])[-1]
        return isinstance(last, Failure) or (last is not None and last.final)


@pytest.fixture
def crowd():
    crowd = Crowd()
    yield crowd
    crowd.handler.open.set()
    if crowd.worker.is_alive():
        crowd.worker.stop(5)


def test_what_has_gathered_is_worked_on_together(crowd):
    texts = ["ab", "cd", "e", "fg"]
    for text in texts:
        crowd.ask(text)
    crowd.worker.start()
    assert [each.content for each in crowd.wait(*texts)] == [{"text": text.upper()} for text in texts]
    assert crowd.handler.batches == [["ab", "cd", "fg"], ["e"]]


def test_no_batch_is_larger_than_asked_for():
    crowd = Crowd(batch=2)
    texts = ["a", "b", "c", "d", "e"]
    queued = [crowd.ask(text) for text in texts]
    crowd.worker.start()
    crowd.wait(*texts)
    crowd.worker.stop(5)
    assert crowd.handler.batches == [["a", "b"], ["c", "d"], ["e"]]
    assert [request.batch_size for request in queued] == [2, 2, 2, 2, 1]


def test_a_short_text_does_not_wait_for_a_long_one(crowd):
    ends = []
    long = "x" * 50
    for text in (long, "yy"):
        crowd.worker.submit(
            ServerRequest("predict", Request(text, None)), lambda event, text=text: ends.append((text, event.final))
        )
    crowd.worker.start()
    crowd.worker.stop(5)
    assert [text for text, final in ends if final] == ["yy", long]
    assert ends[:4] == [(long, False), ("yy", False), (long, False), ("yy", True)]


def test_one_that_cannot_be_read_does_not_spoil_the_others(crowd):
    for text in ("ab", "c!", "d?"):
        crowd.ask(text)
    crowd.worker.start()
    good, bad, bug = crowd.wait("ab", "c!", "d?")
    assert good == Event({"text": "AB"})
    assert bad == Failure(422, "cannot read c!")
    assert bug == Failure(500, "internal server error; see the server log")
    assert crowd.worker.open_count == 0


def test_a_full_queue_takes_no_more():
    crowd = Crowd(capacity=2)
    first = crowd.ask("a")
    crowd.ask("b")
    with pytest.raises(QueueFullError):
        crowd.ask("c")
    crowd.worker.cancel(first)
    crowd.ask("c")
    crowd.worker.start()
    crowd.wait("b", "c")
    crowd.worker.stop(5)
    assert crowd.handler.batches == [["b", "c"]]
    assert "a" not in crowd.events


def test_who_leaves_while_being_worked_on_frees_the_place(crowd):
    crowd.handler.open.clear()
    place = crowd.ask("x" * 1000)
    crowd.worker.start()
    while not crowd.handler.batches:
        pass
    assert crowd.worker.open_count == 1
    crowd.worker.cancel(place)
    crowd.worker.cancel(place)  # twice is once
    assert crowd.worker.open_count == 0
    crowd.handler.open.set()
    crowd.ask("y")
    crowd.wait("y")
    assert len(crowd.events.get("x" * 1000, [])) <= 1  # it was given up at once
    assert not crowd.worker.batches or crowd.worker.batches[0].requests[0].request.request.input == "y"


def test_stopping_answers_who_is_here_and_takes_nobody_else(crowd):
    crowd.ask("abc")
    crowd.worker.start()
    crowd.worker.stop(5)
    assert crowd.wait("abc") == [Event({"text": "ABC"})]
    assert not crowd.worker.is_alive()
    with pytest.raises(QueueFullError):
        crowd.ask("d")


def test_no_memory_is_no_bug_of_ours():
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    assert to_failure(error) == Failure(422, "out of memory; try smaller batches, shorter texts or a smaller model")
