"""Format the results of the attention benchmark and check them against targets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import torch
from rich.table import Table

from regard.bench.attention import AttentionRow, Cost, Growth
from regard.bench.cases import DOT_PRODUCTS, NAIVE, PAIRWISE, SDPA, THREE
from regard.bench.settings import AttentionBench

DOT_FAMILY = (*DOT_PRODUCTS, "gaussian", "uniform")
DOT_TIME = 1.05  # relative to SDPA, forward and with backward
PAIRWISE_FORWARD, PAIRWISE_BACKWARD, PAIRWISE_MEMORY = 0.6, 1.3, 1 / 20  # relative to plain PyTorch
REDUCTIONS_TIME = 1.5  # relative to SDPA forward
GROWTH_SLACK = 1.1  # relative to linear growth


def make_table(rows: list[AttentionRow]) -> Table:
    """Format a table with one line per candidate."""
    table = Table()
    table.add_column("score", no_wrap=True)
    table.add_column("computed by", no_wrap=True)
    for heading in ("forward\nms", "\nratio", "with backward\nms", "\nratio", "memory\nMB", "with backward\nMB"):
        table.add_column(heading, justify="right")
    for group, members in groupby(rows, lambda row: row.group):
        for index, row in enumerate(members):
            times = [
                cell for cost in (row.forward, row.backward) for cell in (format_milliseconds(cost), format_ratio(cost))
            ]
            memory = [format_megabytes(cost) for cost in (row.forward, row.backward)]
            table.add_row("" if index else group, row.case, *times, *memory, style="bold" if row.ours else None)
        table.add_section()
    return table


def format_milliseconds(cost: Cost) -> str:
    """Format the median time with three digits or one decimal."""
    if cost.seconds is None:
        return ""
    value = 1000 * cost.seconds
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1}f}"


def format_ratio(cost: Cost) -> str:
    """Format the ratio to the fastest peer."""
    return "" if cost.ratio is None else f"{cost.ratio:.2f}x"


def format_megabytes(cost: Cost) -> str:
    """Format the peak memory."""
    return "" if cost.bytes is None else f"{cost.bytes / 1e6:.0f}"


def describe_conditions(settings: AttentionBench) -> str:
    """Describe the conditions of the measurement."""
    on_cpu = torch.device(settings.device).type == "cpu"
    hardware = f"{torch.get_num_threads()} threads" if on_cpu else get_device_name(settings.device)
    processes = min(settings.processes, settings.repeats) if on_cpu else 1
    spread = f" in up to {processes} processes, spread over the run" if processes > 1 else ""
    return (
        f"length {settings.length}, {settings.heads} heads of width {settings.width}, {settings.dtype}, "
        f"{settings.device}, {hardware}, torch {torch.__version__}. Times are medians of up to {settings.repeats} "
        f"rounds{spread}, in each of which the second of two calls is timed; "
        "a ratio is the median, over the rounds, of that to the fastest row of plain PyTorch in the same round. "
        "Memory is the peak above that before the call."
    )


def get_device_name(device: str) -> str:
    """Return the name of the GPU, or the device."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def iter_notes(rows: list[AttentionRow]) -> Iterator[str]:
    """Yield notes on what was not measured and why, and what was measured on a busy machine."""
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
        yield f"{', '.join(disturbed)}: other programs were running; these times are unreliable"


def format_growth(growth: list[Growth]) -> Iterator[str]:
    """Format the memory at each length."""
    for each in growth:
        yield f"length {each.length}: attend and three reductions at a peak of {each.bytes / 1e6:.1f} MB"


def check_targets(rows: list[AttentionRow], growth: list[Growth]) -> Iterator[str]:
    """Return a line per target: met, missed, or not measured."""
    rows_by_name = {(row.group, row.case): row for row in rows}
    yield "Targets:"
    for score in DOT_FAMILY:
        if row := rows_by_name.get((score, "attend")):
            yield format_verdict(f"{score} forward, of SDPA", row.forward.ratios.get(SDPA), DOT_TIME)
            yield format_verdict(f"{score} with backward, of SDPA", row.backward.ratios.get(SDPA), DOT_TIME)
    for score in PAIRWISE:
        if row := rows_by_name.get((score, "attend")):
            peer = rows_by_name[score, NAIVE]
            yield format_verdict(f"{score} forward, of {NAIVE}", row.forward.ratios.get(NAIVE), PAIRWISE_FORWARD)
            yield format_verdict(
                f"{score} with backward, of {NAIVE}", row.backward.ratios.get(NAIVE), PAIRWISE_BACKWARD
            )
            memory = row.backward.bytes / peer.backward.bytes if row.backward.bytes and peer.backward.bytes else None
            yield format_verdict(f"{score} memory, of {NAIVE}", memory, PAIRWISE_MEMORY)
    if row := rows_by_name.get(("weights", THREE)):
        yield format_verdict("three reductions, of SDPA forward", row.forward.ratios.get(SDPA), REDUCTIONS_TIME)
    yield format_verdict("memory growth, of linear", growth_over_linear(growth), GROWTH_SLACK)


def format_verdict(target: str, measured: float | None, limit: float) -> str:
    """Format one target."""
    if measured is None:
        return f"not measured  {target}: at most {limit:.2f}x"
    return f"{'met ' if measured <= limit else 'MISS'}  {target}: {measured:.3f}x, at most {limit:.2f}x"


def growth_over_linear(growth: list[Growth]) -> float | None:
    """Return the growth of memory from the shortest to the longest, relative to the growth of length."""
    if len(growth) < 2:
        return None
    short, long = growth[0], growth[-1]
    if not short.bytes:  # less than a memory page is not measurable
        return None
    return (long.bytes / short.bytes) / (long.length / short.length)
