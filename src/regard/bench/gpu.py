"""Measure what regard computes on a GPU against its peers: device events, medians, peak memory and errors."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import NamedTuple

import torch
from rich.table import Table

from regard.bench.gpu_cases import CASES, Candidate, Goal, GpuCase
from regard.bench.measure import Tell, TimedCall, measure_cuda_growth
from regard.bench.report import get_device_name
from regard.bench.settings import GpuBench
from regard.errors import RegardError, unknown_name

SIZES = (
    "length", "heads", "width", "short_length", "sequences", "kernel_length", "long_length", "layers", "dtype",
)  # fmt: skip
"""The settings that goals are for, with their defaults."""
CACHE = 2**28  # bytes that are written before each call: several times the cache of a GPU
WRITES = 20  # how often, which keeps the GPU busy while Python prepares the call


@dataclass(frozen=True)
class GpuRow:
    """The measurements of one candidate of a case."""

    case: str
    way: str
    ours: bool
    milliseconds: float | None = None  # of the device, the median over rounds
    rounds: int = 0
    ratio: float | None = None  # time relative to the fastest baseline
    bytes: int | None = None  # peak memory, without what was used before the call
    error: float | None = None  # relative, against float64
    reach: Goal | None = None
    aim: Goal | None = None
    note: str = ""  # why something was not measured
    host_milliseconds: float | None = None  # until a call returns, which may be before or after the device is done


class Timing(NamedTuple):
    """The seconds of a call: those of the device, and those until the call returned."""

    device: float
    host: float


@dataclass
class Trial:
    """A candidate that is being measured."""

    candidate: Candidate
    call: TimedCall | None = None
    error: float | None = None
    bytes: int | None = None
    note: str = ""


def select_cases(names: Sequence[str] | None) -> list[GpuCase]:
    """Return the cases with the given names, or all."""
    if names is None:
        return list(CASES.values())
    if not names:
        raise RegardError(f"--only is empty; choose from {', '.join(CASES)}")
    for name in names:
        if name not in CASES:
            raise unknown_name("--only", name, CASES)
    return [CASES[name] for name in dict.fromkeys(names)]


def measure_cases(cases: list[GpuCase], settings: GpuBench, on_progress: Tell) -> Iterator[GpuRow]:
    """Measure cases one after another, until patience is over or the GPU fails; what fails has a note in its row."""
    end = time.monotonic() + settings.patience
    for index, case in enumerate(cases):
        on_progress(case.name)
        reason = "no time was left" if time.monotonic() > end else find_failure(settings)
        if reason:
            rest = ",".join(left.name for left in cases[index:])
            yield GpuRow(case.name, "", True, note=f"not measured: {reason}; continue with --only {rest}")
            return
        yield from measure_case(case, settings)


def find_failure(settings: GpuBench) -> str:
    """Return why the device does not work any more; "" if it does."""
    if torch.device(settings.device).type != "cuda":
        return ""
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError as error:
        return summarize(error)
    return ""


def summarize(error: Exception) -> str:
    """Return an error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def measure_case(case: GpuCase, settings: GpuBench) -> list[GpuRow]:
    """Measure the candidates of a case in turn, after each has run and been checked on its own."""
    torch.compiler.reset()  # torch limits how often one function is compiled
    try:
        trials = [try_candidate(candidate, settings) for candidate in case.build(settings)]
    except Exception as error:
        return [GpuRow(case.name, "", True, note=summarize(error))]
    calls = {trial.candidate.name: trial.call for trial in trials if trial.call is not None}
    timings = time_in_rounds(calls, settings, settings.calls if case.short else 1)
    baselines = [
        median(timing.device for timing in timings[trial.candidate.name])
        for trial in trials
        if trial.call is not None and trial.candidate.baseline and not trial.candidate.ours
    ]
    fastest = min(baselines, default=None)
    has_goals = all(getattr(settings, name) == getattr(GpuBench, name) for name in SIZES)
    return [
        make_row(case, trial, timings.get(trial.candidate.name, []), fastest, has_goals=has_goals) for trial in trials
    ]


def make_row(case: GpuCase, trial: Trial, timings: list[Timing], fastest: float | None, *, has_goals: bool) -> GpuRow:
    """Return the row of a candidate."""
    ours, typical = trial.candidate.ours, median(timing.device for timing in timings) if timings else None
    return GpuRow(
        case.name,
        trial.candidate.name,
        ours,
        None if typical is None else 1000 * typical,
        len(timings),
        None if typical is None or fastest is None else typical / fastest,
        trial.bytes,
        trial.error,
        case.reach if ours and has_goals else None,
        case.aim if ours and has_goals else None,
        trial.note,
        1000 * median(timing.host for timing in timings) if timings else None,
    )


def try_candidate(candidate: Candidate, settings: GpuBench) -> Trial:
    """Run a candidate, check its result and measure its memory; a failure becomes a note."""
    trial = Trial(candidate)
    if candidate.is_compiled and not settings.compiled:
        trial.note = "left out"
        return trial
    try:
        call = candidate.prepare()
        result = call()
        trial.error = candidate.check(result) if candidate.check else None
        del result
        if torch.device(settings.device).type == "cuda":
            (trial.bytes,) = measure_cuda_growth(call)
        trial.call = call
    except Exception as error:  # of torch, a compiler or a package, each with its own
        trial.note = summarize(error)
    return trial


def time_in_rounds(calls: Mapping[str, TimedCall], settings: GpuBench, count: int) -> dict[str, list[Timing]]:
    """Return the seconds of each call in each round, in an order drawn anew in each; a turn is `count` calls."""
    timings: dict[str, list[Timing]] = {name: [] for name in calls}
    clock = CudaClock(settings.device) if torch.device(settings.device).type == "cuda" else None
    end = time.monotonic() + settings.seconds
    for index in range(settings.repeats):
        if index >= settings.fewest and time.monotonic() > end:
            break
        for name in random.sample(list(calls), len(calls)):
            measure = measure_wall_time if clock is None else clock.measure
            timings[name].append(measure(calls[name], count))
    return timings


def measure_wall_time(call: TimedCall, count: int) -> Timing:
    """Return the seconds of a call, the mean of several."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    seconds = (time.perf_counter() - start) / count
    return Timing(seconds, seconds)


class CudaClock:
    """Time calls by device events.

    A single call finds nothing of its inputs in the cache, and the device still busy, so that what Python does before
    the device can start is not part of the device's time. Several calls one after another run as they come.
    """

    def __init__(self, device: str) -> None:
        self.cache = torch.empty(CACHE, dtype=torch.uint8, device=device)

    def measure(self, call: TimedCall, count: int) -> Timing:
        """Return the seconds of a call, the mean of several one after another."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if count > 1:
            call()
        torch.cuda.synchronize()
        for _ in range(WRITES if count == 1 else 0):
            self.cache.zero_()
        start.record()
        before = time.perf_counter()
        for _ in range(count):
            call()
        host = time.perf_counter() - before
        end.record()
        torch.cuda.synchronize()
        return Timing(start.elapsed_time(end) / 1000 / count, host / count)


def make_table(rows: list[GpuRow]) -> Table:
    """Format a table with one line per candidate."""
    table = Table()
    table.add_column("case", no_wrap=True)
    table.add_column("computed by", no_wrap=True)
    for heading in ("ms", "ratio", "host ms", "MB", "error", "reach", "aim"):
        table.add_column(heading, justify="right", no_wrap=heading not in ("reach", "aim"))
    for case, members in groupby(rows, lambda row: row.case):
        for index, row in enumerate(members):
            cells = [
                "" if row.milliseconds is None else f"{row.milliseconds:.3f}",
                "" if row.ratio is None else f"{row.ratio:.2f}x",
                "" if row.host_milliseconds is None else f"{row.host_milliseconds:.2f}",
                "" if row.bytes is None else f"{row.bytes / 1e6:,.0f}",
                "" if row.error is None else f"{row.error:.0e}",
                format_goal(row, row.reach),
                format_goal(row, row.aim),
            ]
            table.add_row("" if index else case, row.way, *cells, style="bold" if row.ours else None)
        table.add_section()
    return table


def format_goal(row: GpuRow, goal: Goal | None) -> str:
    """Format a goal and whether it was met."""
    if goal is None:
        return ""
    time_part = f"{goal.value:g}{goal.unit if goal.unit == 'x' else ' ms'}"
    parts = [f"{time_part} {verdict(row.milliseconds if goal.unit == 'ms' else row.ratio, goal.value)}"]
    if goal.megabytes is not None:
        megabytes = None if row.bytes is None else row.bytes / 1e6
        parts.append(f"{goal.megabytes:g} MB {verdict(megabytes, goal.megabytes)}")
    return ", ".join(parts)


def verdict(measured: float | None, limit: float) -> str:
    """Return whether a limit was met, or a question mark where nothing was measured."""
    if measured is None:
        return "?"
    return "met" if measured <= limit else "MISS"


def describe_conditions(settings: GpuBench) -> str:
    """Describe the conditions of the measurement."""
    return (
        f"{settings.dtype}, {get_device_name(settings.device)}, torch {torch.__version__}. Dot products: "
        f"{settings.heads} heads of width {settings.width}, {settings.length:,} queries and keys; additive: "
        f"{settings.sequences} sequences of {settings.short_length:,}; short calls of attend: {settings.heads} heads, "
        f"{settings.short_length:,}; boxcar and epanechnikov: {settings.heads} heads, {settings.kernel_length:,}; "
        f"long: one head, {settings.long_length:,}; watch: GPT-2, {settings.layers} layers, {settings.length:,} tokens"
        f". Times are medians of up to {settings.repeats} rounds by device events, with an empty cache, on a device "
        f"that is kept busy for a millisecond before; those of short calls are means of {settings.calls} as they come. "
        "Host is the time until the call returns to Python. A ratio is to the fastest peer that computes as much or "
        "less: SDPA for dot products, plain PyTorch or torch.compile for others. Memory is the peak above that before "
        "the call. "
        "The error is relative, against float64, of some rows of an output and their gradients, of one head's "
        "reductions, or of a watched model's states against the unwatched ones."
    )


def iter_notes(rows: list[GpuRow]) -> Iterator[str]:
    """Yield why something was not measured, once for all cases of one reason."""
    cases: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.note:
            cases.setdefault((row.way, row.note), []).append(row.case)
    for (way, note), names in cases.items():
        yield f"{', '.join(names)}{': ' if way else ''}{way}: {note}"
