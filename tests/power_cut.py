"""Cut the power at every operation of a training on its files, and use what may be left on the disk then.

A training is recorded: what its folder contains before each operation on a file, and which files and folders it has
flushed. From that follows what a disk may hold after a power cut, if it keeps only what it must: a folder may have
its entries of the last flush or any later ones, and a file its content of the last flush, any later one, or part of it
and zeros for the rest. So a renaming may survive without the data, and the data without the renaming.

From each disk the newest checkpoint that was complete must be found, the model must load once there was one, and the
same training must end in the same bits. `make torture` runs all of this; a small part is in the tests.
"""

import argparse
import hashlib
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.torture import STEPS, VARIANTS, Case, build_recipes, describe_result, fork, train

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
MEMORY = Path("/dev/shm")  # disks are laid out in memory where the system can

T = TypeVar("T")
Versions = list[tuple[int, T]]
"""The values of something, each with the number of the operation before which it was first seen."""
Disk = dict[str, bytes | None]
"""The content of each file by its path, and None for a folder."""


@dataclass
class History:
    """The folders and files of a training, by their inode, at each operation."""

    root: int
    length: int = 0
    entries: dict[int, Versions[dict[str, int]]] = field(default_factory=dict)
    contents: dict[int, Versions[bytes]] = field(default_factory=dict)
    flushes: dict[int, list[int]] = field(default_factory=dict)
    saved_steps: list[tuple[int, int]] = field(default_factory=list)  # operation and step
    saved_model: int = sys.maxsize  # operation

    def get_saved_step(self, now: int) -> int:
        """Return the step of the newest checkpoint that was complete before an operation."""
        return max((step for number, step in self.saved_steps if number <= now), default=0)

    def list_entries(self, folder: int, now: int) -> list[dict[str, int]]:
        """Return the entries that a folder may have on the disk, oldest first."""
        return list_versions(self.entries[folder], self.flushes.get(folder, []), now, {})

    def list_contents(self, file: int, now: int) -> list[bytes]:
        """Return the contents that a file may have on the disk, oldest first; the second is torn."""
        contents = list_versions(self.contents[file], self.flushes.get(file, []), now, b"")
        half = len(contents[-1]) // 2
        torn = contents[-1][:half] + bytes(len(contents[-1]) - half)
        return contents if len(contents) == 1 else [contents[0], torn, *contents[1:]]


def list_versions(versions: Versions[T], flushes: Sequence[int], now: int, empty: T) -> list[T]:
    """Return the value at the last flush before an operation, or what there was before any, and all values since."""
    known = [(begin, value) for begin, value in versions if begin <= now]
    flushed = max((number for number in flushes if number < now), default=None)
    if flushed is None:
        return [empty, *(value for _, value in known)]
    older = sum(begin <= flushed for begin, _ in known)
    return [value for _, value in known[older - 1 :]]


class Recorder:
    """Records the history of a folder in this process, from now on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.history = folder, History(folder.stat().st_ino)
        self.handles: dict[int, int] = {}  # open, so that no number of a removed file is given to another
        self.busy = False
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        os.fsync = self.flush  # type: ignore[assignment]
        sys.addaudithook(self.audit)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take a snapshot before each operation that changes files or folders."""
        if not self.busy and (event in CHANGES or (event == "open" and arguments[2] & WRITES)):
            self.take_snapshot()

    def flush(self, handle: Any) -> None:
        """Note which file or folder is flushed."""
        self.take_snapshot()
        inode = os.fstat(handle).st_ino
        self.history.flushes.setdefault(inode, []).append(self.history.length - 1)

    def take_snapshot(self) -> None:
        """Add the folders and files as they are now to the history, as far as they have changed."""
        self.busy = True
        self.add_folder(self.folder, self.history.root)
        self.history.length += 1
        self.busy = False

    def add_folder(self, path: Path, inode: int) -> None:
        """Add a folder and what it contains."""
        entries = {}
        for entry in os.scandir(path):
            entries[entry.name] = entry.inode()
            if entry.inode() not in self.handles:
                self.handles[entry.inode()] = os.open(entry.path, os.O_RDONLY)
            if entry.is_dir():
                self.add_folder(Path(entry.path), entry.inode())
            else:
                content = Path(entry.path).read_bytes()
                self.add_version(self.history.contents.setdefault(entry.inode(), []), content)
        self.add_version(self.history.entries.setdefault(inode, []), entries)

    def add_version(self, versions: Versions[T], value: T) -> None:
        """Add a value if it differs from the last one."""
        if not versions or versions[-1][1] != value:
            versions.append((self.history.length, value))


def note_saving(history: History, folder: Path) -> None:
    """Note in the history when a checkpoint or a model of the run is complete, as the training takes it."""
    from regard.run import Run
    from regard.training import loop as training_loop

    loop: Any = training_loop
    run_class: Any = Run
    save_checkpoint, save_model = loop.save_checkpoint, run_class.save_model

    def save_noted_checkpoint(run: Run, step: int, *arguments: Any) -> Any:
        checkpoint = save_checkpoint(run, step, *arguments)
        if run.path == folder:
            history.saved_steps.append((history.length, step))
        return checkpoint

    def save_noted_model(run: Run, *arguments: Any) -> None:
        save_model(run, *arguments)
        if run.path == folder:
            history.saved_model = min(history.saved_model, history.length)

    loop.save_checkpoint, run_class.save_model = save_noted_checkpoint, save_noted_model


def record(recipe: dict[str, Any], run: Path) -> History:
    """Train in a child process and return its history."""
    run.mkdir()
    log = run.with_suffix(".history")

    def train_recorded() -> None:
        recorder = Recorder(run)
        note_saving(recorder.history, run)
        train(recipe, run)
        recorder.take_snapshot()
        recorder.busy = True
        log.write_bytes(pickle.dumps(recorder.history))

    assert fork(train_recorded) == 0
    history: History = pickle.loads(log.read_bytes())
    return history


Choose = Callable[[list[Any]], Any]
"""Chooses what the disk keeps, of values from oldest to newest."""


def build_disk(history: History, now: int, choose_entries: Choose, choose_content: Choose) -> Disk:
    """Return what the disk holds after a power cut before an operation."""

    def walk(folder: int, path: str) -> Iterator[tuple[str, bytes | None]]:
        for name, inode in choose_entries(history.list_entries(folder, now)).items():
            if inode in history.entries:
                yield f"{path}{name}", None
                yield from walk(inode, f"{path}{name}/")
            else:
                yield f"{path}{name}", choose_content(history.list_contents(inode, now))

    return dict(walk(history.root, ""))


def list_disks(history: History, now: int, draw: random.Random) -> list[Disk]:
    """Return disks after a power cut: the extremes, torn files, and mixtures."""

    def oldest(values: list[Any]) -> Any:
        return values[0]

    def torn(values: list[Any]) -> Any:
        return values[min(1, len(values) - 1)]

    def newest(values: list[Any]) -> Any:
        return values[-1]

    pairs = [(newest, oldest), (newest, torn), (oldest, oldest), (oldest, newest), *[(draw.choice, draw.choice)] * 2]
    return [build_disk(history, now, *pair) for pair in pairs]


def lay_out(disk: Disk, run: Path) -> None:
    """Write the files of a disk."""
    run.mkdir()
    for name, content in disk.items():
        if content is None:
            (run / name).mkdir()
        else:
            (run / name).write_bytes(content)


def check_disk(run: Path, saved_step: int, *, has_model: bool) -> str:
    """Return what is lost or fails, or nothing; a checkpoint of a step was saved, and maybe a model."""
    from regard.checkpoint import list_checkpoints
    from regard.errors import RegardError
    from regard.run import Run
    from regard.tasks.loading import load

    try:
        step = max((checkpoint.step for checkpoint in list_checkpoints(Run(run))), default=0)
        if step < saved_step:
            return f"the checkpoint of step {saved_step} is lost; the newest is {step}"
        load(run)
    except RegardError as error:
        return f"the model is lost: {error}" if has_model or "\n" in str(error) else ""
    except Exception:
        return traceback.format_exc()
    return ""


@dataclass
class Outcome:
    """How many power cuts were tried, and what went wrong."""

    operations: int = 0
    disks: int = 0
    resumed: int = 0
    problems: list[str] = field(default_factory=list)


def cut_power(case: Case, history: History, folder: Path, draw: random.Random, every: int, resumes: int) -> Outcome:
    """Check what every disk holds, at every so many operations, and resume the training from some of the disks."""
    outcome = Outcome()
    seen: dict[bytes, tuple[int, Disk]] = {}
    for now in range(0, history.length, every):
        outcome.operations += 1
        for disk in list_disks(history, now, draw):
            used = {name: content for name, content in disk.items() if name not in ("log", "training/lock")}
            key = hashlib.sha256(pickle.dumps(sorted(used.items()))).digest()
            if key not in seen:
                seen[key] = (now, disk)
                run = folder / f"{case.name}-{now}-{len(seen)}"
                lay_out(disk, run)
                has_model = now >= history.saved_model
                if problem := check_disk(run, history.get_saved_step(now), has_model=has_model):
                    outcome.problems.append(f"{case.name}, before operation {now}: {problem}")
                shutil.rmtree(run)
    outcome.disks = len(seen)
    chosen = list(seen.values())
    for now, disk in draw.sample(chosen, min(resumes, len(chosen))):
        outcome.resumed += 1
        run = folder / f"{case.name}-{now}-resumed"
        lay_out(disk, run)
        if fork(partial(train, case.recipe, run)) != 0:
            outcome.problems.append(f"{case.name}, before operation {now}: cannot resume")
        elif (result := describe_result(run)) != case.result:
            outcome.problems.append(f"{case.name}, before operation {now}: another result:\n{result}\n{case.result}")
        shutil.rmtree(run)
    return outcome


def build_cases(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the recipe of each case: all tasks, with EMA or averaging, and one with pretraining."""
    tasks, variants = build_recipes(folder), list(VARIANTS.values())
    recipes = {
        task: {**recipe, "training": {**recipe["training"], **STEPS, **variants[number % len(variants)]}}
        for number, (task, recipe) in enumerate(tasks.items())
    }
    (folder / "unlabeled.txt").write_text("the cat sees the dog\n" * 8)
    recipes["pretraining"] = {
        **recipes["label"],
        "data": {**tasks["label"]["data"], "unlabeled": str(folder / "unlabeled.txt")},
        "pretraining": {"steps": 4, "batch_tokens": 60},
    }
    return recipes


def run_case(name: str, recipe: dict[str, Any], folder: Path, draw: random.Random, every: int, resumes: int) -> Outcome:
    """Record a training, and cut its power."""
    train({**recipe, "training": {**recipe["training"], "steps": 2}}, folder / f"{name}-imports")
    history = record(recipe, folder / name)
    case = Case(name, recipe, describe_result(folder / name))
    return cut_power(case, history, folder, draw, every, resumes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="cut the power at every so many operations")
    parser.add_argument("--resumes", type=int, default=40, help="trainings of each case to resume")
    parser.add_argument("--cases", default="", help="names with commas between them")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    import torch

    torch.set_num_threads(1)  # a fork has only the thread that forks
    begin, outcomes = time.monotonic(), []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as temporary:
        recipes = build_cases(Path(temporary))
        for name in options.cases.split(",") if options.cases else recipes:
            draw = random.Random(f"{options.seed} {name}")
            outcomes.append(run_case(name, recipes[name], Path(temporary), draw, options.every, options.resumes))
            print(f"{name}: {outcomes[-1]}", flush=True)
    problems = sum(len(outcome.problems) for outcome in outcomes)
    print(
        f"power cut before {sum(outcome.operations for outcome in outcomes)} operations on files of "
        f"{len(outcomes)} trainings: {sum(outcome.disks for outcome in outcomes)} different disks, of which "
        f"{sum(outcome.resumed for outcome in outcomes)} were trained on to the end; "
        f"{problems} problems, in {time.monotonic() - begin:.0f} s"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
