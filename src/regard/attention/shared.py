"""Contexts that change what all threads see, entered once and left when the last thread is done; or what one sees."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

Value = TypeVar("Value")

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


@contextmanager
def holding(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Give a variable another value for a while, in this thread or task alone."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def uncompiled() -> AbstractContextManager[None]:
    """Run compiled code as plain Python for a while: compiled graphs call no hooks."""
    return shared("uncompiled", lambda: torch.compiler.set_stance("force_eager"))
