"""Report training progress to the terminal, the run's log file and, if enabled, TensorBoard."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from regard.data.pair_check import pluralize
from regard.errors import RegardError
from regard.files import wrap_write_errors
from regard.messages import escape_controls, print_message
from regard.run import Run
from regard.training.slowdown import Slowdown

MIN_SECONDS_TO_REPORT = 120.0  # report the remaining time only if it is longer
STEPS_TIMED = 20


class Pace:
    """An estimate of the remaining time from the first steps, except the very first, which is slower."""

    def __init__(self, steps: int) -> None:
        self.steps, self.steps_done, self.start_time = steps, 0, 0.0

    def seconds_left(self, step: int) -> float | None:
        """Return the estimated seconds for the steps after `step`; None until enough steps were timed."""
        self.steps_done += 1
        if self.steps_done == 1:
            self.start_time = time.perf_counter()
        if self.steps_done <= STEPS_TIMED:
            return None
        return (time.perf_counter() - self.start_time) / (self.steps_done - 1) * (self.steps - step)


class Reporter:
    """Report progress to stderr and the run's log file, with a progress bar on a terminal.

    Args:
        run: The run whose log file to append to, if any.
        quiet: Print nothing to stderr.
    """

    def __init__(self, run: Run | None = None, *, quiet: bool = False) -> None:
        self.run, self.quiet = run, quiet
        self.stop_reported = False  # whether the user knows what a stopped training keeps
        self._bar: Any = None
        self._task: Any = None
        self._smoothed_loss: float | None = None
        self._pace: Pace | None = None
        self._slowdown = Slowdown()

    def info(self, text: str) -> None:
        """Log one line."""
        text = escape_controls(text)
        if self.run is not None and self.run.path.is_dir():
            with wrap_write_errors(self.run.log_file), self.run.log_file.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print_message(text)

    @contextmanager
    def progress(self, steps: int, done: int) -> Iterator[None]:
        """Show a progress bar over all steps."""
        self._pace, self._slowdown, self._smoothed_loss = Pace(steps), Slowdown(), None
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

    def close_progress(self) -> None:
        """Remove the progress bar, which hides the cursor, before the process ends."""
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def show_count(self, unit: str) -> Iterator[Callable[[int], None]]:
        """Show a running count; yields a function to call with the current count."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + unit), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done: bar.update(task, completed=done)

    def step(self, step: int, loss: float) -> None:
        """Report that a step was made."""
        if self._pace is not None and (seconds_left := self._pace.seconds_left(step)) is not None:
            self._pace = None
            if seconds_left > MIN_SECONDS_TO_REPORT:
                self.info(f"about {seconds_left / 60:.0f} minutes left for all steps; press Ctrl-C to save and stop")
        self._smoothed_loss = loss if self._smoothed_loss is None else 0.95 * self._smoothed_loss + 0.05 * loss
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description=f"loss {self._smoothed_loss:.3f}")

    def time_update(self, seconds: float) -> None:
        """Record how long an update took; report once if updates have become several times slower."""
        if note := self._slowdown.add(seconds):
            self.info(note)

    def report_validation(self, line: Mapping[str, float], *, better: bool) -> None:
        """Report the results of a validation."""
        metrics = "  ".join(format_metric(name, value) for name, value in line.items() if name.startswith("valid_"))
        mark = "  best so far" if better else ""
        skipped = f"  {pluralize(int(line['skipped']), 'update')} skipped" if "skipped" in line else ""
        train = f"step {line['step']:>6}  {line['seconds']:.0f} s  train loss {line['train_loss']:.3f}"
        self.info(f"{train}  {metrics}{skipped}{mark}")

    def report_average(self, count: int, metrics: Mapping[str, float], *, better: bool) -> None:
        """Report the validation of averaged checkpoints."""
        metrics_text = "  ".join(format_metric(f"valid_{name}", value) for name, value in metrics.items())
        self.info(f"average of the last {count} checkpoints: {metrics_text}  {'saved' if better else 'no improvement'}")

    @contextmanager
    def open_tensorboard(self, run: Run, enabled: bool, step: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
        """Yield a function that writes the results of a validation to TensorBoard, if enabled."""
        if not enabled:
            yield lambda _: None
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise RegardError(
                "training.tensorboard requires the package tensorboard: pip install tensorboard"
            ) from None
        writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)

        def write(line: Mapping[str, float]) -> None:
            for name, value in line.items():
                writer.add_scalar(name, value, int(line["step"]))

        try:
            yield write
        finally:
            writer.close()


FRACTION_METRICS = ("exact", "accuracy", "f1", "macro_f1")
"""Metrics between 0 and 1, shown as percentages."""


def format_metric(name: str, value: float) -> str:
    """Format one metric of a validation."""
    name = name.removeprefix("valid_")
    if name in FRACTION_METRICS:
        return f"{name.replace('_', ' ').replace('f1', 'F1')} {100 * value:.1f} %"
    if name == "loss":
        return f"valid loss {value:.3f}"
    return f"{name.upper() if name == 'bleu' else name.replace('_', ' ')} {value:.1f}"
