"""Measure the attention benchmarks: one row per candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from regard.attention import attend
from regard.bench.cases import NAIVE, BenchCase, CaseGroup, build_groups, make_calls, make_inputs
from regard.bench.measure import (
    TINY,
    ProcessEndedError,
    Tell,
    TimedCall,
    Timing,
    add_warmup,
    get_clock,
    measure_apart,
    memory_of,
    merge_timings,
    run_in_fresh_process,
    time_in_turn,
    why_too_large,
)
from regard.bench.settings import AttentionBench, CostBench, GpuBench, WatchBench
from regard.errors import RegardError, unknown_name

COMPILED = "torch.compile"
LENGTHS = (1, 2, 4, 8)  # multiples of the length at which memory is compared
DIRECTIONS = ("forward", "backward")  # backward includes the forward pass


@dataclass(frozen=True)
class Cost:
    """Time and memory of a candidate in one direction."""

    seconds: float | None = None  # median over rounds
    rounds: int = 0  # number of timed rounds
    quiet: bool = True  # no other program was busy
    ratios: dict[str, float] = field(default_factory=dict)  # time relative to each peer of the group
    fastest: str | None = None  # the peer with the lowest median
    bytes: int | None = None  # peak memory, without what was used before the call

    @property
    def ratio(self) -> float | None:
        """The ratio to the fastest peer."""
        return None if self.fastest is None else self.ratios[self.fastest]


@dataclass(frozen=True)
class AttentionRow:
    """The measurements of one candidate."""

    group: str
    case: str
    ours: bool
    forward: Cost
    backward: Cost
    notes: tuple[str, ...] = ()  # why something was not measured


@dataclass(frozen=True)
class Growth:
    """Peak memory of attention and reductions of its weights at one length."""

    group: str
    length: int
    bytes: int


def select_groups(settings: AttentionBench, names: Sequence[str] | None) -> list[CaseGroup]:
    """Return the groups with the given names, or all groups."""
    groups = build_groups(settings)
    if names is None:
        return list(groups.values())
    if not names:
        raise RegardError(f"--scores is empty; choose from {', '.join(groups)}")
    for name in names:
        if name not in groups:
            raise unknown_name("--scores", name, groups)
    return [groups[name] for name in dict.fromkeys(names)]


def add_compiled(group: CaseGroup) -> CaseGroup:
    """Return a group with a compiled copy after each plain PyTorch case."""
    cases: list[BenchCase] = []
    for case in group.cases:
        cases.append(case)
        if case.name == NAIVE:
            cases.append(replace(case, name=COMPILED, attention=torch.compile(case.attention, dynamic=False)))
    return replace(group, cases=tuple(cases))


def check_device(settings: AttentionBench | WatchBench | CostBench | GpuBench) -> None:
    """Raise a `RegardError` if the device is not available or cannot hold tensors."""
    try:
        torch.zeros(1, device=settings.device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RegardError(f'--device: "{settings.device}" cannot be used here: {reason}') from None


def is_compiler_available(settings: AttentionBench) -> bool:
    """Return whether torch.compile works on this machine."""
    try:
        torch.compile(torch.sin)(torch.zeros(8, device=settings.device))
    except Exception:  # a missing compiler, header or library raises different errors
        return False
    return True


def measure_groups(groups: list[CaseGroup], settings: AttentionBench, on_progress: Tell) -> Iterator[AttentionRow]:
    """Measure every case of the groups, and yield one row per case.

    On a CPU they are timed in several sweeps, in each of which every group has a process
    of its own and a share of its rounds and patience. So a bad minute of the machine
    falls on a few rounds of several groups, not on all rounds of one.
    """
    measurements = [GroupMeasurement(group, settings, on_progress) for group in groups]
    for sweep in range(max((measurement.sweeps for measurement in measurements), default=0)):
        for measurement in measurements:
            measurement.time(sweep)
    for measurement in measurements:
        yield from measurement.iter_rows()


class GroupMeasurement:
    """A group that is being measured."""

    def __init__(self, group: CaseGroup, settings: AttentionBench, on_progress: Tell) -> None:
        self.group, self.settings, self.on_progress, self.sweeps = (
            group,
            settings,
            on_progress,
            count_sweeps(group, settings),
        )
        self.notes: dict[str, list[str]] = {case.name: [] for case in group.cases}
        self.timings: dict[str, list[Timing]] = {direction: [] for direction in group.directions}
        self.cases: list[BenchCase] = []  # cases that can run
        self.names: dict[str, list[str]] = {}  # names of timed cases, by direction

    def time(self, sweep: int) -> None:
        """Time one sweep in both directions; do nothing if all sweeps are done."""
        if sweep >= self.sweeps:
            return
        if sweep == 0:
            self.cases = select_runnable(self.group, self.settings, self.notes)
        for direction in self.group.directions:
            self.on_progress(f"{self.group.name}, {direction}: timing, {sweep + 1} of {self.sweeps}")
            if sweep == 0:
                self.names[direction] = [case.name for case in self.cases if self.fits(case, direction)]
            names = self.names[direction]
            try:
                timing = time_cases(self.group, names, direction, self.settings, sweep) if names else Timing([], True)
            except ProcessEndedError:
                for name in names:
                    self.notes[name].append(f"{direction}: a process was ended by the system while it timed this group")
                self.names[direction] = []
            else:
                self.timings[direction].append(timing)

    def fits(self, case: BenchCase, direction: str) -> bool:
        """Return whether there is enough memory for a case; add a note if not."""
        why = why_too_large(case.peak_matrices[DIRECTIONS.index(direction)], self.settings)
        if why:
            self.notes[case.name].append(f"{direction} {why}")
        return not why

    def iter_rows(self) -> Iterator[AttentionRow]:
        """Measure the memory of each case and return the rows."""
        costs: dict[str, dict[str, Cost]] = {direction: {} for direction in DIRECTIONS}
        for direction, names in self.names.items():
            timing = merge_timings(self.timings[direction], self.settings.fewest)
            costs[direction] = compute_costs(self.group, names, timing)
        for case in self.cases:
            self.on_progress(f"{self.group.name}, {case.name}: memory")
            directions = [direction for direction in self.names if case.name in costs[direction]]
            peaks = measure_memory(self.group, case, directions, self.settings, self.notes[case.name])
            for direction, peak in peaks.items():
                costs[direction][case.name] = replace(costs[direction][case.name], bytes=peak)
        for case in self.group.cases:
            forward, backward = (costs[direction].get(case.name, Cost()) for direction in DIRECTIONS)
            yield AttentionRow(self.group.name, case.name, case.ours, forward, backward, tuple(self.notes[case.name]))


def has_compiled(group: CaseGroup) -> bool:
    """Return whether a case of the group is compiled."""
    return any(case.name == COMPILED for case in group.cases)


def is_timed_in_processes(group: CaseGroup, settings: AttentionBench) -> bool:
    """Return whether a group is timed in several processes.

    Where a process happens to have its memory makes a few hundredths of difference
    between two cases, in all its rounds alike. What is compiled would be so in each.
    """
    return settings.processes > 1 and torch.device(settings.device).type == "cpu" and not has_compiled(group)


def count_sweeps(group: CaseGroup, settings: AttentionBench) -> int:
    """Return the number of sweeps over a group."""
    return min(settings.processes, settings.repeats) if is_timed_in_processes(group, settings) else 1


def count_steps(groups: list[CaseGroup], settings: AttentionBench) -> int:
    """Return the number of progress messages of `measure_groups` if all cases can run."""
    return sum(count_sweeps(group, settings) * len(group.directions) + len(group.cases) for group in groups)


def select_runnable(group: CaseGroup, settings: AttentionBench, notes: dict[str, list[str]]) -> list[BenchCase]:
    """Return the cases that run with this data type and device; add a note for the others."""
    if has_compiled(group):
        torch.compiler.reset()  # torch limits how often one function is compiled, and groups share functions
    tiny = replace(settings, length=min(settings.length, TINY))
    cases: list[BenchCase] = []
    for case in group.cases:
        try:
            for call in make_calls(group, case, tiny).values():
                call()
        except (RegardError, NotImplementedError) as error:
            notes[case.name].append(str(error).splitlines()[0])
        else:
            cases.append(case)
    return cases


def time_cases(group: CaseGroup, names: list[str], direction: str, settings: AttentionBench, sweep: int) -> Timing:
    """Time cases in turn; with several sweeps, in a new process and for a share of the rounds."""
    if not is_timed_in_processes(group, settings):
        return time_in_this_process(group, names, direction, settings)
    sweeps = count_sweeps(group, settings)
    share = replace(
        settings,
        repeats=len(range(sweep, settings.repeats, sweeps)),
        fewest=math.ceil(settings.fewest / sweeps),
        patience=settings.patience / sweeps,
    )
    timing: Timing = run_in_fresh_process(time_by_name, group.name, names, direction, share, spawn=True)
    return timing


def time_by_name(group_name: str, names: list[str], direction: str, settings: AttentionBench) -> Timing:
    """Time cases of a group, given by name, in this process."""
    return time_in_this_process(build_groups(settings)[group_name], names, direction, settings)


def time_in_this_process(group: CaseGroup, names: list[str], direction: str, settings: AttentionBench) -> Timing:
    """Time cases in turn in this process."""
    calls = {name: make_calls(group, group.find_case(name), settings)[direction] for name in names}
    clock = add_warmup(get_clock(torch.device(settings.device)))
    return time_in_turn(calls, clock, settings)


def compute_costs(group: CaseGroup, names: list[str], timing: Timing) -> dict[str, Cost]:
    """Return the time of each case and its ratio to each peer."""
    times = {name: timing.get_seconds(name) for name in names}
    peers = [name for name in names if not group.find_case(name).ours]
    fastest = min(peers, key=lambda name: median(times[name]), default=None)

    def cost(name: str) -> Cost:
        ratios = {peer: timing.median_ratio(name, peer) for peer in peers}
        return Cost(median(times[name]), len(times[name]), timing.quiet, ratios, fastest)

    return {name: cost(name) for name in names}


def measure_memory(
    group: CaseGroup, case: BenchCase, directions: list[str], settings: AttentionBench, notes: list[str]
) -> dict[str, int]:
    """Measure the peak memory of a case in each direction."""
    if case.name == COMPILED or not directions:
        return {}  # it would measure the compiler's memory
    try:
        peaks: dict[str, int] = measure_apart(measure_case_memory, settings, group.name, case.name, directions)
    except ProcessEndedError:
        notes.append("ended by the system while its memory was measured")
        return {}
    return peaks


def measure_case_memory(
    settings: AttentionBench, group_name: str, case_name: str, directions: list[str]
) -> dict[str, int]:
    """Measure the peak memory of a case in this process."""
    group = build_groups(settings)[group_name]

    def calls(settings: AttentionBench) -> list[TimedCall]:
        made = make_calls(group, group.find_case(case_name), settings)
        return [made[direction] for direction in directions]

    return dict(zip(directions, memory_of(calls, settings), strict=True))


def measure_growth(settings: AttentionBench, on_progress: Tell) -> Iterator[Growth]:
    """Measure the peak memory of `attend` and all three reductions at growing lengths."""
    for times in LENGTHS:
        longer = replace(settings, length=times * settings.length)
        on_progress(f"memory at length {longer.length}")
        (peak,) = measure_apart(measure_reduction_memory, longer)
        yield Growth("growth", longer.length, peak)


def measure_reduction_memory(settings: AttentionBench) -> list[int]:
    """Measure the peak memory of attention and reductions of its weights in this process."""
    return memory_of(lambda settings: [make_reduction_call(settings)], settings)


def make_reduction_call(settings: AttentionBench) -> TimedCall:
    """Compute attention and all three reductions of its weights."""
    query, keys, values, _ = make_inputs(settings)

    def call() -> object:
        output, weights = attend(query, keys, values, return_weights=True)
        return output, weights.reduce("top:5", "received", "entropy")

    return call
