"""Run cases of the fuzzer, each with its own folder, random numbers and limits of time and memory."""

import contextlib
import io
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType

from regard.cli import main
from regard.errors import RegardError

CASE_SECONDS = 20.0
MAX_MESSAGE = 20_000  # characters
MEMORY = Path("/dev/shm")  # files of cases are kept in memory where the system can
CASE_BYTES = 3 * 2**30  # more than a process has at its start


class CaseRandom(random.Random):
    """Random numbers of one case, which has an empty folder for its files."""

    folder: Path


Target = Callable[[CaseRandom], None]
"""Makes one case and runs it; may raise a `RegardError`, and nothing else."""


class TookTooLongError(BaseException):
    """A case ran past its time; no `except Exception` catches it."""


class StatusError(BaseException):
    """A command ended with another status than 0 or 2."""


@dataclass
class Outcomes:
    """How the cases of a target ended."""

    accepted: int = 0
    refused: int = 0  # with a `RegardError`
    failures: list[str] = field(default_factory=list)  # tracebacks

    def __str__(self) -> str:
        return f"{self.accepted:,} accepted, {self.refused:,} refused, {len(self.failures):,} failed"


def run_case(name: str, target: Target, seed: int, index: int, folder: Path, outcomes: Outcomes) -> str | None:
    """Run one case; return the traceback of a failure, or None. The files of the case stay in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = CaseRandom(f"{seed} {name} {index}")
    rng.folder = folder
    failure = None
    try:
        with limit_time(CASE_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target(rng)
        outcomes.accepted += 1
    except RegardError as error:
        outcomes.refused += 1
        failure = f"the message has {len(str(error)):,} characters" if len(str(error)) > MAX_MESSAGE else None
    except KeyboardInterrupt:
        raise
    except BaseException:
        failure = traceback.format_exc()
    outcomes.failures += [] if failure is None else [failure]
    return failure


def run_command(arguments: Sequence[object], stdin: bytes = b"") -> str:
    """Run a command line in this process and return what it wrote to stdout.

    Raises:
        RegardError: Its status is 2.
        StatusError: Its status is neither 0 nor 2.
    """
    out, err = io.StringIO(), io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([str(argument) for argument in arguments])
    finally:
        sys.stdin = before
    if status == 2:
        raise RegardError(err.getvalue())
    if status != 0:
        raise StatusError(f"status {status} of regard {' '.join(map(str, arguments))}\n{err.getvalue()}")
    return out.getvalue()


@contextlib.contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise `TookTooLongError` after some seconds of computing, or after ten times as long where it only waits.

    A busy machine makes everything take longer, but not compute longer.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TookTooLongError(f"more than {seconds:g} seconds")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 10 * seconds)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def limit_memory(more: int = CASE_BYTES) -> Iterator[None]:
    """Limit the address space of this process to a number of bytes more than it has now, where the system can."""
    status = Path("/proc/self/statm")
    if not status.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(status.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def fuzz(
    targets: Mapping[str, Target],
    cases: int,
    seed: int,
    *,
    first: int = 0,
    seconds: float = float("inf"),
    failures: Path | None = None,
    report: Callable[[str], object] = lambda line: None,
    slow: Container[str] = (),
) -> dict[str, Outcomes]:
    """Run cases of all targets in turn.

    Args:
        targets: What to fuzz, by name.
        cases: Number of cases of all targets together.
        seed: Seed of the random numbers.
        first: Index of the first case of each target.
        seconds: Stop after this time.
        failures: Folder for the files of failed cases; None keeps none.
        report: Receives lines about failures and progress.
        slow: Names of targets that take part in every second turn only.

    Returns:
        How the cases of each target ended.
    """
    start, done = time.monotonic(), 0
    outcomes = {name: Outcomes() for name in targets}
    if failures is not None:
        failures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as temporary:
        folder = Path(temporary) / "case"
        turns = ((index, name) for index in count(first) for name in targets if index % 2 == 0 or name not in slow)
        for index, name in turns:
            if done == cases or time.monotonic() - start > seconds:
                break
            done += 1
            repeat = f"--targets {name} --seed {seed} --first {index} --cases 1"
            if failures is not None:  # a case that ends the process leaves this behind
                (failures / "last.txt").write_text(f"{repeat}\n")
            failure = run_case(name, targets[name], seed, index, folder, outcomes[name])
            if failure is not None:
                report(f"FAILED {name}; repeat with {repeat}\n{failure}")
            if failure is not None and failures is not None:
                kept = failures / f"{name}-{seed}-{index}"
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                (kept / "traceback.txt").write_text(failure, errors="backslashreplace")
            if done % 1000 == 0:
                report(f"{done:,} cases")
    report(f"{done:,} cases of {len(targets)} targets in {time.monotonic() - start:.0f} s")
    return outcomes
