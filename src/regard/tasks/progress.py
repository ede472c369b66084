"""A progress counter for actions on any number of lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Progress = Callable[[int], object]
"""Called with the number of items done."""


def iter_chunks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of up to `size` items."""
    while chunk := list(islice(items, size)):
        yield chunk


@contextmanager
def show_counter(quiet: bool, unit: str = "sources") -> Iterator[Progress | None]:
    """Show a counter on stderr, if it is a terminal and stdout is not."""
    if quiet or not sys.stderr.isatty() or sys.stdout.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    count = progress.TextColumn("{task.completed:.0f} " + unit)
    columns = (progress.SpinnerColumn(), count, progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done: bar.update(task, completed=done)


def offset_progress(offset: int, show: Progress | None) -> Progress | None:
    """Return a progress function that adds an offset."""
    return None if show is None else lambda done: show(offset + done)
