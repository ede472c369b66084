import os

import pytest
import torch

from regard.training.slowdown import Slowdown

SLOW = "note: updates take 4.0 times as long as at the start (2 s, was 0.5 s)"
COMPETE = "other programs compete for the cores; wait until they are done"


@pytest.fixture
def machine(monkeypatch):
    """What sets the load average, the cores and the threads that are found."""

    def pretend(load: float, cores: int, threads: int) -> None:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)

    return pretend


def find_notes(*times: float) -> dict[int, str]:
    """The notes, by the number of the update after which they come."""
    slowdown = Slowdown()
    notes = {number: slowdown.add(seconds) for number, seconds in enumerate(times, 1)}
    return {number: note for number, note in notes.items() if note is not None}


@pytest.mark.parametrize(
    ("load", "cores", "threads", "reason"),
    [
        (9.75, 2, 2, f"9.8 on 2 cores, 2 threads used: {COMPETE}, or press Ctrl-C and resume with --threads 1"),
        (9.75, 1, 1, f"9.8 on 1 core, 1 thread used: {COMPETE}"),
        (2.0, 2, 2, "2.0 on 2 cores, 2 threads used, so other programs are not the likely reason; "
                    "look for swapping or a CPU limit"),
    ],
)  # fmt: skip
def test_the_load_explains_a_slowdown(machine, load, cores, threads, reason):
    machine(load, cores, threads)
    assert find_notes(*[9.0] * 5, *[0.5] * 20, *[2.0] * 20) == {45: f"{SLOW}; the load average is {reason}"}


def test_where_no_load_is_known_none_is_named(machine, monkeypatch):
    machine(0, 2, 2)
    monkeypatch.delattr(os, "getloadavg")
    assert find_notes(*[0.5] * 25, *[2.0] * 20) == {45: f"{SLOW}; see whether other programs are running"}


@pytest.mark.parametrize(
    "later",
    [
        [1.5] * 100,  # three times as long is not yet several times
        [0.5, 0.5, 9.0] * 40,  # single updates
        [2.0] * 9 + [0.5] * 100,  # a short load
    ],
)
def test_less_than_that_is_no_slowdown(machine, later):
    machine(9.75, 2, 2)
    assert find_notes(*[0.5] * 25, *later) == {}


def test_fast_updates_are_watched_for_half_a_minute(machine):
    machine(9.75, 2, 2)
    assert find_notes(*[1 / 64] * 25, *[1 / 8] * 300).keys() == {25 + 240}


def test_a_slowdown_is_told_once(machine):
    machine(9.75, 2, 2)
    assert find_notes(*[0.5] * 25, *[2.0] * 20, *[0.5] * 20, *[9.0] * 100).keys() == {45}
