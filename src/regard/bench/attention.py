"""Measures every group of candidates: a row for each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from regard.attention import attend
from regard.bench.cases import NAIVE, Case, Group, all_groups, make_calls, make_inputs
from regard.bench.measure import (
    TINY,
    Call,
    ProcessEndedError,
    Tell,
    Timing,
    after_itself,
    clock_of,
    in_fresh_process,
    joined,
    measure_apart,
    memory_of,
    time_in_turn,
    why_too_large,
)
from regard.bench.settings import Settings, WatchBench
from regard.errors import RegardError, unknown_name

COMPILED = "torch.compile"
LENGTHS = (1, 2, 4, 8)  # times the length, at which memory is compared
DIRECTIONS = ("forward", "backward")  # backward: with the forward before it


@dataclass(frozen=True)
class Cost:
    """What one direction of a candidate costs."""

    seconds: float | None = None  # the median of its rounds
    rounds: int = 0  # in which it was timed
    quiet: bool = True  # no other program was busy meanwhile
    ratios: dict[str, float] = field(default_factory=dict)  # to each peer of the group
    fastest: str | None = None  # the peer of the lowest median
    bytes: int | None = None  # peak memory, above that before the call

    @property
    def ratio(self) -> float | None:
        """To the fastest peer."""
        return None if self.fastest is None else self.ratios[self.fastest]


@dataclass(frozen=True)
class Row:
    """One candidate."""

    group: str
    case: str
    ours: bool
    forward: Cost
    backward: Cost
    notes: tuple[str, ...] = ()  # why something was not measured


@dataclass(frozen=True)
class Growth:
    """The peak memory of attention and a look at its weights at one of the growing lengths."""

    group: str
    length: int
    bytes: int


def chosen_groups(settings: Settings, names: Sequence[str] | None) -> list[Group]:
    """The groups of these names, or all."""
    known = all_groups(settings)
    if names is None:
        return list(known.values())
    if not names:
        raise RegardError(f"--scores: has no name in it; there are: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise unknown_name("--scores", name, known)
    return [known[name] for name in dict.fromkeys(names)]


def with_compiled(group: Group) -> Group:
    """A group in which each plain form is followed by itself, compiled."""
    cases: list[Case] = []
    for case in group.cases:
        cases.append(case)
        if case.name == NAIVE:
            cases.append(replace(case, name=COMPILED, attention=torch.compile(case.attention, dynamic=False)))
    return replace(group, cases=tuple(cases))


def check_device(settings: Settings | WatchBench) -> None:
    """Raise a `RegardError` where the device is not there, or holds no numbers."""
    try:
        torch.zeros(1, device=settings.device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RegardError(f'--device: "{settings.device}" cannot be used here: {reason}') from None


def compiler_works(settings: Settings) -> bool:
    """Whether torch.compile finds all that it needs on this machine."""
    try:
        torch.compile(torch.sin)(torch.zeros(8, device=settings.device))
    except Exception:  # a missing compiler, header or library shows itself in many ways
        return False
    return True


def measure_groups(groups: list[Group], settings: Settings, tell: Tell) -> Iterator[Row]:
    """A row for every case of these groups.

    On a CPU they are timed in several sweeps, in each of which every group has a process
    of its own and a share of its rounds and patience. So a bad minute of the machine
    falls on a few rounds of several groups, not on all rounds of one.
    """
    races = [Race(group, settings, tell) for group in groups]
    for sweep in range(max((race.sweeps for race in races), default=0)):
        for race in races:
            race.time(sweep)
    for race in races:
        yield from race.rows()


class Race:
    """One group while it is measured."""

    def __init__(self, group: Group, settings: Settings, tell: Tell) -> None:
        self.group, self.settings, self.tell, self.sweeps = group, settings, tell, sweeps_of(group, settings)
        self.notes: dict[str, list[str]] = {case.name: [] for case in group.cases}
        self.timings: dict[str, list[Timing]] = {direction: [] for direction in group.directions}
        self.cases: list[Case] = []  # that run at all
        self.names: dict[str, list[str]] = {}  # of those that are timed, by direction

    def time(self, sweep: int) -> None:
        """The rounds of one sweep, in both directions; none where this group has had all its sweeps."""
        if sweep >= self.sweeps:
            return
        if sweep == 0:
            self.cases = runnable(self.group, self.settings, self.notes)
        for direction in self.group.directions:
            self.tell(f"{self.group.name}, {direction}: timing, {sweep + 1} of {self.sweeps}")
            if sweep == 0:
                self.names[direction] = [case.name for case in self.cases if self.fits(case, direction)]
            names = self.names[direction]
            try:
                found = time_cases(self.group, names, direction, self.settings, sweep) if names else Timing([], True)
            except ProcessEndedError:
                for name in names:
                    self.notes[name].append(f"{direction}: a process was ended by the system while it timed this group")
                self.names[direction] = []
            else:
                self.timings[direction].append(found)

    def fits(self, case: Case, direction: str) -> bool:
        """Whether there is memory for a case; if not, a note says so."""
        why = why_too_large(case.held[DIRECTIONS.index(direction)], self.settings)
        if why:
            self.notes[case.name].append(f"{direction} {why}")
        return not why

    def rows(self) -> Iterator[Row]:
        """What it came to, once the memory of each case is measured."""
        costs: dict[str, dict[str, Cost]] = {direction: {} for direction in DIRECTIONS}
        for direction, names in self.names.items():
            timing = joined(self.timings[direction], self.settings.fewest)
            costs[direction] = costs_of(self.group, names, timing)
        for case in self.cases:
            self.tell(f"{self.group.name}, {case.name}: memory")
            directions = [direction for direction in self.names if case.name in costs[direction]]
            found = measure_memory(self.group, case, directions, self.settings, self.notes[case.name])
            for direction, peak in found.items():
                costs[direction][case.name] = replace(costs[direction][case.name], bytes=peak)
        for case in self.group.cases:
            forward, backward = (costs[direction].get(case.name, Cost()) for direction in DIRECTIONS)
            yield Row(self.group.name, case.name, case.ours, forward, backward, tuple(self.notes[case.name]))


def has_compiled(group: Group) -> bool:
    """Whether a case of the group is compiled."""
    return any(case.name == COMPILED for case in group.cases)


def timed_apart(group: Group, settings: Settings) -> bool:
    """Whether a group is timed in several processes.

    Where a process happens to have its memory makes a few hundredths of difference
    between two cases, in all its rounds alike. What is compiled would be so in each.
    """
    return settings.processes > 1 and torch.device(settings.device).type == "cpu" and not has_compiled(group)


def sweeps_of(group: Group, settings: Settings) -> int:
    """How often it is a group's turn to be timed."""
    return min(settings.processes, settings.repeats) if timed_apart(group, settings) else 1


def steps_of(groups: list[Group], settings: Settings) -> int:
    """How often `measure_groups` tells what it does, if all cases can run."""
    return sum(sweeps_of(group, settings) * len(group.directions) + len(group.cases) for group in groups)


def runnable(group: Group, settings: Settings, notes: dict[str, list[str]]) -> list[Case]:
    """The cases that run at all for this type and device; for the others a note says why not."""
    if has_compiled(group):
        torch.compiler.reset()  # there is a limit to how often one function is compiled, and groups share theirs
    tiny = replace(settings, length=min(settings.length, TINY))
    cases: list[Case] = []
    for case in group.cases:
        try:
            for call in make_calls(group, case, tiny).values():
                call()
        except (RegardError, NotImplementedError) as error:
            notes[case.name].append(str(error).splitlines()[0])
        else:
            cases.append(case)
    return cases


def time_cases(group: Group, names: list[str], direction: str, settings: Settings, sweep: int) -> Timing:
    """Some cases, timed in turn; where there are several sweeps, in a new process and for a share of the rounds."""
    if not timed_apart(group, settings):
        return time_here(group, names, direction, settings)
    sweeps = sweeps_of(group, settings)
    share = replace(
        settings,
        repeats=len(range(sweep, settings.repeats, sweeps)),
        fewest=math.ceil(settings.fewest / sweeps),
        patience=settings.patience / sweeps,
    )
    found: Timing = in_fresh_process(time_by_name, group.name, names, direction, share, anew=True)
    return found


def time_by_name(group_name: str, names: list[str], direction: str, settings: Settings) -> Timing:
    """The same for a group that is told by its name, in one process."""
    return time_here(all_groups(settings)[group_name], names, direction, settings)


def time_here(group: Group, names: list[str], direction: str, settings: Settings) -> Timing:
    """Some cases, timed in turn in this process."""
    calls = {name: make_calls(group, group.case(name), settings)[direction] for name in names}
    clock = after_itself(clock_of(torch.device(settings.device)))
    return time_in_turn(calls, clock, settings)


def costs_of(group: Group, names: list[str], timing: Timing) -> dict[str, Cost]:
    """The time of each case, beside that of its peers."""
    times = {name: timing.seconds(name) for name in names}
    peers = [name for name in names if not group.case(name).ours]
    fastest = min(peers, key=lambda name: median(times[name]), default=None)

    def cost(name: str) -> Cost:
        ratios = {peer: timing.ratio(name, peer) for peer in peers}
        return Cost(median(times[name]), len(times[name]), timing.quiet, ratios, fastest)

    return {name: cost(name) for name in names}


def measure_memory(
    group: Group, case: Case, directions: list[str], settings: Settings, notes: list[str]
) -> dict[str, int]:
    """The peak of each direction of a case."""
    if case.name == COMPILED or not directions:
        return {}  # of what is compiled here, it would be the compiler's
    try:
        found: dict[str, int] = measure_apart(memory_of_case, settings, group.name, case.name, directions)
    except ProcessEndedError:
        notes.append("ended by the system while its memory was measured")
        return {}
    return found


def memory_of_case(settings: Settings, group_name: str, case_name: str, directions: list[str]) -> dict[str, int]:
    """The same in this process."""
    group = all_groups(settings)[group_name]

    def calls(settings: Settings) -> list[Call]:
        made = make_calls(group, group.case(case_name), settings)
        return [made[direction] for direction in directions]

    return dict(zip(directions, memory_of(calls, settings), strict=True))


def measure_growth(settings: Settings, tell: Tell) -> Iterator[Growth]:
    """The peak memory of `attend` and all three reductions at growing lengths."""
    for times in LENGTHS:
        longer = replace(settings, length=times * settings.length)
        tell(f"memory at length {longer.length}")
        (peak,) = measure_apart(memory_of_seeing, longer)
        yield Growth("growth", longer.length, peak)


def memory_of_seeing(settings: Settings) -> list[int]:
    """What attention and a look at its weights take, in this process."""
    return memory_of(lambda settings: [see(settings)], settings)


def see(settings: Settings) -> Call:
    """Attention, and all three reductions of its weights."""
    query, keys, values, _ = make_inputs(settings)

    def call() -> object:
        output, weights = attend(query, keys, values, return_weights=True)
        return output, weights.reduce("top:5", "received", "entropy")

    return call
