"""The queue of a model and the thread that works on it.

    worker = Worker(worked, places=256, batch=32)
    worker.start()
    place = worker.join_queue(asked, tell)  # from any thread; `tell` is called in the worker's
    worker.leave(place)

While the model is at work requests gather, and what has gathered is then worked on
together: the busier the server, the larger its batches. What takes many steps, such as
writing a text, goes step by step, with other work in between, so that nobody waits for
a long text to end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from regard.errors import NO_MEMORY, RegardError, is_out_of_memory
from regard.layers.embedding import at_each_step
from regard.serve.asked import Asked, Event, Failed
from regard.serve.log import log_bug

AT_WORK = 16
"""Groups of requests that take turns."""

OUR_BUG = "the server erred; this is a bug of ours, and its log says where"


Steps = Generator[list[Event | None], None, None]
"""What to tell each of some requests, after every step of the work."""


@runtime_checkable
class Worked(Protocol):
    """What works on the requests of a queue."""

    def key(self, asked: Asked) -> Hashable:
        """Requests with equal keys can be worked on together; None is like no other."""

    def work(self, several: Sequence[Asked]) -> Steps:
        """What to tell each after every step; nothing to one whose answer is there."""


class FullError(Exception):
    """There is no place in the queue."""


class GivenUpError(Exception):
    """Nobody waits any more for what a model is at work on."""


@dataclass(eq=False)
class Place:
    """A request in the queue, from when it came until it is answered or given up."""

    asked: Asked
    tell: Callable[[Event], object]
    came: float = field(default_factory=time.monotonic)
    began: float | None = None  # when the model turned to it
    together: int = 1  # how many were worked on with it
    done: bool = False


@dataclass(eq=False)
class Group:
    """Places that are worked on together, and the steps of that."""

    places: list[Place]
    steps: Steps
    told: bool = False  # whether anyone was told anything


class Worker(threading.Thread):
    """The only thread that calls a model."""

    def __init__(self, worked: Worked, *, name: str, places: int, batch: int) -> None:
        super().__init__(name=f"regard-{name}", daemon=True)
        self.worked, self.places, self.batch = worked, places, batch
        self.waiting: deque[Place] = deque()
        self.groups: deque[Group] = deque()
        self.current: Group | None = None  # what the model is at work on
        self.taken = 0  # places that wait or are worked on
        self.stopping = False
        self.changed = threading.Condition()

    def join_queue(self, asked: Asked, tell: Callable[[Event], object]) -> Place:
        """A place in the queue; raises `FullError` where there is none."""
        with self.changed:
            if self.taken >= self.places or self.stopping:
                raise FullError
            place = Place(asked, tell)
            self.waiting.append(place)
            self.taken += 1
            self.changed.notify()
            return place

    def leave(self, place: Place) -> None:
        """Give up a place, whether it waits or is worked on; one that is answered is left already."""
        with self.changed:
            if place.done:
                return
            place.done = True
            self.taken -= 1
            if place.began is None:
                self.waiting.remove(place)

    def check_wanted(self) -> None:
        """Raise `GivenUpError` in the midst of work that nobody waits for any more."""
        if self.current is not None and all(place.done for place in self.current.places):
            raise GivenUpError

    def stop(self, seconds: float) -> None:
        """Take no more requests, and wait until those that are here are answered."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.join(seconds)

    def run(self) -> None:
        with at_each_step(self.check_wanted):
            while self._something_to_do():
                self._begin()
                for group in list(self.groups):
                    self._go_on(group)

    def _something_to_do(self) -> bool:
        """Wait for work; False when there will be none."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.groups or self.stopping)
            return bool(self.waiting or self.groups)

    def _begin(self) -> None:
        """Turn to what has gathered, as far as there is room."""
        with self.changed:
            count = min(len(self.waiting), self.batch) if len(self.groups) < AT_WORK else 0
            places = [self.waiting.popleft() for _ in range(count)]
            for place in places:
                place.began = time.monotonic()
        together: dict[Hashable, list[Place]] = {}
        for place in places:
            key = self._key(place)
            together.setdefault(place if key is None else key, []).append(place)
        for several in together.values():
            self._add(several)

    def _key(self, place: Place) -> Hashable:
        """The key of a request; one that cannot even be read is worked on alone, where its error is told."""
        try:
            return self.worked.key(place.asked)
        except Exception:
            return None

    def _add(self, places: list[Place]) -> None:
        for place in places:
            place.together = len(places)
        self.groups.append(Group(places, self.worked.work([place.asked for place in places])))

    def _go_on(self, group: Group) -> None:
        """One step for a group; it is over at its end, after an error, and when nobody waits for it any more."""
        if all(place.done for place in group.places):
            group.steps.close()
            self.groups.remove(group)
            return
        self.current = group
        try:
            events = next(group.steps, None)
        except GivenUpError:
            self.groups.remove(group)
            return
        except Exception as error:
            self.groups.remove(group)
            self._fail(group, error)
            return
        if events is None:
            self.groups.remove(group)
            return
        group.told = True
        for place, event in zip(group.places, events, strict=True):
            if event is not None:
                self._tell(place, event)

    def _fail(self, group: Group, error: Exception) -> None:
        """Tell what went wrong; where it may be the fault of one, each is tried alone."""
        left = [place for place in group.places if not place.done]
        if len(group.places) > 1 and not group.told:
            for place in left:
                self._add([place])
            return
        for place in left:
            self._tell(place, failure(error))

    def _tell(self, place: Place, event: Event) -> None:
        with self.changed:
            if place.done:
                return
            if isinstance(event, Failed) or event.whole:
                place.done = True
                self.taken -= 1
        place.tell(event)


def failure(error: Exception) -> Failed:
    """What a client is told of an error: all of one that it can put right, nothing of a bug."""
    if isinstance(error, RegardError):
        return Failed(422, " ".join(str(error).splitlines()))
    if is_out_of_memory(error):
        return Failed(422, NO_MEMORY)
    log_bug(error)
    return Failed(500, OUR_BUG)
