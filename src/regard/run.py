"""The run folder: a trained model in readable files.

    recipe.toml          all settings of the training
    run.json             the card: task, best metrics, checksums of the files
    model.safetensors    the best parameters
    tokenizer.json       text <-> ids
    metrics.jsonl        one line per validation
    log                  messages of the training
    training/            checkpoints to resume from
    pretraining/         the same for pretraining on unlabeled text

All files except the log are written atomically. Nothing is pickled.
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
from regard.errors import RegardError, format_json, format_os_error
from regard.files import (
    UNFINISHED,
    compute_sha256,
    flush_folder,
    read_json_table,
    read_tensors,
    wrap_read_errors,
    wrap_write_errors,
    write_bytes,
    write_tensors,
    write_text,
)
from regard.settings import Table, format_value, read_toml, to_toml

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
PRETRAINING = "pretraining"  # subfolder for pretraining on unlabeled text
FILES_BEFORE_CARD = {"training", "log", "tokenizer.json", "recipe.toml"}
"""Files that a run may have before its run.json, which is written last."""

Card = dict[str, Any]

CARD_FIELDS = (("data", dict, "an object"), ("imported", dict, "an object"), ("from", str, "a string"))
"""Fields of a card that are read without the help of a dataclass, and their types."""


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
            if self.card_file.exists():
                return True
            names = {entry.name for entry in self.path.iterdir() if not entry.name.endswith(UNFINISHED)}
            if names and not (self.lock_file.exists() and names <= FILES_BEFORE_CARD):
                raise RegardError(f"{self.path} is not empty and not a run; choose another folder")
            return False

    def read_recipe(self) -> Table:
        """Read the settings of the training."""
        return read_toml(self.recipe_file)

    def read_card(self) -> Card:
        """Read the card of the run, run.json, and check its format version."""
        try:
            with wrap_read_errors(self.card_file):
                if self.path.is_file():
                    raise RegardError(f"{self.path}: expected a run folder, got a file")
                if not self.path.is_dir():
                    raise RegardError(f"{self.path}: not found; expected a run folder created by regard train")
                if not self.card_file.exists():
                    raise RegardError(f"{self.path} is not a run folder: run.json is missing")
                card = json.loads(self.card_file.read_bytes().decode())
                json.dumps(card, ensure_ascii=False).encode()  # an unpaired surrogate could not be written again
        except (ValueError, RecursionError) as error:
            raise RegardError(f"{self.card_file} is corrupt: {error}") from None
        file_format = card.get("format") if isinstance(card, dict) else None
        if type(file_format) is not int or file_format < 1:
            raise RegardError(f"{self.card_file}: expected format 1 to {FORMAT}, got {format_value(file_format)}")
        if file_format > FORMAT:
            raise RegardError(
                f"{self.card_file}: format {file_format} was written by regard {card.get('regard')}; "
                f"regard {__version__} reads formats up to {FORMAT}; upgrade regard"
            )
        for name, kind, description in CARD_FIELDS:
            if card.get(name) is not None and not isinstance(card[name], kind):
                raise RegardError(f"{self.card_file}: {name}: expected {description}, got {format_json(card[name])}")
        return card

    def write_card(self, card: Mapping[str, Any]) -> None:
        """Write the card, with the checksums of the run's files."""
        files = (self.recipe_file, self.tokenizer_file, self.model_file)
        sums = {file.name: compute_sha256(file) for file in files if file.exists()}
        complete_card = {**card, "format": FORMAT, "regard": __version__, "sha256": sums}
        write_text(self.card_file, json.dumps(complete_card, indent=2, ensure_ascii=False) + "\n")

    def record_best(self, best: Card) -> None:
        """Record the best validation so far on the card. The folder of the pretraining has no card."""
        if self.card_file.exists():
            self.write_card({**self.read_card(), "best": best})

    def write_recipe(self, table: Table) -> None:
        """Write the settings to recipe.toml."""
        write_text(self.recipe_file, to_toml(table))

    def read_parameters(self, device: str = "cpu", only: Container[str] | None = None) -> dict[str, Tensor]:
        """Read the best parameters, all or only those with the given names, and verify the checksum."""
        if not self.model_file.exists():
            raise RegardError(f"{self.path}: model.safetensors is missing; train until the first validation")
        self.verify_checksum(self.model_file)
        return read_tensors(self.model_file, device, only)

    def verify_checksum(self, file: Path) -> None:
        """Raise a `RegardError` if the checksum of a file differs from the one on the card."""
        checksums = self.read_card().get("sha256")
        expected_checksum = checksums.get(file.name) if isinstance(checksums, dict) else None
        if expected_checksum is not None and compute_sha256(file) != expected_checksum:
            raise RegardError(f"{file} is corrupt: its checksum differs from run.json")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics of each validation."""
        rows = []
        for line_number, line in enumerate(self._read_metrics_bytes().splitlines(), 1):
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                values = None
            if not isinstance(values, dict) or type(values.get("step")) is not int:
                raise RegardError(f"{self.metrics_file}, line {line_number} is corrupt; remove the line")
            rows.append(values)
        return rows

    def _read_metrics_bytes(self) -> bytes:
        with wrap_read_errors(self.metrics_file):
            return self.metrics_file.read_bytes() if self.metrics_file.exists() else b""

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Append the metrics of one validation."""
        write_bytes(self.metrics_file, self._read_metrics_bytes() + json.dumps(dict(values)).encode() + b"\n")

    def truncate_metrics(self, step: int) -> None:
        """Remove the metrics after the step from which training resumes."""
        remaining = [line for line in self.read_metrics() if line["step"] <= step]
        write_text(self.metrics_file, "".join(json.dumps(line) + "\n" for line in remaining))

    def discard(self) -> None:
        """Remove a run that has not started training, and its folder if it is empty."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for file in (self.log_file, self.tokenizer_file, self.recipe_file):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that only one process trains in it."""
        with wrap_write_errors(self.lock_file):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
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


@dataclass(frozen=True)
class Checkpoint:
    """The complete training state at a step; resuming from it gives the same result as not stopping.

    Its folder is `step-000000100`, or `step-000000100.1` if written again at that step.
    """

    path: Path

    @property
    def step(self) -> int:
        return self.order[0]

    @property
    def order(self) -> tuple[int, int]:
        """The step, and the number of checkpoints written earlier at that step."""
        step, _, repeat = self.path.name.removeprefix("step-").partition(".")
        return int(step), int(repeat or 0)

    def load_state(self) -> dict[str, Any]:
        """Load the counters of the training."""
        return read_json_table(self.path / "state.json")

    def load_tensors(self, name: str, device: str = "cpu") -> dict[str, Tensor]:
        """Load the parameters (`model`) or another part of the training state."""
        return read_tensors(self.path / f"{name}.safetensors", device)

    def list_parts(self) -> list[str]:
        """Return the names that `load_tensors` accepts."""
        return sorted(file.stem for file in self.path.glob("*.safetensors"))

    def remove(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self.path)

    def is_intact(self) -> bool:
        """Return whether all files exist and match their checksums."""
        try:
            checksums = json.loads((self.path / "sha256.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        if not isinstance(checksums, dict) or "state.json" not in checksums:
            return False
        return all(
            (self.path / name).is_file() and compute_sha256(self.path / name) == checksums[name] for name in checksums
        )


def list_checkpoints(run: Run) -> list[Checkpoint]:
    """Return the intact checkpoints, oldest first."""
    return [checkpoint for checkpoint in list_all_checkpoints(run) if checkpoint.is_intact()]


def list_all_checkpoints(run: Run) -> list[Checkpoint]:
    """Return all checkpoints, oldest first."""
    if not run.checkpoints.is_dir():
        return []
    with wrap_read_errors(run.checkpoints):
        paths = [path for path in run.checkpoints.iterdir() if re.fullmatch(r"step-\d+(\.\d+)?", path.name)]
    return sorted(map(Checkpoint, paths), key=lambda checkpoint: checkpoint.order)


def save_checkpoint(
    run: Run, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
) -> Checkpoint:
    """Write a checkpoint and remove all but the newest `keep`.

    Checkpoints of later steps are removed, too: training resumed before them because they are corrupt.
    """
    others = list_all_checkpoints(run)
    same = [other.order[1] for other in others if other.step == step]
    checkpoint = Checkpoint(run.checkpoints / (f"step-{step:09d}" + (f".{max(same) + 1}" if same else "")))
    unfinished = run.checkpoints / UNFINISHED
    with wrap_write_errors(checkpoint.path):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name, values in tensors.items():
            write_tensors(unfinished / f"{name}.safetensors", values)
        write_text(unfinished / "state.json", json.dumps(dict(state)))
        checksums = {path.name: compute_sha256(path) for path in sorted(unfinished.iterdir())}
        write_text(unfinished / "sha256.json", json.dumps(checksums))
        unfinished.rename(checkpoint.path)
        flush_folder(run.checkpoints)
        remaining = [other for other in others if other.step < step][-keep + 1 :] if keep > 1 else []
        for other in others:
            if other not in remaining:
                shutil.rmtree(other.path)
    return checkpoint
