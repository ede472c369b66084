"""The table of a benchmark, and which targets it meets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import torch
from rich.table import Table

from regard.bench.attention import Cost, Growth, Row
from regard.bench.cases import DOT_PRODUCTS, NAIVE, PAIRWISE, SDPA, THREE
from regard.bench.settings import Settings

DOT_FAMILY = (*DOT_PRODUCTS, "gaussian", "uniform")
DOT_TIME = 1.05  # of SDPA, forward and with backward
PAIRWISE_FORWARD, PAIRWISE_BACKWARD, PAIRWISE_MEMORY = 0.6, 1.3, 1 / 20  # of plain torch
REDUCTIONS_TIME = 1.5  # of SDPA forward
GROWTH_SLACK = 1.1  # times as much as linear


def make_table(rows: list[Row]) -> Table:
    """A line for each candidate."""
    table = Table()
    table.add_column("score", no_wrap=True)
    table.add_column("computed by", no_wrap=True)
    for heading in ("forward\nms", "\nratio", "with backward\nms", "\nratio", "memory\nMB", "with backward\nMB"):
        table.add_column(heading, justify="right")
    for group, members in groupby(rows, lambda row: row.group):
        for place, row in enumerate(members):
            times = [cell for cost in (row.forward, row.backward) for cell in (milliseconds(cost), times_of(cost))]
            memory = [megabytes(cost) for cost in (row.forward, row.backward)]
            table.add_row("" if place else group, row.case, *times, *memory, style="bold" if row.ours else None)
        table.add_section()
    return table


def milliseconds(cost: Cost) -> str:
    """The median time, to three digits or a tenth."""
    if cost.seconds is None:
        return ""
    found = 1000 * cost.seconds
    return f"{found:.{3 if found < 1 else 2 if found < 10 else 1}f}"


def times_of(cost: Cost) -> str:
    """The ratio to the fastest peer."""
    return "" if cost.ratio is None else f"{cost.ratio:.2f}x"


def megabytes(cost: Cost) -> str:
    """The peak memory."""
    return "" if cost.bytes is None else f"{cost.bytes / 1e6:.0f}"


def conditions(settings: Settings) -> str:
    """Under which the figures hold."""
    on_cpu = torch.device(settings.device).type == "cpu"
    where = f"{torch.get_num_threads()} threads" if on_cpu else device_name(settings.device)
    most = min(settings.processes, settings.repeats) if on_cpu else 1
    spread = f" in up to {most} processes, spread over the run" if most > 1 else ""
    return (
        f"length {settings.length}, {settings.heads} heads of width {settings.width}, {settings.dtype}, "
        f"{settings.device}, {where}, torch {torch.__version__}. Times are medians of up to {settings.repeats} "
        f"rounds{spread}, in each of which the second of two calls is timed; "
        "a ratio is the median, over the rounds, of that to the fastest row of plain PyTorch in the same round. "
        "Memory is the peak above that before the call."
    )


def device_name(device: str) -> str:
    """What kind of GPU it is."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def notes(rows: list[Row]) -> Iterator[str]:
    """What was not measured and why, and what was measured on a busy machine."""
    for row in rows:
        for note in row.notes:
            yield f"{row.group}, {row.case}: {note}"
    disturbed = {
        f"{row.group} {direction}": None
        for row in rows
        for direction, cost in (("forward", row.forward), ("with backward", row.backward))
        if not cost.quiet
    }
    if disturbed:
        yield f"{', '.join(disturbed)}: other programs were busy meanwhile; these times are unsound"


def growth_lines(growth: list[Growth]) -> Iterator[str]:
    """The memory at each length."""
    for each in growth:
        yield f"length {each.length}: attend and three reductions at a peak of {each.bytes / 1e6:.1f} MB"


def targets(rows: list[Row], growth: list[Growth]) -> Iterator[str]:
    """A line for each target: met, missed, or not measured."""
    found = {(row.group, row.case): row for row in rows}
    yield "Targets:"
    for score in DOT_FAMILY:
        if row := found.get((score, "attend")):
            yield verdict(f"{score} forward, of SDPA", row.forward.ratios.get(SDPA), DOT_TIME)
            yield verdict(f"{score} with backward, of SDPA", row.backward.ratios.get(SDPA), DOT_TIME)
    for score in PAIRWISE:
        if row := found.get((score, "attend")):
            peer = found[score, NAIVE]
            yield verdict(f"{score} forward, of {NAIVE}", row.forward.ratios.get(NAIVE), PAIRWISE_FORWARD)
            yield verdict(f"{score} with backward, of {NAIVE}", row.backward.ratios.get(NAIVE), PAIRWISE_BACKWARD)
            memory = row.backward.bytes / peer.backward.bytes if row.backward.bytes and peer.backward.bytes else None
            yield verdict(f"{score} memory, of {NAIVE}", memory, PAIRWISE_MEMORY)
    if row := found.get(("weights", THREE)):
        yield verdict("three reductions, of SDPA forward", row.forward.ratios.get(SDPA), REDUCTIONS_TIME)
    yield verdict("memory growth, of linear", growth_over_linear(growth), GROWTH_SLACK)


def verdict(what: str, measured: float | None, most: float) -> str:
    """One target in words."""
    if measured is None:
        return f"not measured  {what}: at most {most:.2f}x"
    return f"{'met ' if measured <= most else 'MISS'}  {what}: {measured:.3f}x, at most {most:.2f}x"


def growth_over_linear(growth: list[Growth]) -> float | None:
    """How many times more the longest takes than the shortest, over how many times longer it is."""
    if len(growth) < 2:
        return None
    short, long = growth[0], growth[-1]
    if not short.bytes:  # nothing is seen of what is smaller than a page
        return None
    return (long.bytes / short.bytes) / (long.length / short.length)
