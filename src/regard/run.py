"""The run folder: a trained model as files that anyone can read.

    recipe.toml          every setting it was trained with
    run.json             what it is, how good it was, and the checksums of the files
    model.safetensors    the best parameters
    tokenizer.json       text <-> numbers
    metrics.jsonl        a line for each validation
    log                  what was said during training
    training/            checkpoints, to go on from

Every file is written under another name, flushed and renamed, so that it is whole or
not there. Nothing is ever pickled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from regard import __version__
from regard.errors import RegardError
from regard.settings import Table, read_toml, to_toml

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
Card = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run folder; nothing is read or written before it is asked for."""

    path: Path

    @property
    def recipe_file(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def card_file(self) -> Path:
        return self.path / "run.json"

    @property
    def model_file(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def tokenizer_file(self) -> Path:
        return self.path / "tokenizer.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def log_file(self) -> Path:
        return self.path / "log"

    @property
    def checkpoints(self) -> Path:
        return self.path / "training"

    def exists(self) -> bool:
        """Whether a run was begun here; a folder of other things is refused."""
        if not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())):
            return False
        if not self.path.is_dir():
            raise RegardError(f"{self.path}: is a file; a folder for the run is needed")
        if not self.card_file.exists():
            if {each.name for each in self.path.iterdir()} <= {"training", "log", "tokenizer.json"}:
                return False  # it was stopped before it had begun
            raise RegardError(f"{self.path}: holds other things than a run; choose another folder")
        return True

    def read_recipe(self) -> Table:
        """The settings as they were trained with."""
        return read_toml(self.recipe_file)

    def read_card(self) -> Card:
        """What the run is, checked to be of a format that we know."""
        if not self.path.is_dir():
            raise RegardError(f"{self.path}: there is no such folder; a run made by regard train is needed")
        try:
            card = json.loads(self.card_file.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RegardError(f"{self.path}: is no run; there is no run.json in it") from None
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise RegardError(f"{self.card_file}: is damaged ({error}); restore it from a copy") from None
        found = card.get("format") if isinstance(card, dict) else None
        if type(found) is not int or found < 1:
            raise RegardError(f"{self.card_file}: has the format {found!r}; this regard reads up to {FORMAT}")
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

    def write_recipe(self, table: Table) -> None:
        """Write the settings."""
        write_text(self.recipe_file, to_toml(table))

    def read_parameters(self, device: str = "cpu") -> dict[str, Tensor]:
        """The best parameters, checked against their checksum."""
        if not self.model_file.exists():
            raise RegardError(f"{self.path}: has no model.safetensors yet; train it until its first validation")
        check_sum(self.model_file, self.read_card().get("sha256", {}).get(self.model_file.name))
        return read_tensors(self.model_file, device)

    def metrics(self) -> list[dict[str, Any]]:
        """What each validation found."""
        if not self.metrics_file.exists():
            return []
        return [json.loads(line) for line in self.metrics_file.read_text("utf-8").splitlines()]

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Put the findings of one validation behind the others."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(values)) + "\n")
            flush(file)

    def cut_metrics(self, step: int) -> None:
        """Forget what was found after a step from which training goes on."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        write_text(self.metrics_file, "".join(json.dumps(line) + "\n" for line in kept))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, so that no two trainings write to it."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        with (self.checkpoints / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RegardError(f"{self.path}: another training writes here; wait, or choose another --out") from None
            yield


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on from a step as if training had never stopped."""

    path: Path

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix("step-"))

    def state(self) -> dict[str, Any]:
        """Counters and the like."""
        return json.loads((self.path / "state.json").read_text("utf-8"))["state"]

    def tensors(self, name: str, device: str = "cpu") -> dict[str, Tensor]:
        """The parameters (`model`) or the memory of the optimizer (`optimizer`)."""
        return read_tensors(self.path / f"{name}.safetensors", device)

    def is_whole(self) -> bool:
        """Whether all its files are there and unharmed."""
        try:
            sums = json.loads((self.path / "state.json").read_text("utf-8"))["sha256"]
            return all(checksum(self.path / name) == value for name, value in sums.items())
        except (OSError, ValueError, KeyError):
            return False


def checkpoints_of(run: Run) -> list[Checkpoint]:
    """All checkpoints that are whole, oldest first."""
    found = (Checkpoint(path) for path in sorted(run.checkpoints.glob("step-*")))
    return [checkpoint for checkpoint in found if checkpoint.is_whole()]


def save_checkpoint(
    run: Run, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
) -> Checkpoint:
    """Write a checkpoint and remove all but the newest `keep`."""
    checkpoint = Checkpoint(run.checkpoints / f"step-{step:09d}")
    unfinished = run.checkpoints / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name, values in tensors.items():
        write_tensors(unfinished / f"{name}.safetensors", values)
    sums = {path.name: checksum(path) for path in sorted(unfinished.iterdir())}
    write_text(unfinished / "state.json", json.dumps({"state": dict(state), "sha256": sums}))
    shutil.rmtree(checkpoint.path, ignore_errors=True)
    unfinished.rename(checkpoint.path)
    flush_folder(run.checkpoints)
    for old in sorted(run.checkpoints.glob("step-*"))[:-keep]:
        shutil.rmtree(old)
    return checkpoint


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors as a safetensors file; those that share memory are each written out."""
    from safetensors.torch import save

    write_bytes(path, save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}))


def read_tensors(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device=device)
    except (OSError, SafetensorError) as error:
        raise RegardError(f"{path}: cannot be read ({error}); restore it from a copy") from None


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            flush(file)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise RegardError(f"{path}: cannot be written: {error.strerror}") from None
    flush_folder(path.parent)


def flush(file: IO[Any]) -> None:
    """Bring what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Bring a folder's new names to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sum(path: Path, wanted: str | None) -> None:
    """Raise a `RegardError` if a file is not what was written."""
    if wanted is not None and checksum(path) != wanted:
        raise RegardError(f"{path}: is not the file that was written (its checksum differs); restore it from a copy")
