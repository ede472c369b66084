"""Measure time and memory with little influence from other programs."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from regard.bench.settings import AttentionBench, CostBench, TimedBench, WatchBench

TimedCall = Callable[[], object]
Tell = Callable[[str], None]
OnDevice = TypeVar("OnDevice", AttentionBench, WatchBench)

TINY = 32  # a length to initialize the libraries with
BUSY = 0.05  # share of CPU time that other programs may use
TICK = 1 / os.sysconf("SC_CLK_TCK")  # unit of CPU time in the system's counters, in seconds
PRELOAD = [
    "__main__",
    "regard.bench.attention",
    "torch.fx.experimental.symbolic_shapes",
]  # the last one is imported on first use


class ProcessEndedError(Exception):
    """A process was killed by the system, which happens when memory runs out."""


@dataclass(frozen=True)
class Timing:
    """The seconds of each call in each round, and whether the machine was quiet."""

    rounds: list[dict[str, float]]
    quiet: bool

    def get_seconds(self, name: str) -> list[float]:
        """Return the seconds of one call in all its rounds."""
        return [round_seconds[name] for round_seconds in self.rounds if name in round_seconds]

    def median_ratio(self, name: str, other: str) -> float:
        """Return the median ratio of the times of two calls over the rounds that have both."""
        return median(
            round_seconds[name] / round_seconds[other]
            for round_seconds in self.rounds
            if name in round_seconds and other in round_seconds
        )


def merge_timings(timings: list[Timing], fewest: int) -> Timing:
    """Merge rounds; drop those on a busy machine if at least `fewest` remain for each call."""
    quiet = [timing for timing in timings if timing.quiet]
    counts = [
        Counter(name for timing in selection for round_seconds in timing.rounds for name in round_seconds)
        for selection in (timings, quiet)
    ]
    selected = quiet if all(counts[1][name] >= fewest for name in counts[0]) else timings
    return Timing(
        [round_seconds for timing in selected for round_seconds in timing.rounds],
        all(timing.quiet for timing in selected),
    )


def time_in_turn(calls: Mapping[str, TimedCall], clock: Callable[[TimedCall], float], settings: TimedBench) -> Timing:
    """Time calls against each other, in up to `repeats` rounds.

    In a round the calls have their turns in an order drawn anew, so that all of them
    meet the machine in the same state. Each has an equal share of `patience`, in
    seconds; when it has used it up, in `fewest` rounds or more, the others go on without
    it. Rounds in which other programs were busy are left out, unless a call was in less
    than `fewest` others.
    """
    for call in calls.values():
        call()  # warm up
    repeats, fewest, share = settings.repeats, settings.fewest, settings.patience / max(1, len(calls))
    order, time_left, quiet = random.Random(), dict.fromkeys(calls, share), Counter[str]()
    rounds: list[tuple[dict[str, float], bool]] = []
    while max(quiet.values(), default=0) < repeats:
        active = [name for name in calls if len(rounds) < fewest or time_left[name] > 0]
        if len(active) < max(1, min(2, len(calls))):
            break  # nothing left to compare
        background, round_seconds = BackgroundLoad(), dict[str, float]()
        for name in order.sample(active, len(active)):
            start = time.perf_counter()
            round_seconds[name] = clock(calls[name])
            time_left[name] -= time.perf_counter() - start
        rounds.append((round_seconds, not background.is_busy()))
        quiet.update(active if rounds[-1][1] else [])
    too_few = {name for name in calls if quiet[name] < min(fewest, repeats)}
    selected = [round_seconds for round_seconds, is_quiet in rounds if is_quiet or too_few & round_seconds.keys()][
        :repeats
    ]
    return Timing(selected, not too_few)


def get_clock(device: torch.device) -> Callable[[TimedCall], float]:
    """Return the timer for a device."""
    return measure_cuda_seconds if device.type == "cuda" else measure_wall_seconds


def add_warmup(clock: Callable[[TimedCall], float]) -> Callable[[TimedCall], float]:
    """Return a timer that runs each call once before it is timed, since other calls change caches and memory."""

    def seconds(call: TimedCall) -> float:
        call()
        return clock(call)

    return seconds


def measure_wall_seconds(call: TimedCall) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_cuda_seconds(call: TimedCall) -> float:
    """Return the seconds that a call takes on the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def memory_of(make_calls: Callable[[OnDevice], list[TimedCall]], settings: OnDevice) -> list[int]:
    """Measure the peak memory of each call in this process, after tiny calls that initialize the libraries."""
    for call in make_calls(replace(settings, length=min(settings.length, TINY))):
        call()
    growth = measure_cuda_growth if torch.device(settings.device).type == "cuda" else measure_resident_growth
    return growth(*make_calls(settings))


def measure_resident_growth(*calls: TimedCall) -> list[int]:
    """Return by how many bytes the peak memory of this process grew with each call; for a new process."""
    before, growth = get_peak_resident(), []
    for call in calls:
        call()
        growth.append(get_peak_resident() - before)
    return growth


def get_peak_resident() -> int:
    """Return the peak resident memory in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def measure_cuda_growth(*calls: TimedCall) -> list[int]:
    """Measure the peak GPU memory of each call in bytes, without what was used before."""
    growth = []
    for call in calls:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        growth.append(torch.cuda.max_memory_allocated() - before)
    return growth


def run_in_fresh_process(function: Callable[..., Any], *arguments: object, spawn: bool = False) -> Any:
    """Run a function in a new process that has only imported torch, and return its result.

    Forked from a server, not started from here: a process that another one executes
    inherits, as its own peak, the peak of the other's resident memory. One that is
    executed `anew` has its libraries and its memory at other addresses each time.
    """
    context: Any = multiprocessing.get_context("spawn" if spawn else "forkserver")
    if not spawn:
        context.set_forkserver_preload(PRELOAD)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_result, args=(sender, torch.get_num_threads(), function, arguments))
    try:
        with block_interrupts():
            process.start()
        sender.close()
        result, failure = receiver.recv()
    except EOFError:
        raise ProcessEndedError from None
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
        receiver.close()
    if failure:
        raise RuntimeError(f"in a process of its own:\n{failure}")
    return result


def measure_apart(
    function: Callable[..., Any], settings: AttentionBench | WatchBench | CostBench, *further: object
) -> Any:
    """Run a function that measures memory: for a GPU in this process, for a CPU in a new one."""
    here = torch.device(settings.device).type == "cuda"
    return function(settings, *further) if here else run_in_fresh_process(function, settings, *further)


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Delay interrupts until the end of the context; processes started inside never get one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send_result(sender: Connection, threads: int, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    """Send the result of a function, or its error."""
    torch.set_num_threads(threads)
    message: tuple[Any, str | None]
    try:
        message = function(*arguments), None
    except Exception:
        message = None, traceback.format_exc()
    with suppress(BrokenPipeError):  # the receiver is gone
        sender.send(message)


def why_too_large(matrices: float, settings: AttentionBench | WatchBench) -> str:
    """Return why there is not enough memory for a number of queries x keys matrices per head; "" if there is."""
    needed = matrices * settings.heads * settings.length**2 * getattr(torch, settings.dtype).itemsize
    free = get_free_memory(torch.device(settings.device))
    if free is None or needed <= free:
        return ""
    return f"skipped: needs about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"


def get_free_memory(device: torch.device) -> int | None:
    """Return the free memory in bytes; None if the system does not say."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # cached by torch for reuse
        return torch.cuda.mem_get_info(device)[0] + cached
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = dict(line.split(":") for line in table.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0])


class BackgroundLoad:
    """Monitor the CPU time of other programs, which slow down a multithreaded program unevenly."""

    def __init__(self) -> None:
        self.start, self.before = time.perf_counter(), self.read_cpu_seconds()

    def is_busy(self) -> bool:
        """Return whether other programs used the CPU since the start; False if the system does not say."""
        busy_seconds = self.read_cpu_seconds() - self.before
        available_seconds = (time.perf_counter() - self.start) * (os.cpu_count() or 1)
        return busy_seconds > max(BUSY * available_seconds, 2 * TICK)

    @staticmethod
    def read_cpu_seconds() -> float:
        """Return the CPU time of all other programs; 0 if the system does not say."""
        table = Path("/proc/stat")
        if not table.exists():
            return 0.0
        user, nice, system, _idle, _waiting, *interrupts = (int(n) for n in table.read_text().split()[1:9])
        return (user + nice + system + sum(interrupts)) * TICK - time.process_time()
