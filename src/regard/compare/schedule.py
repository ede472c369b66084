"""Run trainings in processes of their own, several at a time, and show a table of their progress."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from regard.compare.plan import Plan, Variant
from regard.compare.worker import get_result_file, get_run_folder
from regard.errors import RegardError
from regard.files import wrap_write_errors
from regard.messages import print_message
from regard.run import Run
from regard.training.reporter import format_metric

POLL_SECONDS = 0.2


@dataclass
class Training:
    """One training and its state: waiting, running, done, or the reason why it failed."""

    seed: int
    command: Sequence[str]  # trains, and writes the result
    run: Path
    result: Path  # exists once the training is done
    log: Path  # what it prints to stderr
    model: str = ""  # the name of the model, if several are trained
    state: str = "waiting"
    process: subprocess.Popen[bytes] | None = None
    errors: IO[bytes] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The model, if several are trained, and the seed."""
        return f"{self.model}, seed {self.seed}" if self.model else f"seed {self.seed}"

    def start(self) -> None:
        """Start the training in a process of its own; what it prints to stderr goes to its log."""
        with wrap_write_errors(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.errors = self.log.open("w+b")
        self.process, self.state = subprocess.Popen(self.command, stderr=self.errors), "running"

    def poll(self) -> bool:
        """Return whether the process has ended; if so, set the state."""
        assert self.process is not None and self.errors is not None
        status = self.process.poll()
        if status is None:
            return False
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        self.errors.close()
        self.state = "done" if status == 0 else (lines[-1] if lines else f"exit status {status}")
        return True

    def describe_progress(self) -> dict[str, str]:
        """Return the cells of the table: step, metric of the best model so far, seconds."""
        line = read_last_metrics(Run(self.run))
        if line is None:
            return {}
        metrics = {name: value for name, value in line.items() if name.startswith("valid_")}
        return {
            "step": f"{line['step']:,}",
            "validation": "  ".join(format_metric(name, value) for name, value in metrics.items()),
            "seconds": f"{line['seconds']:.0f}",
        }


def read_last_metrics(run: Run) -> dict[str, Any] | None:
    """Return the newest line of metrics of a run that may be in training, or None."""
    try:
        lines = run.metrics_file.read_text(encoding="utf-8").splitlines()
        return dict(json.loads(lines[-1])) if lines else None
    except (OSError, ValueError):
        return None


def run_all(plan: Plan, folder: Path, *, jobs: int = 1, quiet: bool = False) -> list[Training]:
    """Run all trainings of a comparison that have no result yet; return all with their state."""
    trainings = [build_training(variant, seed, folder) for variant, seed in plan.trainings]
    run_trainings(trainings, jobs=jobs, quiet=quiet)
    return trainings


def build_training(variant: Variant, seed: int, folder: Path) -> Training:
    """Return a training of a comparison, which waits."""
    result = get_result_file(folder, variant, seed)
    return Training(
        seed=seed,
        command=[sys.executable, "-m", "regard.compare.worker", str(folder), variant.name, str(seed)],
        run=get_run_folder(folder, variant, seed),
        result=result,
        log=result.with_suffix(".log"),
        model=variant.name,
    )


def run_trainings(trainings: list[Training], *, jobs: int, quiet: bool) -> None:
    """Run all trainings that have no result yet, at most `jobs` at a time, and set their states.

    A failed training does not stop the others. Ctrl-C or SIGTERM stops and saves all of them.

    Raises:
        RegardError: All trainings failed.
    """
    waiting = [training for training in trainings if not mark_done(training)]
    running: list[Training] = []
    with show_progress(trainings, quiet) as update:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(waiting.pop(0))
                    running[-1].start()
                    update(running[-1])
                time.sleep(POLL_SECONDS)
                for training in [training for training in running if training.poll()]:
                    running.remove(training)
                    update(training)
                update(None)
        except BaseException as error:  # also an error of starting one, such as a full disk
            stop_all(running, by_terminal=type(error) is KeyboardInterrupt and sys.stdin.isatty())
            raise
    if all(training.state != "done" for training in trainings):
        raise RegardError(f"{trainings[0].name}: {trainings[0].state}")


def mark_done(training: Training) -> bool:
    """Mark a training as done if it has a result."""
    if training.result.exists():
        training.state = "done"
    return training.state == "done"


def stop_all(running: list[Training], *, by_terminal: bool) -> None:
    """Ask all trainings to save and stop, and wait for them; Ctrl-C on a terminal has reached them already."""
    processes = [training.process for training in running if training.process is not None]
    for process in processes:
        if not by_terminal:
            process.terminate()
    for process in processes:
        process.wait()


@contextmanager
def show_progress(trainings: list[Training], quiet: bool) -> Iterator[Any]:
    """Yield a function that shows the trainings: a live table on a terminal, else a line for each change."""
    if quiet:
        yield lambda changed: None
        return
    if not sys.stderr.isatty():
        yield print_change
        return
    from rich.console import Console
    from rich.live import Live

    with Live(build_table(trainings), console=Console(stderr=True), refresh_per_second=2) as live:
        yield lambda changed: live.update(build_table(trainings))


def print_change(changed: Training | None) -> None:
    """Print one line about a training that started or ended."""
    if changed is not None:
        cells = changed.describe_progress() if changed.state == "done" else {}
        progress = "step {step}  {validation}  {seconds} s".format(**cells) if cells else ""
        print_message(f"{changed.name}: {changed.state}  {progress}".rstrip())


def build_table(trainings: list[Training]) -> Any:
    """Build the table of all trainings for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    columns = ["model"] if any(training.model for training in trainings) else []
    columns += ["seed", "state", "step", "validation", "seconds"]
    table = Table(*columns, box=None, pad_edge=False)
    for training in trainings:
        cells = training.describe_progress() if training.state != "waiting" else {}
        cells |= {"model": training.model, "seed": str(training.seed), "state": training.state}
        table.add_row(*(escape(cells.get(column, "")) for column in columns))
    return table
