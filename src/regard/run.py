"""The run folder: a trained model as files that anyone can read.

    recipe.toml          every setting it was trained with
    run.json             what it is, how good it was, and the checksums of the files
    model.safetensors    the best parameters
    tokenizer.json       text <-> numbers
    metrics.jsonl        a line for each validation
    log                  what was said during training
    training/            checkpoints, to go on from
    reading/             the same of unlabelled text, where it was read before labels were learnt

Every file but the log is written under another name, flushed and renamed, so that it is
whole or not there. Nothing is ever pickled.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import portalocker

from regard import __version__
from regard.errors import RegardError
from regard.files import (
    UNFINISHED,
    checksum,
    flush_folder,
    read_tensors,
    reading,
    write_bytes,
    write_tensors,
    write_text,
    writing,
)
from regard.settings import Table, read_toml, shown, to_toml

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
READING = "reading"  # the folder, within a run, of what was read before labels were learnt
BEFORE_THE_CARD = {"training", "log", "tokenizer.json", "recipe.toml"}
"""What a run may have before its run.json; that comes last, so the rest is there with it."""

Card = dict[str, Any]


class Inside:
    """The path of what has this name in a run folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Run, kind: object = None) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class Run:
    """A run folder; nothing is read or written before it is asked for."""

    path: Path

    recipe_file = Inside("recipe.toml")
    card_file = Inside("run.json")
    model_file = Inside("model.safetensors")
    tokenizer_file = Inside("tokenizer.json")
    metrics_file = Inside("metrics.jsonl")
    log_file = Inside("log")
    checkpoints = Inside("training")
    lock_file = Inside("training/lock")

    def exists(self) -> bool:
        """Whether a run was begun here; a folder of other things is refused."""
        with reading(self.path):
            if not self.path.exists():
                return False
            if not self.path.is_dir():
                raise RegardError(f"{self.path}: is a file; a folder for the run is needed")
            if self.card_file.exists():
                return True
            names = {each.name for each in self.path.iterdir() if not each.name.endswith(UNFINISHED)}
            if names and not (self.lock_file.exists() and names <= BEFORE_THE_CARD):
                raise RegardError(f"{self.path}: holds other things than a run; choose another folder")
            return False

    def read_recipe(self) -> Table:
        """The settings as they were trained with."""
        return read_toml(self.recipe_file)

    def read_card(self) -> Card:
        """What the run is, checked to be of a format that we know."""
        try:
            with reading(self.card_file):
                if self.path.is_file():
                    raise RegardError(f"{self.path}: is a file; a run folder is needed")
                if not self.path.is_dir():
                    raise RegardError(f"{self.path}: there is no such folder; a run made by regard train is needed")
                if not self.card_file.exists():
                    raise RegardError(f"{self.path}: is no run; there is no run.json in it")
                card = json.loads(self.card_file.read_bytes())
        except ValueError as error:
            raise RegardError(f"{self.card_file}: is damaged ({error}); restore it from a copy") from None
        found = card.get("format") if isinstance(card, dict) else None
        if type(found) is not int or found < 1:
            raise RegardError(f"{self.card_file}: has the format {shown(found)}; this regard reads 1 to {FORMAT}")
        if found > FORMAT:
            raise RegardError(
                f"{self.card_file}: has the format {found}, made by regard {card.get('regard')}; "
                f"this regard {__version__} reads up to {FORMAT}: install a newer one"
            )
        return card

    def write_card(self, card: Mapping[str, Any]) -> None:
        """Write what the run is, with the checksums of the files that belong to it."""
        files = (self.recipe_file, self.tokenizer_file, self.model_file)
        sums = {file.name: checksum(file) for file in files if file.exists()}
        whole = {**card, "format": FORMAT, "regard": __version__, "sha256": sums}
        write_text(self.card_file, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")

    def note_best(self, best: Card) -> None:
        """Note the best validation so far on the card; a folder within a run has none."""
        if self.card_file.exists():
            self.write_card({**self.read_card(), "best": best})

    def write_recipe(self, table: Table) -> None:
        """Write the settings."""
        write_text(self.recipe_file, to_toml(table))

    def read_parameters(self, device: str = "cpu", only: Container[str] | None = None) -> dict[str, Tensor]:
        """The best parameters, all or those of some names; the file is checked against its checksum."""
        if not self.model_file.exists():
            raise RegardError(f"{self.path}: has no model.safetensors yet; train it until its first validation")
        self.check(self.model_file)
        return read_tensors(self.model_file, device, only)

    def check(self, file: Path) -> None:
        """Raise a `RegardError` if a file is not the one whose checksum the card has."""
        sums = self.read_card().get("sha256")
        wanted = sums.get(file.name) if isinstance(sums, dict) else None
        if wanted is not None and checksum(file) != wanted:
            raise RegardError(
                f"{file}: is not the file that was written (its checksum differs); restore it from a copy"
            )

    def metrics(self) -> list[dict[str, Any]]:
        """What each validation found."""
        found = []
        for number, line in enumerate(self._metrics().splitlines(), 1):
            try:
                values = json.loads(line)
            except ValueError:
                values = None
            if not isinstance(values, dict) or type(values.get("step")) is not int:
                raise RegardError(f"{self.metrics_file}, line {number}: is damaged; remove the line")
            found.append(values)
        return found

    def _metrics(self) -> bytes:
        with reading(self.metrics_file):
            return self.metrics_file.read_bytes() if self.metrics_file.exists() else b""

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Put the findings of one validation behind the others."""
        write_bytes(self.metrics_file, self._metrics() + json.dumps(dict(values)).encode() + b"\n")

    def cut_metrics(self, step: int) -> None:
        """Forget what was found after a step from which training goes on."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        write_text(self.metrics_file, "".join(json.dumps(line) + "\n" for line in kept))

    def discard(self) -> None:
        """Remove a run that has not begun, and its folder if nothing else is in it."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for file in (self.log_file, self.tokenizer_file, self.recipe_file):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, so that no two trainings write to it."""
        with writing(self.lock_file):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            file = self.lock_file.open("w")
        with file:
            try:
                portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
            except portalocker.AlreadyLocked:
                raise RegardError(f"{self.path}: another training writes here; wait, or choose another --out") from None
            except portalocker.LockException as error:
                reason = error.__cause__ if isinstance(error.__cause__, OSError) else error  # the system's own words
                raise RegardError(f"{self.lock_file}: cannot be locked: {reason.strerror or reason}") from None
            yield


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on from a step as if training had never stopped.

    Its folder is `step-000000100`, or `step-000000100.1` if written anew at that step.
    """

    path: Path

    @property
    def step(self) -> int:
        return self.order[0]

    @property
    def order(self) -> tuple[int, int]:
        """Its step, and how many were written at that step before."""
        step, _, before = self.path.name.removeprefix("step-").partition(".")
        return int(step), int(before or 0)

    def state(self) -> dict[str, Any]:
        """Counters and the like."""
        return json.loads((self.path / "state.json").read_bytes())

    def tensors(self, name: str, device: str = "cpu") -> dict[str, Tensor]:
        """The parameters (`model`) or another part of what training goes on from."""
        return read_tensors(self.path / f"{name}.safetensors", device)

    def parts(self) -> list[str]:
        """The names of all that `tensors` can give."""
        return sorted(file.stem for file in self.path.glob("*.safetensors"))

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.path)

    def is_whole(self) -> bool:
        """Whether all its files are there and unharmed."""
        try:
            sums = json.loads((self.path / "sha256.json").read_bytes())
        except (OSError, ValueError):
            return False
        if not isinstance(sums, dict) or "state.json" not in sums:
            return False
        return all((self.path / name).is_file() and checksum(self.path / name) == sums[name] for name in sums)


def checkpoints_of(run: Run) -> list[Checkpoint]:
    """All checkpoints that are whole, oldest first."""
    return [checkpoint for checkpoint in all_checkpoints(run) if checkpoint.is_whole()]


def all_checkpoints(run: Run) -> list[Checkpoint]:
    """All checkpoints, oldest first."""
    if not run.checkpoints.is_dir():
        return []
    with reading(run.checkpoints):
        paths = [path for path in run.checkpoints.iterdir() if re.fullmatch(r"step-\d+(\.\d+)?", path.name)]
    return sorted(map(Checkpoint, paths), key=lambda checkpoint: checkpoint.order)


def save_checkpoint(
    run: Run, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
) -> Checkpoint:
    """Write a checkpoint and remove all but the newest `keep`.

    Those of later steps go too: training went on from before them, as they are damaged.
    """
    others = all_checkpoints(run)
    same = [other.order[1] for other in others if other.step == step]
    checkpoint = Checkpoint(run.checkpoints / (f"step-{step:09d}" + (f".{max(same) + 1}" if same else "")))
    unfinished = run.checkpoints / UNFINISHED
    with writing(checkpoint.path):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name, values in tensors.items():
            write_tensors(unfinished / f"{name}.safetensors", values)
        write_text(unfinished / "state.json", json.dumps(dict(state)))
        sums = {path.name: checksum(path) for path in sorted(unfinished.iterdir())}
        write_text(unfinished / "sha256.json", json.dumps(sums))
        unfinished.rename(checkpoint.path)
        flush_folder(run.checkpoints)
        kept = [other for other in others if other.step < step][-keep + 1 :] if keep > 1 else []
        for other in others:
            if other not in kept:
                shutil.rmtree(other.path)
    return checkpoint
