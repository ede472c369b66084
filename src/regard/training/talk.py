"""What is said while a model trains: to the terminal, to the run's log, and to TensorBoard on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from regard.data.check import counted
from regard.errors import RegardError
from regard.run import Run

WORTH_SAYING = 120.0  # seconds that are still to come
STEPS_TIMED = 20


class Pace:
    """How long training will last, from its first steps; the very first is not counted, which is slower."""

    def __init__(self, steps: int) -> None:
        self.steps, self.made, self.began = steps, 0, 0.0

    def seconds_left(self, step: int) -> float | None:
        """Seconds for all steps that follow one, once enough were made to tell."""
        self.made += 1
        if self.made == 1:
            self.began = time.perf_counter()
        if self.made <= STEPS_TIMED:
            return None
        return (time.perf_counter() - self.began) / (self.made - 1) * (self.steps - step)


class Talk:
    """Says things on stderr (not if quiet) and in the run's log; shows a bar where there is a terminal."""

    def __init__(self, run: Run | None = None, *, quiet: bool = False) -> None:
        self.run, self.quiet = run, quiet
        self._bar: Any = None
        self._task: Any = None
        self._smooth: float | None = None
        self._pace: Pace | None = None

    def say(self, text: str) -> None:
        """One line."""
        if self.run is not None and self.run.path.is_dir():
            with self.run.log_file.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, steps: int, done: int) -> Iterator[None]:
        """A bar over all steps, for as long as training lasts."""
        self._pace, self._smooth = Pace(steps), None
        if self.quiet or not sys.stderr.isatty() or done >= steps:
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            self._bar, self._task = bar, bar.add_task("", total=steps, completed=done)
            try:
                yield
            finally:
                self._bar = self._task = None

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[[int], None]]:
        """A count of what is read, for as long as that lasts; what it gives is told how many there are."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + what), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done: bar.update(task, completed=done)

    def step(self, step: int, loss: float) -> None:
        """A step was made."""
        if self._pace is not None and (left := self._pace.seconds_left(step)) is not None:
            self._pace = None
            if left > WORTH_SAYING:
                self.say(f"at this pace all updates take about {left / 60:.0f} minutes more; Ctrl-C saves at any time")
        self._smooth = loss if self._smooth is None else 0.95 * self._smooth + 0.05 * loss
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description=f"loss {self._smooth:.3f}")

    def validated(self, line: Mapping[str, float], *, better: bool) -> None:
        """A validation was made."""
        found = "  ".join(in_words(name, value) for name, value in line.items() if name.startswith("valid_"))
        mark = "  best so far" if better else ""
        left_out = f"  {counted(int(line['left_out']), 'update')} left out" if "left_out" in line else ""
        train = f"step {line['step']:>6}  {line['seconds']:.0f} s  train loss {line['train_loss']:.3f}"
        self.say(f"{train}  {found}{left_out}{mark}")

    def averaged(self, count: int, found: Mapping[str, float], *, better: bool) -> None:
        """The mean of several checkpoints was tried."""
        words = "  ".join(in_words(f"valid_{name}", value) for name, value in found.items())
        self.say(f"mean of the last {count} checkpoints: {words}  {'kept' if better else 'not better, not kept'}")

    @contextmanager
    def events(self, run: Run, wanted: bool, step: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
        """What takes the line of each validation to TensorBoard, if that is wanted."""
        if not wanted:
            yield lambda _: None
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise RegardError(
                "training.tensorboard needs the package tensorboard: pip install 'regard[tensorboard]'"
            ) from None
        writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)

        def write(line: Mapping[str, float]) -> None:
            for name, value in line.items():
                writer.add_scalar(name, value, int(line["step"]))

        try:
            yield write
        finally:
            writer.close()


SHARES = ("exact", "accuracy", "f1", "macro_f1")
"""Findings that lie between 0 and 1."""


def in_words(name: str, value: float) -> str:
    """One finding of a validation, as it is read aloud."""
    name = name.removeprefix("valid_")
    if name in SHARES:
        return f"{name.replace('_', ' ').replace('f1', 'F1')} {100 * value:.1f} %"
    if name == "loss":
        return f"valid loss {value:.3f}"
    return f"{name.upper() if name == 'bleu' else name.replace('_', ' ')} {value:.1f}"
