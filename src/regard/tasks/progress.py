"""A count of what is done, for actions that go through any number of lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Progress = Callable[[int], object]
"""Told how many are done."""


def parts(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Some items at a time."""
    while several := list(islice(items, size)):
        yield several


@contextmanager
def counted(quiet: bool, what: str = "sources") -> Iterator[Progress | None]:
    """A count of what is done, on a terminal that shows nothing else meanwhile."""
    if quiet or not sys.stderr.isatty() or sys.stdout.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    count = progress.TextColumn("{task.completed:.0f} " + what)
    columns = (progress.SpinnerColumn(), count, progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done: bar.update(task, completed=done)


def after(before: int, show: Progress | None) -> Progress | None:
    """What counts a part of the sources on from those before it."""
    return None if show is None else lambda done: show(before + done)
