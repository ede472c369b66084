"""Context managers that threads share, context variables set for a while, and functions that are never compiled."""

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
def share_context(key: Hashable, context: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Enter a process-wide context once: the first user of a key enters it, the last one exits it."""
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
def set_variable(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Set a context variable for the duration of a `with` block, in this thread or task only."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def disable_compile() -> AbstractContextManager[None]:
    """Return a context that runs compiled code uncompiled, because compiled graphs call no hooks."""
    return share_context("uncompiled", lambda: torch.compiler.set_stance("force_eager"))


def run_uncompiled(function: Callable[..., Value], *arguments: object) -> Value:
    """Call a function; code compiled by `torch.compile` is interrupted for it.

    This is for recurrences, which torch either does not compile or compiles anew for each length.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.disable(function)(*arguments)
    return function(*arguments)
