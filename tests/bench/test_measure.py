import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from regard.bench.measure import (
    TICK,
    BackgroundLoad,
    ProcessEndedError,
    Timing,
    add_warmup,
    get_free_memory,
    measure_resident_growth,
    measure_wall_seconds,
    merge_timings,
    run_in_fresh_process,
    time_in_turn,
)
from regard.bench.settings import AttentionBench


class Machine:
    """Calls that take given times, on a machine that is slower every other round."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.ran: list[str] = []
        self.now = 0.0

    def calls(self) -> dict[str, Callable[[], object]]:
        return {name: partial(self.ran.append, name) for name in self.seconds}

    def clock(self, call: Callable[[], object]) -> float:
        call()
        done = self.ran.count(self.ran[-1]) - 1  # the first was to warm up
        taken = self.seconds[self.ran[-1]] * (1.5 if done % 2 else 1.0)
        self.now += taken
        return taken


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(BackgroundLoad, "read_cpu_seconds", staticmethod(lambda: 0.0))


@pytest.mark.usefixtures("quiet")
def test_every_call_has_its_turn_in_every_round():
    machine = Machine(ours=3.0, theirs=2.0)
    timing = time_in_turn(machine.calls(), machine.clock, AttentionBench(repeats=4, fewest=1, patience=60))
    assert timing == Timing([{"ours": 4.5, "theirs": 3.0}, {"ours": 3.0, "theirs": 2.0}] * 2, quiet=True)
    assert machine.ran[:2] == ["ours", "theirs"]
    turns = [set(machine.ran[start : start + 2]) for start in range(0, 10, 2)]
    assert turns == [{"ours", "theirs"}] * 5


@pytest.mark.usefixtures("quiet")
def test_the_ratio_does_not_see_a_machine_that_changes_its_speed():
    machine = Machine(ours=3.0, theirs=2.0)
    timing = time_in_turn(machine.calls(), machine.clock, AttentionBench(repeats=5, fewest=1, patience=60))
    assert timing.median_ratio("ours", "theirs") == 1.5


@pytest.mark.usefixtures("quiet")
def test_no_patience_leaves_the_fewest_rounds():
    machine = Machine(ours=1.0)
    timing = time_in_turn(machine.calls(), machine.clock, AttentionBench(repeats=9, fewest=3, patience=0))
    assert timing.rounds == [{"ours": 1.5}, {"ours": 1.0}, {"ours": 1.5}]


@pytest.mark.usefixtures("quiet")
def test_quick_calls_go_on_where_a_slow_one_has_used_up_its_share(monkeypatch):
    machine = Machine(ours=1.0, theirs=2.0, slow=100.0)
    monkeypatch.setattr(time, "perf_counter", lambda: machine.now)
    timing = time_in_turn(machine.calls(), machine.clock, AttentionBench(repeats=10, fewest=2, patience=30))
    assert timing.get_seconds("slow") == [150.0, 100.0]
    assert timing.get_seconds("theirs") == [3.0, 2.0, 3.0, 2.0]  # its share are 10 seconds
    assert timing.get_seconds("ours") == [1.5, 1.0, 1.5, 1.0]  # alone it has nothing to be compared with
    assert timing.median_ratio("slow", "ours") == 100.0
    assert timing.quiet


def test_a_busy_round_is_kept_where_a_slow_call_was_in_no_others(monkeypatch):
    busy = iter([True, False, False, True])
    monkeypatch.setattr(BackgroundLoad, "is_busy", lambda self: next(busy, False))
    machine = Machine(ours=1.0, theirs=1.0, slow=100.0)
    monkeypatch.setattr(time, "perf_counter", lambda: machine.now)
    timing = time_in_turn(machine.calls(), machine.clock, AttentionBench(repeats=9, fewest=2, patience=15))
    assert timing.get_seconds("slow") == [150.0, 100.0]
    assert timing.get_seconds("ours") == timing.get_seconds("theirs") == [1.5, 1.0, 1.5]  # all but the fourth
    assert not timing.quiet


def test_rounds_beside_a_busy_program_are_left_out(monkeypatch):
    busy = iter([True, False, False, True])
    monkeypatch.setattr(BackgroundLoad, "is_busy", lambda self: next(busy, False))
    machine = Machine(ours=1.0)
    timing = time_in_turn(machine.calls(), machine.clock, AttentionBench(repeats=3, fewest=3, patience=60))
    assert timing == Timing(
        [{"ours": 1.0}, {"ours": 1.5}, {"ours": 1.5}], quiet=True
    )  # the second, the third and the fifth


def test_a_machine_that_is_never_quiet_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(BackgroundLoad, "is_busy", lambda self: True)
    machine = Machine(ours=1.0)
    timing = time_in_turn(machine.calls(), machine.clock, AttentionBench(repeats=5, fewest=2, patience=0))
    assert timing == Timing([{"ours": 1.5}, {"ours": 1.0}], quiet=False)


def test_the_ratio_is_the_median_of_the_rounds_that_both_were_in():
    rounds = [
        {"ours": 2.0, "theirs": 2.0},
        {"ours": 100.0, "theirs": 1.0},
        {"theirs": 9.0},
        {"ours": 3.0, "theirs": 2.0},
    ]
    assert Timing(rounds, quiet=True).median_ratio("ours", "theirs") == 1.5
    assert Timing(rounds[:2] + rounds[3:], quiet=True).get_seconds("ours") == [2.0, 100.0, 3.0]
    assert Timing(rounds[::3], quiet=True).median_ratio("ours", "theirs") == 1.25


@pytest.mark.parametrize(("fewest", "kept", "quiet"), [(1, [1.0], True), (2, [2.0, 1.0], False)])
def test_a_busy_part_is_left_out_where_enough_others_are_there(fewest, kept, quiet):
    parts = [Timing([{"ours": 2.0}], quiet=False), Timing([{"ours": 1.0}], quiet=True)]
    assert merge_timings(parts, fewest) == Timing([{"ours": seconds} for seconds in kept], quiet)


def test_few_rounds_that_were_all_quiet_are_quiet():
    assert merge_timings([Timing([{"ours": 1.0}], quiet=True)], fewest=3) == Timing([{"ours": 1.0}], quiet=True)


def threads_and_place() -> tuple[int, int]:
    """What this process may use, and where it has some memory."""
    return torch.get_num_threads(), torch.empty(2**22).data_ptr()


@pytest.mark.slow
def test_a_process_has_as_many_threads_and_if_executed_anew_its_memory_elsewhere():
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        result = [run_in_fresh_process(threads_and_place, spawn=True) for _ in range(2)]
    finally:
        torch.set_num_threads(threads)
    assert [number for number, _ in result] == [threads + 1] * 2
    assert result[0] != result[1]


def allocate(megabytes: int) -> list[int]:
    torch.ones(100_000)  # wakes up the threads
    return measure_resident_growth(lambda: torch.ones(megabytes * 250_000), lambda: torch.ones(megabytes * 500_000))


def test_memory_is_seen():
    once, twice = run_in_fresh_process(allocate, 200)
    assert once == pytest.approx(200e6, rel=0.1)
    assert twice == pytest.approx(400e6, rel=0.1)


def test_memory_of_this_process_does_not_count_in_a_fresh_one():
    ours = torch.ones(75_000_000)
    (small, _) = run_in_fresh_process(allocate, 50)
    assert small == pytest.approx(50e6, rel=0.1)
    assert ours.sum() == 75_000_000


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_the_system_ends_is_told_apart():
    with pytest.raises(ProcessEndedError):
        run_in_fresh_process(end)


def test_a_failure_in_a_fresh_process_is_told():
    with pytest.raises(RuntimeError, match=r"in a process of its own:\nTraceback(.|\n)*ZeroDivisionError"):
        run_in_fresh_process(divmod, 1, 0)


def test_a_call_takes_time_and_the_machine_has_memory():
    assert measure_wall_seconds(lambda: sum(range(1000))) > 0
    free = get_free_memory(torch.device("cpu"))
    assert free is None or free > 0


@pytest.mark.parametrize(("taken", "busy"), [(0.15, False), (0.25, True)])
def test_a_neighbor_takes_more_than_a_twentieth(taken, busy, monkeypatch):
    seconds, clock = iter([100.0, 100.0 + taken]), iter([10.0, 12.0])
    monkeypatch.setattr(BackgroundLoad, "read_cpu_seconds", staticmethod(lambda: next(seconds)))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    assert BackgroundLoad().is_busy() is busy  # of the four seconds that two processors have in two


def test_our_own_work_is_no_neighbor(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setattr(Path, "read_text", lambda self: "cpu  100 0 50 900 10 0 5 45 0 0\ncpu0 ...")
    monkeypatch.setattr("time.process_time", lambda: 0.5)
    assert BackgroundLoad.read_cpu_seconds() == 200 * TICK - 0.5  # neither idle (900) nor waiting (10)


def test_a_call_is_timed_right_after_itself():
    made: list[str] = []
    calls = {name: partial(made.append, name) for name in "abc"}

    def clock(call):
        made.append("timed")
        call()
        return 1.0

    time_in_turn(calls, add_warmup(clock), AttentionBench(repeats=3, fewest=3, patience=60.0))
    rounds = made[3:]  # before them each is called once
    assert len(rounds) >= 3 * 3 * 3
    assert all(before == after for before, timed, after in batched(rounds, 3) if timed == "timed")
    assert {timed for _, timed, _ in batched(rounds, 3)} == {"timed"}


def batched(result: list[str], size: int) -> list[list[str]]:
    return [result[start : start + size] for start in range(0, len(result), size)]
