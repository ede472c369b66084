"""Time and memory, measured so that a noisy machine spoils them little."""

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

TINY = 32  # a length that wakes up the libraries
BUSY = 0.05  # the part of the processors that other programs may take
TICK = 1 / os.sysconf("SC_CLK_TCK")  # in which the system counts their time
PRELOAD = ["__main__", "regard.bench.attention", "torch.fx.experimental.symbolic_shapes"]  # the last on first use


class ProcessEndedError(Exception):
    """A process was ended by the system, which does that when memory runs out."""


@dataclass(frozen=True)
class Timing:
    """The seconds of each call in each round that it was in, and whether the machine was quiet meanwhile."""

    rounds: list[dict[str, float]]
    quiet: bool

    def get_seconds(self, name: str) -> list[float]:
        """Those of one call, in all its rounds."""
        return [round_seconds[name] for round_seconds in self.rounds if name in round_seconds]

    def median_ratio(self, name: str, other: str) -> float:
        """How much longer one takes than the other: the median of the ratios within each round that both were in."""
        return median(
            round_seconds[name] / round_seconds[other]
            for round_seconds in self.rounds
            if name in round_seconds and other in round_seconds
        )


def merge_timings(timings: list[Timing], fewest: int) -> Timing:
    """The rounds of all; of those in quiet times alone, where that leaves each call `fewest` or more."""
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
    """Time some calls against each other, in up to `repeats` rounds of the settings.

    In a round the calls have their turns in an order drawn anew, so that all of them
    meet the machine in the same state. Each has an equal share of `patience`, in
    seconds; when it has used it up, in `fewest` rounds or more, the others go on without
    it. Rounds in which other programs were busy are left out, unless a call was in less
    than `fewest` others.
    """
    for call in calls.values():
        call()  # the first time is never the usual one
    repeats, fewest, share = settings.repeats, settings.fewest, settings.patience / max(1, len(calls))
    order, time_left, quiet = random.Random(), dict.fromkeys(calls, share), Counter[str]()
    rounds: list[tuple[dict[str, float], bool]] = []
    while max(quiet.values(), default=0) < repeats:
        active = [name for name in calls if len(rounds) < fewest or time_left[name] > 0]
        if len(active) < max(1, min(2, len(calls))):
            break  # nothing is left to compare with
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
    """What times a call on a device."""
    return measure_cuda_seconds if device.type == "cuda" else measure_wall_seconds


def add_warmup(clock: Callable[[TimedCall], float]) -> Callable[[TimedCall], float]:
    """What times a call right after the same call: another one leaves caches and memory as it needs them itself."""

    def seconds(call: TimedCall) -> float:
        call()
        return clock(call)

    return seconds


def measure_wall_seconds(call: TimedCall) -> float:
    """The seconds a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure_cuda_seconds(call: TimedCall) -> float:
    """The seconds the GPU takes for what a call asks of it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def memory_of(make_calls: Callable[[OnDevice], list[TimedCall]], settings: OnDevice) -> list[int]:
    """The peak memory of each call, in this process; not that of the libraries, which tiny calls wake up before."""
    for call in make_calls(replace(settings, length=min(settings.length, TINY))):
        call()
    growth = measure_cuda_growth if torch.device(settings.device).type == "cuda" else measure_resident_growth
    return growth(*make_calls(settings))


def measure_resident_growth(*calls: TimedCall) -> list[int]:
    """By how many bytes this process's peak of memory has grown after each call; for a fresh process."""
    before, growth = get_peak_resident(), []
    for call in calls:
        call()
        growth.append(get_peak_resident() - before)
    return growth


def get_peak_resident() -> int:
    """The most bytes that were resident so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def measure_cuda_growth(*calls: TimedCall) -> list[int]:
    """The most bytes on the GPU during each call, above those before it."""
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
    """What a function returns in a process that has imported torch and done nothing else.

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
    """What a function finds out about memory: that of a GPU here, that of a CPU in a process of its own."""
    here = torch.device(settings.device).type == "cuda"
    return function(settings, *further) if here else run_in_fresh_process(function, settings, *further)


@contextmanager
def block_interrupts() -> Iterator[None]:
    """An interrupt comes when this is over; a process that is started meanwhile never gets one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send_result(sender: Connection, threads: int, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    """Send what a function returns, or how it failed."""
    torch.set_num_threads(threads)
    message: tuple[Any, str | None]
    try:
        message = function(*arguments), None
    except Exception:
        message = None, traceback.format_exc()
    with suppress(BrokenPipeError):  # nobody waits for it any more
        sender.send(message)


def why_too_large(matrices: float, settings: AttentionBench | WatchBench) -> str:
    """Why there is no memory for so many matrices of queries x keys in each head; nothing where there is."""
    needed = matrices * settings.heads * settings.length**2 * getattr(torch, settings.dtype).itemsize
    free = get_free_memory(torch.device(settings.device))
    if free is None or needed <= free:
        return ""
    return f"skipped: needs about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"


def get_free_memory(device: torch.device) -> int | None:
    """The bytes that are free; None where the system does not say."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for use again
        return torch.cuda.mem_get_info(device)[0] + cached
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = dict(line.split(":") for line in table.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0])


class BackgroundLoad:
    """Watches other programs, whose work makes a program of several threads wait, and no ratio can make good for it."""

    def __init__(self) -> None:
        self.start, self.before = time.perf_counter(), self.read_cpu_seconds()

    def is_busy(self) -> bool:
        """Whether they took a part of the processors since; False where the system does not say."""
        busy_seconds = self.read_cpu_seconds() - self.before
        available_seconds = (time.perf_counter() - self.start) * (os.cpu_count() or 1)
        return busy_seconds > max(BUSY * available_seconds, 2 * TICK)

    @staticmethod
    def read_cpu_seconds() -> float:
        """The processor time of all programs but this one; 0 where the system does not say."""
        table = Path("/proc/stat")
        if not table.exists():
            return 0.0
        user, nice, system, _idle, _waiting, *interrupts = (int(n) for n in table.read_text().split()[1:9])
        return (user + nice + system + sum(interrupts)) * TICK - time.process_time()
