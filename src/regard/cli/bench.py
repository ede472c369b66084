"""`regard bench`: what attention, training and a look at the attention of a model cost on this machine."""

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

from regard.bench.settings import QUICK, QUICK_TRAINING, QUICK_WATCH, Bench, Settings, TrainingBench, WatchBench
from regard.cli.options import with_settings
from regard.errors import RegardError
from regard.files import writing
from regard.tasks.actions import Flag

if TYPE_CHECKING:
    from rich.table import Table

    from regard.bench.cases import Group
    from regard.bench.measure import Tell

Row = TypeVar("Row")


@with_settings(Settings, QUICK)
def attention(
    *,
    scores: str | None = None,
    quick: Flag = False,
    growth: Flag = False,
    compiled: Annotated[Flag, Parameter("--compile")] = False,
    jsonl: Path | None = None,
    **given: Any,
) -> None:
    """Time every score function against what one would write in plain PyTorch.

    Args:
        scores: Some parts only, with commas between: names of scores, dropout, sparsemax, entmax15, weights.
        quick: Short sequences and few rounds, to see that it works.
        growth: Also measure memory at 1, 2, 4 and 8 times the length.
        compiled: Also time torch.compile of the plain form.
        jsonl: Add the rows to this file, one JSON object a line.
        given: Settings of what is measured.
    """
    settings = replace(QUICK if quick else Settings(), **given)
    groups = choose(settings, None if scores is None else scores.replace(",", " ").split(), compiled=compiled)

    from regard.bench.attention import LENGTHS, Growth, Row, measure_groups, measure_growth, steps_of
    from regard.bench.report import conditions, growth_lines, make_table, notes, targets

    def measured(tell: Tell) -> Iterator[Row | Growth]:
        return chain(measure_groups(groups, settings, tell), measure_growth(settings, tell) if growth else ())

    found = measure(measured, steps_of(groups, settings) + growth * len(LENGTHS), settings, jsonl)
    rows = [each for each in found if isinstance(each, Row)]
    grown = [each for each in found if isinstance(each, Growth)]
    verdicts = targets(rows, grown) if settings.length == Settings.length else ()  # which are for this length
    print_table(make_table(rows), (conditions(settings), "", *notes(rows), *growth_lines(grown), *verdicts))


@with_settings(TrainingBench, QUICK_TRAINING)
def training(*, quick: Flag = False, jsonl: Path | None = None, **given: Any) -> None:
    """Time the training of lstm-lm and gpt against plain PyTorch and Transformers.

    Args:
        quick: Small models and few rounds, to see that it works.
        jsonl: Add the rows to this file, one JSON object a line.
        given: Settings of what is measured.
    """
    settings = replace(QUICK_TRAINING if quick else TrainingBench(), **given)

    from regard.bench.training import conditions, contests, make_table, measure_contests, notes, targets

    rows = measure(lambda tell: measure_contests(settings, tell), len(contests(settings)), settings, jsonl)
    print_table(make_table(rows), (*conditions(rows, settings), "", *notes(rows), *targets(rows)))


@with_settings(WatchBench, QUICK_WATCH)
def watch(*, quick: Flag = False, jsonl: Path | None = None, **given: Any) -> None:
    """Time a look at the attention of a Hugging Face model of the size of GPT-2.

    Args:
        quick: A small model and a short text, to see that it works.
        jsonl: Add the rows to this file, one JSON object a line.
        given: Settings of what is measured.
    """
    settings = replace(QUICK_WATCH if quick else WatchBench(), **given)

    from regard.bench.attention import check_device
    from regard.bench.watch import check_transformers, conditions, make_table, measure_looks, notes, targets

    check_transformers()
    check_device(settings)
    rows = measure(lambda tell: measure_looks(settings, tell), 4, settings, jsonl)
    verdicts = targets(rows) if settings.length == WatchBench.length else ()  # which is for this length
    print_table(make_table(rows), (conditions(settings), "", *notes(rows), *verdicts))


def choose(settings: Settings, names: list[str] | None, *, compiled: bool) -> list[Group]:
    """What to measure, once it is clear that it can be."""
    from regard.bench.attention import check_device, chosen_groups, compiler_works, with_compiled

    check_device(settings)
    groups = chosen_groups(settings, names)
    if not compiled:
        return groups
    if not compiler_works(settings):
        raise RegardError("--compile: torch.compile does not work here; it needs a C++ compiler and Python's headers")
    return [with_compiled(group) for group in groups]


def measure(measured: Callable[[Tell], Iterable[Row]], steps: int, settings: Bench, jsonl: Path | None) -> list[Row]:
    """All rows, each added to the file as soon as it is there; a bar says what is measured now."""
    rows = []
    with opened(jsonl) as records, progress(steps) as tell:
        for row in measured(tell):
            rows.append(row)
            records.write(json.dumps(record_of(row, settings)) + "\n")
            records.flush()
    return rows


def opened(path: Path | None) -> TextIO:
    """The file for the rows, before anything is measured; one that leads nowhere if none is wanted."""
    with writing(path or os.devnull):
        return open(path or os.devnull, "a")


def record_of(row: Any, settings: Bench) -> dict[str, object]:
    """A row as plain data, with its conditions, and the time, since other runs may be in the file."""
    import torch

    conditions = {"settings": asdict(settings), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), **asdict(row), **conditions}


@contextmanager
def progress(steps: int) -> Iterator[Tell]:
    """A bar, on a terminal, that says what is measured now; each thing it is told is one step."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    talk = Console(stderr=True)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as bar:
        task = bar.add_task("starting", total=steps)
        yield lambda text: bar.update(task, advance=1, description=text)


def print_table(table: Table, lines: Iterable[str]) -> None:
    """A table, and lines below it."""
    from rich.console import Console

    out = Console(highlight=False)
    out = out if out.is_terminal else Console(highlight=False, width=120)
    out.print(table)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
