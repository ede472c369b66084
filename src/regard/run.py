"""The run folder: a trained model in readable files.

    recipe.toml          all settings of the training
    run.json             the card: task, best metrics, checksums of the files
    model.safetensors    the best parameters
    tokenizer.json       text <-> ids
    metrics.jsonl        one line per validation
    log                  messages of the training
    training/            checkpoints to resume from
    training/copies/     a second copy of card, recipe, tokenizer, model and metrics, to restore a damaged file from
    pretraining/         the same for pretraining on unlabeled text

All files except the log are written atomically. Nothing is pickled.

The card has the checksums of recipe, tokenizer, model and metrics as they were written, and its own. A file and the
card change together: the new file is written as `model.safetensors.next`, then the card, then the file gets its name.
After a crash in between, the file that belongs to the card is there under one of the two names; `Run.find_file` returns
it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import portalocker

from regard import __version__
from regard.bounds import SEED_BOUNDS
from regard.card import FORMAT, Card, DamagedCardError, format_card, is_intact_card, read_card
from regard.errors import RegardError, format_json, format_os_error, unknown_name
from regard.files import (
    UNFINISHED,
    flush_folder,
    has_checksum,
    make_folder,
    read_json_table,
    read_tensors,
    serialize_tensors,
    wrap_read_errors,
    wrap_write_errors,
    write_bytes,
)
from regard.settings import Table, read_toml

if TYPE_CHECKING:
    from torch import Tensor

PRETRAINING = "pretraining"  # subfolder for pretraining on unlabeled text
NEXT = ".next"  # suffix of a file that gets its name once the card with its checksum is written
SIGNED_FILES = ("recipe.toml", "tokenizer.json", "model.safetensors", "metrics.jsonl")
"""Files whose checksums are on the card."""
FILES_BEFORE_CARD = {"training", "log", *(name + NEXT for name in SIGNED_FILES)}
"""Files that a run may have before its run.json."""


SEEDS_FILE = "seeds.json"
"""The file of a folder of runs that differ in their seed."""


def list_members(path: Path) -> list[Path] | None:
    """Return the trained runs in a folder made by `regard train --seeds`, or None for any other folder.

    Raises:
        RegardError: None of them is trained, or their list is corrupt.
    """
    members = list_planned_members(path)
    if members is None:
        return None
    trained = [member for member in members if Run(member).has_model()]
    if not trained:
        raise RegardError(f"{path}: no run is trained yet; repeat regard train --out {path}")
    return trained


def list_planned_members(path: Path) -> list[Path] | None:
    """Return the runs of all seeds of a folder made by `regard train --seeds`, trained or not, or None.

    Raises:
        RegardError: Their list is corrupt.
    """
    file = path / SEEDS_FILE
    if not file.is_file():
        return None
    seeds = read_json_table(file).get("seeds")
    if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
        raise RegardError(f"{file} is corrupt: seeds: expected a list of integers, got {format_json(seeds)}")
    for seed in seeds:
        SEED_BOUNDS.check(f"{file} is corrupt: seeds", seed)
    return [get_member(path, seed) for seed in seeds]


def get_member(folder: Path, seed: int) -> Path:
    """Return the run of a seed in a folder of runs."""
    return folder / f"seed-{seed}"


class RunPath:
    """A path within a run folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Run, kind: object = None) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class Run:
    """A run folder. Files are read and written only when a method is called."""

    path: Path

    recipe_file = RunPath("recipe.toml")
    card_file = RunPath("run.json")
    model_file = RunPath("model.safetensors")
    tokenizer_file = RunPath("tokenizer.json")
    metrics_file = RunPath("metrics.jsonl")
    log_file = RunPath("log")
    checkpoints = RunPath("training")
    copies = RunPath("training/copies")
    card_copy = RunPath("training/copies/run.json")
    lock_file = RunPath("training/lock")

    def exists(self) -> bool:
        """Return whether the folder contains a run.

        Raises:
            RegardError: If the path is a file or a folder with other content.
        """
        with wrap_read_errors(self.path):
            if not self.path.exists():
                return False
            if not self.path.is_dir():
                raise RegardError(f"{self.path}: expected a folder for the run, got a file")
            if self.has_card():
                return True
            names = {entry.name for entry in self.path.iterdir() if not entry.name.endswith(UNFINISHED)}
            if names and not (self.lock_file.exists() and names <= FILES_BEFORE_CARD):
                raise RegardError(f"{self.path} is not empty and not a run; choose another folder")
            return False

    def has_card(self) -> bool:
        """Return whether the run has a card, or a copy of it to restore."""
        return self.card_file.exists() or self.card_copy.exists()

    def has_model(self) -> bool:
        """Return whether the run has a model file, without reading it; a crash may have left it under its next name."""
        return self.model_file.exists() or self.get_next_file(self.model_file.name).exists()

    def read_recipe(self) -> Table:
        """Read the settings of the training, and verify the checksum."""
        return read_toml(self.find_file("recipe.toml"))

    def read_card(self) -> Card:
        """Read the card of the run, run.json, and verify its checksum and format version."""
        hint = f"; to restore it, run regard train --out {self.path}" if is_intact_card(self.card_copy) else ""
        with wrap_read_errors(self.card_file):
            if self.path.is_file():
                raise RegardError(f"{self.path}: expected a run folder, got a file")
            if not self.path.is_dir():
                raise RegardError(f"{self.path}: not found; expected a run folder created by regard train")
            if not self.card_file.exists() and (self.path / SEEDS_FILE).exists():
                raise RegardError(f"{self.path} holds several runs; pass one of them, {self.path}/seed-N")
            if not self.card_file.exists() and (self.path / "config.json").exists():
                raise RegardError(
                    f'{self.path} is a Hugging Face model, not a run; to look at it: regard look hf:{self.path} "TEXT"'
                )
            if not self.card_file.exists():
                raise RegardError(f"{self.path} is not a run folder: run.json is missing{hint}")
        try:
            return read_card(self.card_file)
        except DamagedCardError as error:
            raise RegardError(f"{error}{hint or error.advice}") from None

    def write_files(self, card: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Write files of the run together with the card, which gets their checksums.

        Files that are not given keep the checksums that the card has.
        """
        with wrap_write_errors(self.path):
            self.discard_unsigned()
            for name, content in files.items():
                write_bytes(self.get_next_file(name), content)
            checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
            complete_card = {
                **card,
                "format": FORMAT,
                "regard": __version__,
                "sha256": {**card.get("sha256", {}), **checksums},
            }
            card_content = format_card(complete_card)
            write_bytes(self.card_file, card_content)
            for name in files:
                self.get_next_file(name).replace(self.path / name)
            flush_folder(self.path)
            if self.checkpoints.is_dir():  # an imported run has none, and no copies
                for name, content in {**files, self.card_file.name: card_content}.items():
                    write_bytes(self.copies / name, content)

    def save_model(self, tensors: Mapping[str, Tensor], entries: Mapping[str, Any]) -> None:
        """Write the parameters, and what they are as entries of the card: `best` or `unvalidated`.

        The folder of the pretraining has no card.
        """
        content = serialize_tensors(tensors)
        if self.card_file.exists():
            card = {name: value for name, value in self.read_card().items() if name not in ("best", "unvalidated")}
            self.write_files({**card, **entries}, {self.model_file.name: content})
        else:
            write_bytes(self.model_file, content)

    def get_next_file(self, name: str) -> Path:
        """Return the path of a new file that gets its name once the card is written."""
        return self.path / f"{name}{NEXT}"

    def read_checksums(self) -> dict[str, str]:
        """Read the checksums of the run's files from the card."""
        checksums: dict[str, str] = self.read_card().get("sha256", {})
        for name, checksum in checksums.items():
            if name not in SIGNED_FILES:  # such as a path out of the folder, to which a copy would be restored
                raise unknown_name(f"{self.card_file}: sha256: file", name, SIGNED_FILES)
            if not isinstance(checksum, str):
                raise RegardError(f"{self.card_file}: sha256: {name}: expected a string, got {format_json(checksum)}")
        return checksums

    def find_file(self, name: str) -> Path:
        """Return the path of a file that matches its checksum on the card, or raise a `RegardError`."""
        file = self.path / name
        while (checksum := self.read_checksums().get(name)) is not None:
            for path in (self.get_next_file(name), file):  # in this order, in case a training renames it now
                if has_checksum(path, checksum):
                    return path
            if self.read_checksums().get(name) == checksum:  # otherwise a training has just written a new one
                problem = "is corrupt: its checksum differs from run.json" if file.exists() else "is missing"
                hint = f"; to restore it, run regard train --out {self.path}"
                raise RegardError(f"{file} {problem}{hint if has_checksum(self.copies / name, checksum) else ''}")
        return file

    def check_files(self) -> None:
        """Raise a `RegardError` if a file does not match its checksum on the card."""
        for name in self.read_checksums():
            self.find_file(name)

    def discard_unsigned(self) -> None:
        """Complete or discard what a crash left between a file and the card."""
        checksums = self.read_checksums() if self.card_file.exists() else {}
        for name in SIGNED_FILES:
            file = self.get_next_file(name)
            if file.exists() and has_checksum(file, checksums.get(name)):
                file.replace(self.path / name)
                flush_folder(self.path)
            else:
                file.unlink(missing_ok=True)

    def restore_files(self) -> list[str]:
        """Check the files against the card before training goes on, and restore damaged ones from their copies.

        Returns:
            What was restored, one line each.

        Raises:
            RegardError: If a file is damaged and so is its copy.
        """
        with wrap_write_errors(self.path):
            messages = self.restore_card()
            self.discard_unsigned()
            for name, checksum in self.read_checksums().items():
                file, copy = self.path / name, self.copies / name
                if has_checksum(file, checksum):
                    if not has_checksum(copy, checksum):
                        write_bytes(copy, file.read_bytes())
                elif has_checksum(copy, checksum):
                    messages.append(self.restore_file(file, copy))
                elif file != self.metrics_file:  # the metrics are also in the checkpoint to resume from
                    problem = "is corrupt: its checksum differs from run.json" if file.exists() else "is missing"
                    raise RegardError(
                        f"{file} {problem}, and training/copies has no intact copy; restore it from a backup, "
                        "or choose another --out"
                    )
        return messages

    def restore_card(self) -> list[str]:
        """Restore a damaged card from its copy; return what was restored."""
        if not is_intact_card(self.card_file) and is_intact_card(self.card_copy):
            return [self.restore_file(self.card_file, self.card_copy)]
        self.read_card()  # raises an error if it is damaged and has no intact copy
        content = self.card_file.read_bytes()
        if not self.card_copy.exists() or self.card_copy.read_bytes() != content:
            write_bytes(self.card_copy, content)
        return []

    def restore_file(self, file: Path, copy: Path) -> str:
        """Restore a file from its copy, keep a damaged one under another name, and return a note that says so."""
        message = f"{file.name} was missing"
        if file.exists():
            file.replace(file.with_name(f"{file.name}.damaged"))
            message = f"{file.name} was damaged or edited (kept as {file.name}.damaged)"
        write_bytes(file, copy.read_bytes())
        return f"note: {message}; restored it from training/copies"

    def read_parameters(self, device: str = "cpu", only: Container[str] | None = None) -> dict[str, Tensor]:
        """Read the best parameters, all or only those with the given names, and verify the checksum."""
        name = self.model_file.name
        if name not in self.read_checksums():
            raise RegardError(f"{self.path}: {name} is missing; train until the first validation")
        return read_tensors(self.find_file(name), device, only)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics of each validation."""
        rows = []
        for line_number, line in enumerate(self.read_metrics_bytes().splitlines(), 1):
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                values = None
            if not isinstance(values, dict) or type(values.get("step")) is not int:
                raise RegardError(f"{self.metrics_file}, line {line_number} is corrupt; remove the line")
            rows.append(values)
        return rows

    def read_metrics_bytes(self) -> bytes:
        """Read the content of the metrics file, and verify its checksum if there is one; nothing if it is missing."""
        name = self.metrics_file.name
        while self.card_file.exists() and name in self.read_checksums():
            with contextlib.suppress(FileNotFoundError):  # a training has just renamed it
                return self.find_file(name).read_bytes()
        with wrap_read_errors(self.metrics_file):
            return self.metrics_file.read_bytes() if self.metrics_file.exists() else b""

    def write_metrics(self, content: bytes) -> None:
        """Write the metrics file together with the card. The folder of the pretraining has no card."""
        if self.card_file.exists():
            self.write_files(self.read_card(), {self.metrics_file.name: content})
        else:
            write_bytes(self.metrics_file, content)

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Append the metrics of one validation."""
        self.write_metrics(self.read_metrics_bytes() + json.dumps(dict(values)).encode() + b"\n")

    def reset_metrics(self, content: bytes) -> bool:
        """Set the metrics back to those of a checkpoint; return whether lines of them were damaged or missing."""
        with wrap_read_errors(self.metrics_file):
            current = self.metrics_file.read_bytes() if self.metrics_file.exists() else b""
        if current != content:
            self.write_metrics(content)
        return not current.startswith(content)

    def discard(self) -> None:
        """Remove a run that has not started training, and its folder if it is empty."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        with contextlib.suppress(OSError):
            for name in FILES_BEFORE_CARD:
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that only one process trains in it."""
        with wrap_write_errors(self.lock_file):
            make_folder(self.checkpoints)
            file = self.lock_file.open("w")
        with file:
            try:
                portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
            except portalocker.AlreadyLocked:
                raise RegardError(f"{self.path} is in use by another training; wait, or choose another --out") from None
            except portalocker.LockException as error:
                cause = error.__cause__
                reason = format_os_error(cause) if isinstance(cause, OSError) else error.strerror or error
                raise RegardError(f"cannot lock {self.lock_file}: {reason}") from None
            yield
