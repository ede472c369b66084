"""Time and memory, measured so that a noisy machine spoils them little."""

from __future__ import annotations

import multiprocessing
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

Call = Callable[[], object]


class OutOfMemory(Exception):
    """A process that was measured was ended by the system."""


def rounds(
    calls: Mapping[str, Call], clock: Callable[[Call], float], *, repeats: int, fewest: int, patience: float
) -> dict[str, list[float]]:
    """The seconds that each call takes in each round.

    In a round every call has its turn, in an order drawn anew, so that all of them
    meet the machine in the same state. After `patience` seconds there are no more
    rounds than `fewest`.
    """
    for call in calls.values():
        call()  # the first time is never the usual one
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    for done in range(repeats):
        if done >= fewest and time.perf_counter() - start > patience:
            break
        for name in order.sample(list(calls), len(calls)):
            seconds[name].append(clock(calls[name]))
    return seconds


def ratio(ours: list[float], theirs: list[float]) -> float:
    """How much longer ours take: the median of the ratios within each round."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def clock_of(device: torch.device) -> Callable[[Call], float]:
    """What times a call on a device."""
    return cuda_seconds if device.type == "cuda" else wall_seconds


def wall_seconds(call: Call) -> float:
    """The seconds a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def cuda_seconds(call: Call) -> float:
    """The seconds the GPU takes for what a call asks of it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def resident_growth(call: Call) -> int:
    """By how many bytes a call raises the most memory that this process ever had; for a fresh process."""
    before = peak_resident()
    call()
    return peak_resident() - before


def peak_resident() -> int:
    """The most bytes that were resident so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def cuda_growth(call: Call) -> int:
    """The most bytes on the GPU during a call, above those before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def in_fresh_process(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function returns in a process that has imported torch and done nothing else.

    Forked from a server, not started from here: a process that another one executes
    inherits, as its own peak, the peak of the other's resident memory.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "regard.bench.cases"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGKILL:
            raise OutOfMemory from None
        raise RuntimeError(f"{function.__name__}{arguments} failed in a process of its own") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    return found


def answer(sender: Connection, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    """Send what a function returns; an interrupt is for the process that waits for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sender.send(function(*arguments))


def free_memory(device: torch.device) -> int | None:
    """The bytes that are free; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = dict(line.split(":") for line in table.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0])
