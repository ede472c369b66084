"""`regard bench`: what attention, training and a look at the attention of a model cost on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import Parameter

from regard.bench.settings import QUICK, QUICK_TRAINING, QUICK_WATCH, DType, Settings, TrainingBench, WatchBench
from regard.errors import RegardError

if TYPE_CHECKING:
    from rich.table import Table

    from regard.bench.attention import Row, Tell
    from regard.bench.cases import Group
    from regard.bench.training import Speed
    from regard.bench.watch import Look

Flag = Annotated[bool, Parameter(show_default=False)]
LENGTHS = f"{Settings.length}, with --quick {QUICK.length}"
ROUNDS = f"{Settings.repeats}, with --quick {QUICK.repeats}"


def usual(name: str, usually: object = TrainingBench, quick: object = QUICK_TRAINING) -> Parameter:
    """An option whose value depends on --quick."""
    return Parameter(show_default=f"{getattr(usually, name)}, with --quick {getattr(quick, name)}")


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
        scores: Some parts only, with commas between: names of scores, dropout, sparsemax, entmax15, weights.
        quick: Short sequences and few rounds, to see that it works.
        growth: Also measure memory at 1, 2, 4 and 8 times the length.
        compiled: Also time torch.compile of the plain form.
        jsonl: Add the rows to this file, one JSON object a line.
    """
    usual = QUICK if quick else Settings()
    length, repeats = usual.length if length is None else length, usual.repeats if repeats is None else repeats
    settings = replace(usual, length=length, width=width, heads=heads, dtype=dtype, device=device, repeats=repeats)
    groups = choose(settings, None if scores is None else scores.replace(",", " ").split(), compiled=compiled)
    with opened(jsonl) as records:
        rows, grown = measure(settings, groups, growth=growth, records=records)
    print_report(rows, grown, settings)


def training(
    *,
    words: Annotated[int | None, usual("words")] = None,
    width: Annotated[int | None, usual("width")] = None,
    lstm_layers: int = TrainingBench.lstm_layers,
    gpt_layers: int = TrainingBench.gpt_layers,
    heads: int = TrainingBench.heads,
    segment: Annotated[int | None, usual("segment")] = None,
    context: Annotated[int | None, usual("context")] = None,
    tokens: Annotated[int | None, usual("tokens")] = None,
    repeats: Annotated[int | None, usual("repeats")] = None,
    quick: Flag = False,
    jsonl: Path | None = None,
) -> None:
    """Time the training of lstm-lm and gpt against plain PyTorch and Transformers.

    Args:
        words: How many different ones the text has.
        width: The width of a token, and of a state.
        lstm_layers: The layers of lstm-lm.
        gpt_layers: The layers of gpt.
        heads: The heads of gpt.
        segment: How many tokens of a row lstm-lm reads at once, at most.
        context: How many tokens of a row gpt reads at once.
        tokens: How many tokens a batch has, at most.
        repeats: How many rounds at most.
        quick: Small models and few rounds, to see that it works.
        jsonl: Add the rows to this file, one JSON object a line.
    """
    open_ones = {
        "words": words, "width": width, "segment": segment, "context": context, "tokens": tokens, "repeats": repeats,
    }  # fmt: skip
    settings = replace(
        QUICK_TRAINING if quick else TrainingBench(),
        lstm_layers=lstm_layers,
        gpt_layers=gpt_layers,
        heads=heads,
        **{name: value for name, value in open_ones.items() if value is not None},
    )
    with opened(jsonl) as records:
        rows = measure_training(settings, records)
    print_training(rows, settings)


def watch(
    *,
    length: Annotated[int | None, usual("length", WatchBench, QUICK_WATCH)] = None,
    layers: Annotated[int | None, usual("layers", WatchBench, QUICK_WATCH)] = None,
    width: Annotated[int | None, usual("width", WatchBench, QUICK_WATCH)] = None,
    heads: Annotated[int | None, usual("heads", WatchBench, QUICK_WATCH)] = None,
    keep: str = WatchBench.keep,
    dtype: DType = WatchBench.dtype,
    device: str = WatchBench.device,
    repeats: int = WatchBench.repeats,
    quick: Flag = False,
    jsonl: Path | None = None,
) -> None:
    """Time a look at the attention of a Hugging Face model of the size of GPT-2.

    Args:
        length: How many tokens the text has.
        layers: The layers of the model.
        width: The width of a token.
        heads: How many heads each layer has.
        keep: What watch keeps of each call: top:8, received, entropy, argmax, dense, all.
        dtype: The type of all numbers.
        device: Where to measure: cpu, cuda, cuda:1.
        repeats: How many rounds at most.
        quick: A small model and a short text, to see that it works.
        jsonl: Add the rows to this file, one JSON object a line.
    """
    sizes = {"length": length, "layers": layers, "width": width, "heads": heads}
    settings = replace(
        QUICK_WATCH if quick else WatchBench(),
        keep=keep,
        dtype=dtype,
        device=device,
        repeats=repeats,
        **{name: value for name, value in sizes.items() if value is not None},
    )
    with opened(jsonl) as records:
        rows = measure_watch(settings, records)
    print_watch(rows, settings)


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


def opened(path: Path | None) -> AbstractContextManager[TextIO | None]:
    """The file for the rows, if one is wanted; before anything is measured."""
    try:
        return nullcontext() if path is None else path.open("a")
    except OSError as error:
        raise RegardError(f"{path}: cannot be written: {error.strerror}") from None


def measure(
    settings: Settings, groups: list[Group], *, growth: bool, records: TextIO | None
) -> tuple[list[Row], list[tuple[int, int]]]:
    """All rows, and the memory at growing lengths; each kept as soon as it is there, which is once all is timed."""
    from regard.bench.attention import LENGTHS, measure_groups, measure_growth, steps_of, surroundings

    rows: list[Row] = []
    grown: list[tuple[int, int]] = []
    with progress(steps_of(groups, settings) + growth * len(LENGTHS)) as tell:
        for row in measure_groups(groups, settings, tell):
            rows.append(row)
            keep(row.record(settings), records)
        for length, peak in measure_growth(settings, tell) if growth else ():
            grown.append((length, peak))
            keep({"group": "growth", "length": length, "bytes": peak, **surroundings(settings)}, records)
    return rows, grown


def measure_training(settings: TrainingBench, records: TextIO | None) -> list[Speed]:
    """All rows, each kept as soon as it is there."""
    from regard.bench.training import contests, measure_contest

    rows: list[Speed] = []
    found = contests(settings)
    with progress(len(found)) as tell, TemporaryDirectory() as folder:
        for contest in found:
            tell(f"{contest.name}: timing")
            for row in measure_contest(contest, settings, Path(folder)):
                rows.append(row)
                keep(row.record(settings), records)
    return rows


def measure_watch(settings: WatchBench, records: TextIO | None) -> list[Look]:
    """All rows."""
    from regard.bench.attention import check_device
    from regard.bench.watch import check_transformers, measure_looks

    check_transformers()
    check_device(settings)
    with progress(4) as tell:
        rows = measure_looks(settings, tell)
    for row in rows:
        keep(row.record(settings), records)
    return rows


def keep(record: dict[str, object], records: TextIO | None) -> None:
    """Write one line to the file for the rows, if one is wanted, with the time, since other runs may be in it."""
    if records is not None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        records.write(json.dumps({"at": now, **record}) + "\n")
        records.flush()


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
    from regard.bench.report import conditions, growth_lines, make_table, notes, targets

    verdicts = targets(rows, growth) if settings.length == Settings.length else ()  # which are for this length
    print_table(make_table(rows), (conditions(settings), "", *notes(rows), *growth_lines(growth), *verdicts))


def print_training(rows: list[Speed], settings: TrainingBench) -> None:
    """The table, the notes and the targets."""
    from regard.bench.training import conditions, make_table, notes, targets

    print_table(make_table(rows), (*conditions(rows, settings), "", *notes(rows), *targets(rows)))


def print_watch(rows: list[Look], settings: WatchBench) -> None:
    """The table, the notes and the target."""
    from regard.bench.watch import conditions, make_table, notes, targets

    verdicts = targets(rows) if settings.length == WatchBench.length else ()  # which is for this length
    print_table(make_table(rows), (conditions(settings), "", *notes(rows), *verdicts))


def print_table(table: Table, lines: Iterable[str]) -> None:
    """A table, and lines below it."""
    from rich.console import Console

    out = Console(highlight=False)
    out = out if out.is_terminal else Console(highlight=False, width=120)
    out.print(table)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
