"""Checkpoints: the training state of a run at some steps, to resume from.

training/step-000000100/state.json           counters of the training
training/step-000000100/metrics.jsonl        the metrics of the run at this step
training/step-000000100/model.safetensors    parameters; further files have the state of the optimizer and others
training/step-000000100/sha256.json          checksums of the other files
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import __version__
from regard.errors import RegardError
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
from regard.run import Run
from regard.settings import format_value

if TYPE_CHECKING:
    from torch import Tensor

STATE_VERSION = 1  # of state.json


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
        """Load the counters of the training, and check the version of their format."""
        file = self.path / "state.json"
        state = read_json_table(file)
        version = state.pop("version", None)
        if version != STATE_VERSION:
            raise RegardError(
                f"{file}: expected a training state of version {STATE_VERSION}, got {format_value(version)}; "
                f"it was written by another version of regard than {__version__}"
            )
        return state

    def load_metrics(self) -> bytes:
        """Load the content of metrics.jsonl at this step."""
        with wrap_read_errors(self.path):
            return (self.path / "metrics.jsonl").read_bytes()

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
        if not isinstance(checksums, dict) or not {"state.json", "metrics.jsonl"} <= checksums.keys():
            return False
        return all(has_checksum(self.path / name, checksum) for name, checksum in checksums.items())


def list_checkpoints(run: Run) -> list[Checkpoint]:
    """Return the intact checkpoints, oldest first; of several at a step, the one written last."""
    newest = {checkpoint.step: checkpoint for checkpoint in list_all_checkpoints(run) if checkpoint.is_intact()}
    return list(newest.values())


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
    with wrap_write_errors(checkpoint.path):
        write_checkpoint(run, checkpoint, tensors, json.dumps({"version": STATE_VERSION, **state}))
        steps = sorted({other.step for other in others if other.step < step})
        for other in others:
            if other.step not in steps[max(0, len(steps) - keep + 1) :]:
                shutil.rmtree(other.path)
    return checkpoint


def write_checkpoint(run: Run, checkpoint: Checkpoint, tensors: Mapping[str, Mapping[str, Tensor]], state: str) -> None:
    """Write a checkpoint, which gets its name when it is complete; leave nothing on failure."""
    unfinished = run.checkpoints / UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    make_folder(unfinished)
    checksums = {}

    def write(name: str, content: bytes) -> None:
        write_bytes(unfinished / name, content)
        checksums[name] = hashlib.sha256(content).hexdigest()

    try:
        for name, values in tensors.items():
            write(f"{name}.safetensors", serialize_tensors(values))
        write("state.json", state.encode())
        write("metrics.jsonl", run.read_metrics_bytes())
        write("sha256.json", json.dumps(checksums).encode())
        unfinished.rename(checkpoint.path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    flush_folder(run.checkpoints)


def average_parameters(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """Return the mean of the parameters of several checkpoints."""
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in checkpoint.load_tensors("model").items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    first = checkpoints[0].load_tensors("model")
    return {name: (tensor / len(checkpoints)).to(first[name].dtype) for name, tensor in total.items()}
