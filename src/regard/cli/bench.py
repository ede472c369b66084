"""`regard bench`: measure attention, training and the overhead of `watch` on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

from cyclopts import Parameter

from regard.bench.settings import (
    QUICK,
    QUICK_COST,
    QUICK_GPU,
    QUICK_SCALING,
    QUICK_TRAINING,
    QUICK_WATCH,
    AttentionBench,
    Bench,
    CostBench,
    GpuBench,
    ScalingBench,
    TrainingBench,
    WatchBench,
)
from regard.cli.options import with_settings
from regard.cli.threads import with_threads
from regard.errors import RegardError
from regard.files import wrap_write_errors
from regard.tasks.actions import Flag

if TYPE_CHECKING:
    from rich.table import Table

    from regard.bench.cases import CaseGroup
    from regard.bench.measure import Tell

Row = TypeVar("Row")


@with_threads
@with_settings(AttentionBench, QUICK)
def attention(
    *,
    scores: str | None = None,
    quick: Flag = False,
    growth: Flag = False,
    compiled: Annotated[Flag, Parameter("--compile")] = False,
    jsonl: Path | None = None,
    **given: Any,
) -> None:
    """Compare the score functions with plain PyTorch; with --device cuda alone, do what bench gpu does.

    Args:
        scores: Some parts only, with commas between: names of scores, dropout, sparsemax, entmax15, weights.
        quick: Short sequences and few rounds, to see that it works.
        growth: Also measure memory at 1, 2, 4 and 8 times the length.
        compiled: Also time torch.compile of the plain form.
        jsonl: Add the rows to this file, one JSON object a line.
        given: Settings of what is measured.
    """
    if given.keys() == {"device"} and given["device"].startswith("cuda") and not (scores or growth or compiled):
        gpu(quick=quick, jsonl=jsonl, **given)
        return
    settings = replace(QUICK if quick else AttentionBench(), **given)
    groups = prepare_groups(settings, None if scores is None else scores.replace(",", " ").split(), compiled=compiled)

    from regard.bench.attention import LENGTHS, AttentionRow, Growth, count_steps, measure_groups, measure_growth
    from regard.bench.report import check_targets, describe_conditions, format_growth, iter_notes, make_table

    def measured(tell: Tell) -> Iterator[AttentionRow | Growth]:
        return chain(measure_groups(groups, settings, tell), measure_growth(settings, tell) if growth else ())

    measurements = measure_attention(measured, count_steps(groups, settings) + growth * len(LENGTHS), settings, jsonl)
    rows = [each for each in measurements if isinstance(each, AttentionRow)]
    memory_growth = [each for each in measurements if isinstance(each, Growth)]
    verdicts = (
        check_targets(rows, memory_growth) if settings.length == AttentionBench.length else ()
    )  # which are for this length
    print_table(
        make_table(rows),
        (describe_conditions(settings), "", *iter_notes(rows), *format_growth(memory_growth), *verdicts),
    )


@with_threads
@with_settings(TrainingBench, QUICK_TRAINING)
def training(*, quick: Flag = False, jsonl: Path | None = None, **given: Any) -> None:
    """Compare the training of lstm-lm and gpt with plain PyTorch and Transformers.

    Args:
        quick: Small models and few rounds, to see that it works.
        jsonl: Add the rows to this file, one JSON object a line.
        given: Settings of what is measured.
    """
    settings = replace(QUICK_TRAINING if quick else TrainingBench(), **given)

    from regard.bench.training import (
        check_targets,
        describe_conditions,
        iter_notes,
        list_comparisons,
        make_table,
        measure_contests,
    )

    rows = measure_attention(
        lambda tell: measure_contests(settings, tell), len(list_comparisons(settings)), settings, jsonl
    )
    print_table(make_table(rows), (*describe_conditions(rows, settings), "", *iter_notes(rows), *check_targets(rows)))


@with_threads
@with_settings(WatchBench, QUICK_WATCH)
def watch(*, quick: Flag = False, jsonl: Path | None = None, **given: Any) -> None:
    """Measure the overhead of watch on a Hugging Face model of GPT-2's size.

    Args:
        quick: A small model and a short text, to see that it works.
        jsonl: Add the rows to this file, one JSON object a line.
        given: Settings of what is measured.
    """
    settings = replace(QUICK_WATCH if quick else WatchBench(), **given)

    from regard.bench.attention import check_device
    from regard.bench.watch import (
        check_targets,
        check_transformers,
        describe_conditions,
        iter_notes,
        make_table,
        measure_watch_rows,
    )

    check_transformers()
    check_device(settings)
    rows = measure_attention(lambda tell: measure_watch_rows(settings, tell), 4, settings, jsonl)
    verdicts = check_targets(rows) if settings.length == WatchBench.length else ()  # which is for this length
    print_table(make_table(rows), (describe_conditions(settings), "", *iter_notes(rows), *verdicts))


@with_settings(GpuBench, QUICK_GPU)
def gpu(
    *,
    only: str | None = None,
    quick: Flag = False,
    uncompiled: Flag = False,
    jsonl: Path | None = None,
    **given: Any,
) -> None:
    """Compare what regard computes on a GPU with its peers: time, memory and error, and what is to be reached.

    Args:
        only: Some cases only, with commas between.
        quick: Short sequences and few rounds, without compiling, to see that it works.
        uncompiled: Leave out torch.compile and FlexAttention.
        jsonl: Add the rows to this file, one JSON object a line.
        given: Settings of what is measured.
    """
    settings = replace(QUICK_GPU if quick else GpuBench(compiled=not uncompiled), **given)

    from regard.bench.attention import check_device
    from regard.bench.gpu import describe_conditions, iter_notes, make_table, measure_cases, select_cases

    cases = select_cases(None if only is None else only.replace(",", " ").split())
    check_device(settings)
    rows = measure_attention(lambda tell: measure_cases(cases, settings, tell), len(cases), settings, jsonl)
    print_table(make_table(rows), (describe_conditions(settings), "", *iter_notes(rows)))


@with_threads
@with_settings(CostBench, QUICK_COST)
def cost(*, quick: Flag = False, jsonl: Path | None = None, picture: Path | None = None, **given: Any) -> None:
    """Measure how time, memory and waiting steps of recurrent and attention layers grow with the length.

    Args:
        quick: Short sequences and few rounds, to see that it works.
        jsonl: Append the rows to this file, one JSON object per line.
        picture: Save a picture of all curves, .png or .svg.
        given: Settings of what is measured.
    """
    settings = replace(QUICK_COST if quick else CostBench(), **given)

    from regard.bench.attention import check_device
    from regard.bench.cost import (
        GRADIENT_LAYERS,
        LAYERS,
        CostRow,
        GradientRow,
        describe_conditions,
        draw_cost,
        make_table,
        measure_cost,
    )
    from regard.views.figure import check_picture_path

    check_device(settings)
    if picture is not None:
        check_picture_path(picture)
    steps = len(settings.parse_lengths()) * (len(LAYERS) + len(GRADIENT_LAYERS))
    measurements = measure_attention(lambda tell: measure_cost(settings, tell), steps, settings, jsonl)
    rows = [row for row in measurements if isinstance(row, CostRow)]
    if picture is not None:
        draw_cost(rows, [row for row in measurements if isinstance(row, GradientRow)], picture)
    print_table(make_table(rows), (describe_conditions(settings), "", *list_picture(picture)))


@with_threads
@with_settings(ScalingBench, QUICK_SCALING)
def scaling(*, quick: Flag = False, jsonl: Path | None = None, picture: Path | None = None, **given: Any) -> None:
    """Measure why dot products are scaled: variance, gradient and trained quality against the width.

    Args:
        quick: Few widths and updates, to see that it works.
        jsonl: Append the rows to this file, one JSON object per line.
        picture: Save a picture of all curves, .png or .svg.
        given: Settings of what is measured.
    """
    settings = replace(QUICK_SCALING if quick else ScalingBench(), **given)

    from regard.bench.scaling import SCORES, describe_conditions, draw_scaling, make_table, measure_scaling
    from regard.views.figure import check_picture_path

    if picture is not None:
        check_picture_path(picture)
    steps = len(SCORES) * len(settings.parse_widths())
    rows = measure_attention(lambda tell: measure_scaling(settings, tell), steps, settings, jsonl)
    if picture is not None:
        draw_scaling(rows, picture)
    print_table(make_table(rows), (describe_conditions(settings), "", *list_picture(picture)))


def list_picture(picture: Path | None) -> list[str]:
    """Return a line that names the picture, if there is one."""
    return [] if picture is None else [f"picture: {picture}"]


def prepare_groups(settings: AttentionBench, names: list[str] | None, *, compiled: bool) -> list[CaseGroup]:
    """Select what to measure and check that it can be measured."""
    from regard.bench.attention import add_compiled, check_device, is_compiler_available, select_groups

    check_device(settings)
    groups = select_groups(settings, names)
    if not compiled:
        return groups
    if not is_compiler_available(settings):
        raise RegardError("--compile: torch.compile does not work here; it needs a C++ compiler and Python's headers")
    return [add_compiled(group) for group in groups]


def measure_attention(
    measured: Callable[[Tell], Iterable[Row]], steps: int, settings: Bench, jsonl: Path | None
) -> list[Row]:
    """Measure all rows with a progress bar; append each row to the file as soon as it is measured."""
    rows = []
    with open_records(jsonl) as records, show_progress(steps) as on_progress:
        for row in measured(on_progress):
            rows.append(row)
            records.write(json.dumps(record_of(row, settings)) + "\n")
            records.flush()
    return rows


def open_records(path: Path | None) -> TextIO:
    """Open the file for the rows before anything is measured, or a null file."""
    with wrap_write_errors(path or os.devnull):
        return open(path or os.devnull, "a")


def record_of(row: Any, settings: Bench) -> dict[str, object]:
    """Convert a row to plain data with its conditions and the time."""
    import torch

    conditions = {"settings": asdict(settings), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), **asdict(row), **conditions}


@contextmanager
def show_progress(steps: int) -> Iterator[Tell]:
    """Show a progress bar on a terminal; each message is a step."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=steps)
        yield lambda text: bar.update(task, advance=1, description=text)


def print_table(table: Table, lines: Iterable[str]) -> None:
    """Print a table and the lines below it."""
    from rich.console import Console

    out = Console(highlight=False)
    out = out if out.is_terminal else Console(highlight=False, width=120)
    out.print(table)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
