import threading

import pytest

from regard.errors import RegardError
from regard.serve.asked import Asked, Failed, Told
from regard.serve.batching import FullError, Worker, failure
from regard.tasks.predictor import Request


class Echo:
    """Answers by the text in capitals, in as many steps as it has letters; what holds "!" cannot be read."""

    def __init__(self):
        self.batches, self.open = [], threading.Event()
        self.open.set()

    def key(self, asked):
        return len(asked.request.subject)

    def work(self, several):
        self.batches.append([asked.request.subject for asked in several])
        self.open.wait(10)
        for asked in several:
            if "!" in asked.request.subject:
                raise RegardError(f"cannot read\n{asked.request.subject}")
            if "?" in asked.request.subject:
                raise ZeroDivisionError
        for size in range(1, len(several[0].request.subject)):
            yield [Told({"part": asked.request.subject[:size]}, whole=False) for asked in several]
        yield [Told({"text": asked.request.subject.upper()}) for asked in several]


class Crowd:
    """Clients of one worker."""

    def __init__(self, **settings):
        self.family = Echo()
        self.worker = Worker(self.family, name="echo", **{"places": 100, "batch": 32, **settings})
        self.told, self.changed = {}, threading.Condition()

    def ask(self, text):
        def tell(event):
            with self.changed:
                self.told.setdefault(text, []).append(event)
                self.changed.notify()

        return self.worker.join_queue(Asked("predict", Request(text, None)), tell)

    def wait(self, *texts):
        """The last that each was told, once that is the end."""
        with self.changed:
            assert self.changed.wait_for(lambda: all(map(self.ended, texts)), 10)
            return [self.told[text][-1] for text in texts]

    def ended(self, text):
        last = self.told.get(text, [None])[-1]
        return isinstance(last, Failed) or (last is not None and last.whole)


@pytest.fixture
def crowd():
    found = Crowd()
    yield found
    found.family.open.set()
    if found.worker.is_alive():
        found.worker.stop(5)


def test_what_has_gathered_is_worked_on_together(crowd):
    texts = ["ab", "cd", "e", "fg"]
    for text in texts:
        crowd.ask(text)
    crowd.worker.start()
    assert [each.content for each in crowd.wait(*texts)] == [{"text": text.upper()} for text in texts]
    assert crowd.family.batches == [["ab", "cd", "fg"], ["e"]]


def test_no_batch_is_larger_than_asked_for():
    crowd = Crowd(batch=2)
    texts = ["a", "b", "c", "d", "e"]
    places = [crowd.ask(text) for text in texts]
    crowd.worker.start()
    crowd.wait(*texts)
    crowd.worker.stop(5)
    assert crowd.family.batches == [["a", "b"], ["c", "d"], ["e"]]
    assert [place.together for place in places] == [2, 2, 2, 2, 1]


def test_a_short_text_does_not_wait_for_a_long_one(crowd):
    ends = []
    long = "x" * 50
    for text in (long, "yy"):
        crowd.worker.join_queue(
            Asked("predict", Request(text, None)), lambda event, text=text: ends.append((text, event.whole))
        )
    crowd.worker.start()
    crowd.worker.stop(5)
    assert [text for text, whole in ends if whole] == ["yy", long]
    assert ends[:4] == [(long, False), ("yy", False), (long, False), ("yy", True)]


def test_one_that_cannot_be_read_does_not_spoil_the_others(crowd):
    for text in ("ab", "c!", "d?"):
        crowd.ask(text)
    crowd.worker.start()
    good, bad, bug = crowd.wait("ab", "c!", "d?")
    assert good == Told({"text": "AB"})
    assert bad == Failed(422, "cannot read c!")
    assert bug == Failed(500, "the server erred; this is a bug of ours, and its log says where")
    assert crowd.worker.taken == 0


def test_a_full_queue_takes_no_more():
    crowd = Crowd(places=2)
    first = crowd.ask("a")
    crowd.ask("b")
    with pytest.raises(FullError):
        crowd.ask("c")
    crowd.worker.leave(first)
    crowd.ask("c")
    crowd.worker.start()
    crowd.wait("b", "c")
    crowd.worker.stop(5)
    assert crowd.family.batches == [["b", "c"]]
    assert "a" not in crowd.told


def test_who_leaves_while_being_worked_on_frees_the_place(crowd):
    crowd.family.open.clear()
    place = crowd.ask("x" * 1000)
    crowd.worker.start()
    while not crowd.family.batches:
        pass
    assert crowd.worker.taken == 1
    crowd.worker.leave(place)
    crowd.worker.leave(place)  # twice is once
    assert crowd.worker.taken == 0
    crowd.family.open.set()
    crowd.ask("y")
    crowd.wait("y")
    assert len(crowd.told.get("x" * 1000, [])) <= 1  # it was given up at once
    assert not crowd.worker.groups or crowd.worker.groups[0].places[0].asked.request.subject == "y"


def test_stopping_answers_who_is_here_and_takes_nobody_else(crowd):
    crowd.ask("abc")
    crowd.worker.start()
    crowd.worker.stop(5)
    assert crowd.wait("abc") == [Told({"text": "ABC"})]
    assert not crowd.worker.is_alive()
    with pytest.raises(FullError):
        crowd.ask("d")


def test_no_memory_is_no_bug_of_ours():
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    assert failure(error) == Failed(
        422, "there is not enough memory; try smaller batches, shorter texts or a smaller model"
    )
