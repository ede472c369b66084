"""`regard bench`: what attention costs on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import Parameter

from regard.bench.settings import QUICK, DType, Settings
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.bench.attention import Row, Tell
    from regard.bench.cases import Group


Flag = Annotated[bool, Parameter(show_default=False)]
LENGTHS = f"{Settings.length}, with --quick {QUICK.length}"
ROUNDS = f"{Settings.repeats}, with --quick {QUICK.repeats}"


def attention(
    *,
    length: Annotated[int | None, Parameter(show_default=LENGTHS)] = None,
    width: int = Settings.width,
    heads: int = Settings.heads,
    dtype: DType = Settings.dtype,
    device: str = Settings.device,
    repeats: Annotated[int | None, Parameter(show_default=ROUNDS)] = None,
    scores: str | None = None,
    quick: Flag = False,
    growth: Flag = False,
    compiled: Annotated[Flag, Parameter("--compile")] = False,
    jsonl: Path | None = None,
) -> None:
    """Time every score function against what one would write in plain PyTorch.

    Args:
        length: How many queries, and keys.
        width: The width of a head.
        heads: How many heads.
        dtype: The type of all numbers.
        device: Where to measure: cpu, cuda, cuda:1.
        repeats: How many rounds at most.
        scores: Some parts of the table only: names with commas between.
        quick: Short sequences and few rounds, to see that it works.
        growth: Also measure memory at 1, 2, 4 and 8 times the length.
        compiled: Also time torch.compile of the plain form.
        jsonl: Keep the rows in this file.
    """
    usual = QUICK if quick else Settings()
    length, repeats = usual.length if length is None else length, usual.repeats if repeats is None else repeats
    settings = replace(usual, length=length, width=width, heads=heads, dtype=dtype, device=device, repeats=repeats)
    groups = choose(settings, [name.strip() for name in (scores or "").split(",") if name.strip()], compiled=compiled)
    with opened(jsonl) as records:
        rows, grown = measure(settings, groups, growth=growth, records=records)
    print_report(rows, grown, settings)


def choose(settings: Settings, names: list[str], *, compiled: bool) -> list[Group]:
    """What to measure, once it is clear that it can be."""
    from regard.bench.attention import check_device, chosen_groups, compiler_works, with_compiled

    check_device(settings)
    groups = chosen_groups(settings, names)
    if not compiled:
        return groups
    if not compiler_works(settings):
        raise RegardError("--compile: torch.compile does not work here; it needs a C++ compiler and Python's headers")
    return [with_compiled(group) for group in groups]


def opened(path: Path | None) -> AbstractContextManager[TextIO | None]:
    """The file for the rows, if one is wanted; before anything is measured."""
    try:
        return nullcontext() if path is None else path.open("w")
    except OSError as error:
        raise RegardError(f"{path}: cannot be written: {error.strerror}") from None


def measure(
    settings: Settings, groups: list[Group], *, growth: bool, records: TextIO | None
) -> tuple[list[Row], list[tuple[int, int]]]:
    """All rows, and the memory at growing lengths; each kept as soon as it is there."""
    from regard.bench.attention import LENGTHS, measure_group, measure_growth

    def keep(record: dict[str, object]) -> None:
        if records is not None:
            records.write(json.dumps(record) + "\n")
            records.flush()

    rows: list[Row] = []
    grown: list[tuple[int, int]] = []
    steps = sum(len(group.directions) + len(group.cases) for group in groups) + growth * len(LENGTHS)
    with progress(steps) as tell:
        for group in groups:
            for row in measure_group(group, settings, tell):
                rows.append(row)
                keep(row.record(settings))
        for length, peak in measure_growth(settings, tell) if growth else ():
            grown.append((length, peak))
            keep({"group": "growth", "length": length, "bytes": peak})
    return rows, grown


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


def print_report(rows: list[Row], growth: list[tuple[int, int]], settings: Settings) -> None:
    """The table, the notes and the targets."""
    from rich.console import Console

    from regard.bench.report import conditions, growth_lines, make_table, notes, targets

    out = Console(highlight=False)
    out = out if out.is_terminal else Console(highlight=False, width=120)
    out.print(make_table(rows))
    verdicts = targets(rows, growth) if settings.length == Settings.length else ()  # which are for this length
    lines = (conditions(settings), "", *notes(rows), *growth_lines(growth), *verdicts)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
