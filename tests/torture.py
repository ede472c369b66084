"""Kill training at random points, many times, and compare the results with those of a training left alone.

`make torture` kills 200 trainings, in all four tasks, with EMA and with averaged checkpoints. Most are killed before
a counted operation on a file of the run folder, the others at a random time. After each kill the model that the card
names must load, and the same training must end in the same bits. A fifth as many trainings run out of disk space, or
may no longer write: they must end in one line that says so, and continue to the same bits.

All trainings are forked from one process that has imported PyTorch, so that a kill takes a second or two.
"""

import argparse
import errno
import hashlib
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITING = {"fsync", "os.rename"}
"""Operations between opening and renaming a file: a kill before them leaves it partly or wholly written."""
REMOVING = {"os.remove", "os.rmdir"}
OPERATIONS = {"open", "os.rename", "os.mkdir", *REMOVING}
REFUSED = 2
FSYNC = os.fsync
STEPS = {"steps": 8, "validate_every": 2, "patience": 0}
VARIANTS: dict[str, dict[str, Any]] = {"ema": {"ema_decay": 0.9}, "average": {"average_checkpoints": 2}}


@dataclass(frozen=True)
class Case:
    """A training to kill, and what it ends in when it is left alone."""

    name: str
    recipe: dict[str, Any]
    result: str = ""
    operations: tuple[str, ...] = ()
    seconds: float = 0.0


def build_recipes(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the data of each task and return its recipe."""
    from tests.tiny_labels import write_data

    write_data(folder)
    lines = ["the cat sees the dog", "the dog sees a bird", "a bird sings", "the cat sleeps", "a dog sleeps"]
    (folder / "lines.txt").write_text("\n".join(lines * 8))
    small = {"hidden": 8, "embedding": 8, "dropout": 0.2}
    corpus = {"train": "copy", "corpus_size": 100, "corpus": {"min_length": 2, "max_length": 4, "alphabet": "abcd"}}
    return {
        "pairs": {
            "data": corpus,
            "model": {"name": "bahdanau", **small},
            "training": {"batch_tokens": 100, "max_validation": 5, "metric": "loss"},
        },
        "text": {
            "data": {"train": str(folder / "lines.txt"), "documents": "line"},
            "text": {"tokenizer": "words"},
            "model": {"name": "gru-lm", **small},
            "training": {"batch_tokens": 100, "segment_length": 8},
        },
        "label": {
            "data": {"train": str(folder / "one.tsv"), "task": "label"},
            "model": {"name": "attentive-classifier", **small, "char_encoder": "none"},
            "training": {"batch_tokens": 200, "metric": "loss"},
        },
        "tag": {
            "data": {"train": str(folder / "names.bio")},
            "model": {"name": "attentive-tagger", **small, "char_encoder": "none"},
            "training": {"batch_tokens": 200, "metric": "loss"},
        },
    }


def fork(function: Callable[[], object], *, kill_after: float | None = None) -> int:
    """Call a function in a child process; return the status of the child, negative if a signal killed it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            refused = type(error).__name__ == "RegardError" and str(error).startswith("cannot write ")
            if not refused:
                traceback.print_exc()
            os._exit(REFUSED if refused else 1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)  # of a child that has ended already nothing is left to kill
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def count_operations(run: Path, act: Callable[[str], None]) -> None:
    """Call `act` with the name of every operation on a file of the run, before it."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS and isinstance(arguments[0], (str, os.PathLike)):
            reads = event == "open" and isinstance(arguments[1], str) and not set(arguments[1]) & set("wax+")
            if os.fspath(arguments[0]).startswith(str(run)) and not reads:
                act(event)

    def flush(fd: Any) -> None:
        act("fsync")

    os.fsync = flush
    sys.addaudithook(audit)


def train(recipe: dict[str, Any], run: Path) -> None:
    """Train as the command does. Nothing is flushed to the disk, which matters for a power cut, but not for a kill."""
    from regard.api import train

    if os.fsync is FSYNC:
        os.fsync = lambda fd: None
    train(recipe, run, quiet=True)


def train_counted(recipe: dict[str, Any], run: Path, log: Path) -> None:
    """Train, and write the operations on files to a log."""
    operations: list[str] = []
    count_operations(run, operations.append)
    train(recipe, run)
    log.write_text(json.dumps(operations))


def train_until(recipe: dict[str, Any], run: Path, index: int, error: int | None = None) -> None:
    """Train; before an operation on a file, die, or let all from then on fail that need space or permission."""
    numbers = itertools.count()

    def act(operation: str) -> None:
        number = next(numbers)
        if error is None and number == index:
            os.kill(os.getpid(), signal.SIGKILL)
        elif error is not None and number >= index and operation not in REMOVING:
            raise OSError(error, os.strerror(error))

    count_operations(run, act)
    train(recipe, run)


def describe_result(run: Path) -> str:
    """Return checksums of everything that must not differ: model, recipe, tokenizer, metrics and best score."""
    from regard.checkpoint import list_checkpoints
    from regard.run import Run

    folder = Run(run)
    sums = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in folder.read_checksums()}
    assert sums == folder.read_checksums(), "the card names other files"
    del sums["metrics.jsonl"]  # the lines have seconds
    metrics = [{**line, "seconds": 0} for line in folder.read_metrics()]
    best = {**folder.read_card()["best"], "seconds": 0}
    last = list_checkpoints(folder)[-1]
    names = sorted(path.name for path in run.iterdir())
    return json.dumps([sums, metrics, best, last.step, last.load_state()["finished"], names])


def check_loading(run: Path) -> None:
    """Load the model of a run whose training was killed, if the card names one."""
    from regard.run import Run
    from regard.tasks.loading import load

    if Run(run).card_file.exists() and "model.safetensors" in Run(run).read_checksums():
        load(run)


def prepare(name: str, recipe: dict[str, Any], folder: Path) -> Case:
    """Train without a kill, to know the result, the operations on files and the duration."""
    run, log = folder / f"{name}-whole", folder / f"{name}.json"
    begin = time.monotonic()
    assert fork(lambda: train_counted(recipe, run, log)) == 0, name
    seconds = time.monotonic() - begin
    return Case(name, recipe, describe_result(run), tuple(json.loads(log.read_text())), seconds)


def kill_and_resume(case: Case, run: Path, draw: random.Random, kind: str) -> str:
    """Kill one training and resume it; return what is wrong, or nothing."""
    if kind == "time":
        delay = draw.uniform(0, case.seconds)
        point = f"{delay:.2f} s"
        fork(lambda: train(case.recipe, run), kill_after=delay)
    else:
        kinds = {"writing": WRITING, "files": OPERATIONS - WRITING}.get(kind, WRITING | OPERATIONS - REMOVING)
        points = [i for i, operation in enumerate(case.operations) if operation in kinds]
        index = draw.choice(points)
        point = f"operation {index} ({case.operations[index]})"
        error = {"space": errno.ENOSPC, "permission": errno.EROFS}.get(kind)
        status = fork(lambda: train_until(case.recipe, run, index, error))
        if status != (REFUSED if error else -signal.SIGKILL):
            return f"{case.name}, {point}, {kind}: status {status}"
    if fork(lambda: check_loading(run)) != 0:
        return f"{case.name}, {point}: the model of the card does not load"
    if fork(lambda: train(case.recipe, run)) != 0:
        return f"{case.name}, {point}: cannot resume"
    result = describe_result(run)
    return "" if result == case.result else f"{case.name}, {point}: another result:\n{result}\n{case.result}"


def torture(kills: int, seed: int, folder: Path) -> list[str]:
    """Kill trainings; return what is wrong, one line each, and print a summary."""
    import torch

    torch.set_num_threads(1)  # a fork has only the thread that forks
    recipes = build_recipes(folder)
    for task, recipe in recipes.items():  # imports what a training needs, so that the forks need not
        train({**recipe, "training": {**recipe["training"], "steps": 1, "validate_every": 1}}, folder / task)
    cases = [
        prepare(f"{task}-{variant}", {**recipe, "training": {**recipe["training"], **STEPS, **settings}}, folder)
        for task, recipe in recipes.items()
        for variant, settings in VARIANTS.items()
    ]
    draw, begin, problems, counts = random.Random(seed), time.monotonic(), [], Counter[str]()
    faults = kills // 5
    for number in range(kills + faults):
        kinds = ("writing", "files", "time") if number < kills else ("space", "permission")
        kind = kinds[number // len(cases) % len(kinds)]
        counts[kind] += 1
        problem = kill_and_resume(cases[number % len(cases)], folder / f"run-{number}", draw, kind)
        if problem:
            problems.append(problem)
            print(problem, flush=True)
    print(
        f"{kills + faults - len(problems)} of {kills + faults} stopped trainings ended in the same bits, "
        f"in {time.monotonic() - begin:.0f} s; "
        f"killed while a file was written: {counts['writing']}, at another operation on a file: {counts['files']}, "
        f"at a random time: {counts['time']}; out of space: {counts['space']}, read-only: {counts['permission']}"
    )
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as folder:
        return 1 if torture(options.kills, options.seed, Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
