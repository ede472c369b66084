"""Time a small training on a busy machine: how long OpenMP's threads spin, and how many there are.

    python benchmarks/threads.py --steps 40 --busy 0 1 2

Trains through the command `regard`, each time in a new process: with OpenMP's default spin, the short
spin that the command sets, no spin, and one thread; alone and beside programs that keep a core busy
each, which it starts and ends itself. Prints the seconds of the training without its start.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = "import sys; from regard.cli import main; sys.exit(main())"
BUSY = "while True: pass"
WAYS: dict[str, tuple[dict[str, str], list[str]]] = {  # name: variables, options
    "default spin": (
        {"OMP_DYNAMIC": "false"},
        [],
    ),  # its default value; any variable keeps the command from setting ours
    "short spin": ({}, []),
    "no spin": ({"OMP_WAIT_POLICY": "passive"}, []),
    "one thread": ({}, ["--threads", "1"]),
}


def clean_environment() -> dict[str, str]:
    """The environment without variables of OpenMP."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Keep as many cores busy with other programs."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def time_training(way: str, steps: int, limit: float) -> float | None:
    """The seconds of a training, or None if it takes longer than the limit."""
    variables, options = WAYS[way]
    line = ["train", "reverse", "--corpus-size", "1000", "--data.corpus.alphabet", "abcdefgh", "--hidden", "64"]
    line += ["--steps", str(steps), "--validate-every", str(steps), "--max-validation", "1"]
    line += ["--device", "cpu", "--quiet", *options]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", COMMAND, *line, "--out", str(run)]
        try:
            subprocess.run(command, env={**clean_environment(), **variables}, timeout=limit, check=True)
        except subprocess.TimeoutExpired:
            return None
        return float(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["seconds"])


def measure_column(options: argparse.Namespace) -> dict[str, str]:
    """The median of all rounds of each way; the ways take turns, so that all meet the same load."""
    seconds: dict[str, list[float | None]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, times in seconds.items():
            times.append(time_training(way, options.steps, options.limit))
    return {way: format_median(times, options.limit) for way, times in seconds.items()}


def format_median(times: list[float | None], limit: float) -> str:
    """The lower median; trainings that were ended count as the longest."""
    median = statistics.median_low(math.inf if each is None else each for each in times)
    return f"ended after {limit:.0f}" if median == math.inf else f"{median:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Time a small training on a busy machine.")
    parser.add_argument("--steps", type=int, default=40, help="updates of a training")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="numbers of busy programs beside it")
    parser.add_argument("--rounds", type=int, default=1, help="trainings of each kind; prints the median")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds after which a training is ended, with its start"
    )
    options = parser.parse_args()
    loads = [os.getloadavg()[0]]
    cells: dict[str, list[str]] = {way: [] for way in WAYS}
    for busy in options.busy:
        with busy_programs(busy):
            for way, cell in measure_column(options).items():
                cells[way].append(cell)
        loads.append(os.getloadavg()[0])
    print("".join(f"| {title} " for title in ("seconds", *(f"beside {each} busy" for each in options.busy))) + "|")
    print("|---" * (1 + len(options.busy)) + "|")
    for way, row in cells.items():
        print("".join(f"| {cell} " for cell in (way, *row)) + "|")
    shown = ", ".join(f"{load:.1f}" for load in loads)
    print(f"\n{options.steps} updates, {os.cpu_count()} cores; load average before and after each column: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
