"""Notice that updates have become several times slower, and explain it by the load of the machine."""

from __future__ import annotations

import os
from statistics import median

import torch

from regard.data.pair_check import pluralize

WARM_UP = 5  # first updates, which are slower
MIN_UPDATES = 20  # updates that a median is taken of
MIN_SECONDS = 30.0  # time that the updates of a later median take at least: the load average follows a load slowly
FACTOR = 3.0


class Slowdown:
    """Compares the median time of recent updates with that of the first ones."""

    def __init__(self) -> None:
        self.early: float | None = None  # median of the first updates
        self.times: list[float] = []  # since the last median
        self.reported = False

    def add(self, seconds: float) -> str | None:
        """Add the time of an update; return a note, once, if updates have become several times slower."""
        if self.reported:
            return None
        self.times.append(seconds)
        if self.early is None:
            if len(self.times) == WARM_UP + MIN_UPDATES:
                self.early = median(self.times[WARM_UP:])
                self.times.clear()
            return None
        if len(self.times) < MIN_UPDATES or sum(self.times) < MIN_SECONDS:
            return None
        recent = median(self.times)
        self.times.clear()
        self.reported = recent > FACTOR * self.early
        return describe_slowdown(self.early, recent) if self.reported else None


def describe_slowdown(early: float, recent: float) -> str:
    """Describe a slowdown, its likely reason and what to do about it."""
    note = f"note: updates take {recent / early:.1f} times as long as at the start ({recent:.2g} s, was {early:.2g} s)"
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # not on Windows
    if load is None:
        return f"{note}; see whether other programs are running"
    condition = f"the load average is {load:.1f} on {pluralize(cores, 'core')}, {pluralize(threads, 'thread')} used"
    if load <= cores:
        return f"{note}; {condition}, so other programs are not the likely reason; look for swapping or a CPU limit"
    fewer = ", or press Ctrl-C and resume with --threads 1" if threads > 1 else ""
    return f"{note}; {condition}: other programs compete for the cores; wait until they are done{fewer}"
