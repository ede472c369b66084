"""What surrounds a computation: what must be the same when it is done again, and what threads must share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

import torch

from regard.errors import RegardError


@dataclass(frozen=True)
class Autocast:
    """Autocast as it was at one time, to be had again later."""

    device: torch.device
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def now(cls, device: torch.device) -> Autocast:
        """As it is now for a device."""
        return cls(device, torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type))

    def restored(self) -> torch.autocast:
        """A context with it; without its cache, since casts made here know no gradient."""
        return torch.autocast(self.device.type, self.dtype, self.enabled, cache_enabled=False)


class RandomState:
    """The state of the random numbers at one time, to be had again later."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.devices = [device] if device.type == "cuda" else []
        self.cuda = [torch.cuda.get_rng_state(device) for device in self.devices]

    def moved(self) -> bool:
        """Whether numbers were drawn since."""
        now = RandomState(self.device)
        pairs = zip((self.cpu, *self.cuda), (now.cpu, *now.cuda), strict=True)
        return not all(torch.equal(before, after) for before, after in pairs)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """For a while, the same numbers again."""
        with torch.random.fork_rng(self.devices):
            torch.set_rng_state(self.cpu)
            for device, state in zip(self.devices, self.cuda, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield


def refuse_second_derivative() -> None:
    """Raise a `RegardError` inside a backward that should be differentiated again."""
    if torch.is_grad_enabled():
        raise RegardError('attend: this path has no second derivative; take path="reference" where create_graph=True')


_lock = threading.Lock()
_shared: dict[Hashable, tuple[int, ExitStack]] = {}


@contextmanager
def shared(key: Hashable, context: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """A context that changes what all threads see: the first to ask for its key enters it, the last to go leaves it."""
    with _lock:
        count, stack = _shared.get(key, (0, ExitStack()))
        if count == 0:
            stack.enter_context(context())
        _shared[key] = count + 1, stack
    try:
        yield
    finally:
        with _lock:
            count, stack = _shared.pop(key)
            if count > 1:
                _shared[key] = count - 1, stack
            else:
                stack.close()


def uncompiled() -> AbstractContextManager[None]:
    """Run compiled code as plain Python for a while: compiled graphs call no hooks."""
    return shared("uncompiled", lambda: torch.compiler.set_stance("force_eager"))
