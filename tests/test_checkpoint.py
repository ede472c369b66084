"""Checkpoints: what a crash, a damaged file or a full disk may do to them."""

import errno
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from regard import __version__
from regard.checkpoint import Checkpoint, list_checkpoints, save_checkpoint
from regard.errors import RegardError
from regard.run import Run


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


def flip(path: Path, index: int) -> None:
    content = bytearray(path.read_bytes())
    content[index] ^= 1
    path.write_bytes(content)


def saved(run: Run, step: int, keep: int = 9) -> Checkpoint:
    tensors = {"model": {"weight": torch.full((2,), float(step))}, "optimizer": {}}
    return save_checkpoint(run, step, tensors, {"step": step}, keep)


def steps(run: Run) -> list[int]:
    return [checkpoint.step for checkpoint in list_checkpoints(run)]


def test_a_checkpoint_is_read_back(tmp_path):
    tensors = {"model": {"a": torch.randn(2, 3)}, "optimizer": {"steps.a": torch.tensor(7.0)}}
    state = {"step": 12, "best": None, "loss": 0.1}
    checkpoint = save_checkpoint(Run(tmp_path), 12, tensors, state, keep=1)
    (loaded,) = list_checkpoints(Run(tmp_path))
    assert loaded == checkpoint
    assert (loaded.path.name, loaded.step, loaded.load_state()) == ("step-000000012", 12, state)
    for name, values in tensors.items():
        assert all(torch.equal(loaded.load_tensors(name)[key], value) for key, value in values.items())
    assert sorted(os.listdir(loaded.path)) == [
        "metrics.jsonl",
        "model.safetensors",
        "optimizer.safetensors",
        "sha256.json",
        "state.json",
    ]
    sums = json.loads((loaded.path / "sha256.json").read_text())
    assert sums == {name: hashlib.sha256((loaded.path / name).read_bytes()).hexdigest() for name in sums}
    assert len(sums) == 4


@pytest.mark.parametrize(("version", "text"), [(2, "2"), (None, "none"), ("1", '"1"')])
def test_a_state_of_another_version_is_one_line(tmp_path, version, text):
    checkpoint = saved(Run(tmp_path), 1)
    (checkpoint.path / "state.json").write_text(json.dumps({"version": version, "step": 1}))
    with refused(
        f"{checkpoint.path}/state.json: expected a training state of version 1, got {text}; "
        f"it was written by another version of regard than {__version__}"
    ):
        checkpoint.load_state()


def test_no_checkpoints(tmp_path):
    assert steps(Run(tmp_path)) == []
    with Run(tmp_path).lock():
        assert steps(Run(tmp_path)) == []


@pytest.mark.parametrize(("keep", "left"), [(1, [40]), (2, [30, 40]), (3, [20, 30, 40]), (9, [10, 20, 30, 40])])
def test_the_newest_are_kept(tmp_path, keep, left):
    for step in (10, 20, 30, 40):
        saved(Run(tmp_path), step, keep)
    assert steps(Run(tmp_path)) == left
    assert len(os.listdir(tmp_path / "training")) == len(left)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "metrics.jsonl", "sha256.json"]
)
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_after_damage_the_one_before_counts(tmp_path, name, damage):
    run = Run(tmp_path)
    run.add_metrics({"step": 10})
    saved(run, 10)
    newest = saved(run, 20).path / name
    if damage == "flip":
        flip(newest, newest.stat().st_size // 2)
    elif damage == "cut":
        newest.write_bytes(newest.read_bytes()[:-1])
    else:
        newest.unlink()
    assert steps(run) == [10]
    saved(run, 15, keep=2)  # training went on from 10
    assert steps(run) == [10, 15]
    assert not newest.parent.exists()


@pytest.mark.parametrize(
    "content", [b"[]", b'["state.json"]', b"3", b"{}", b'{"model.safetensors": ""}', b"\xff", b"[" * 100_000]
)
def test_checksums_that_are_none_are_damage(tmp_path, content):
    checkpoint = saved(Run(tmp_path), 1)
    (checkpoint.path / "sha256.json").write_bytes(content)
    assert not checkpoint.is_intact()


def test_a_step_may_be_saved_again(tmp_path):
    run = Run(tmp_path)
    for number in range(3):
        save_checkpoint(run, 10, {}, {"step": 10, "number": number}, keep=2)
        (only,) = list_checkpoints(run)
        assert (only.step, only.load_state()["number"]) == (10, number)
    saved(run, 20, keep=2)
    assert steps(run) == [10, 20]


def test_of_two_at_one_step_the_last_counts_and_they_count_as_one(tmp_path):
    """A kill after a checkpoint was written again leaves both."""
    run = Run(tmp_path)
    saved(run, 5)
    path = saved(run, 10).path
    shutil.copytree(path, path.with_name("step-000000010.1"))
    assert [checkpoint.order for checkpoint in list_checkpoints(run)] == [(5, 0), (10, 1)]
    saved(run, 20, keep=3)
    assert steps(run) == [5, 10, 20]


@pytest.mark.parametrize("step", [10, 20])
def test_a_disk_that_fails_while_saving_loses_no_checkpoint(tmp_path, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = Run(tmp_path)
    first = saved(run, 10, keep=1)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with refused(
            f"cannot write {tmp_path}/training/{'step-000000010.1' if step == 10 else 'step-000000020'}: "
            "no space left on device"
        ):
            saved(run, step, keep=1)
    assert list_checkpoints(run) == [first]
    assert len(os.listdir(tmp_path / "training")) == 1  # what was unfinished is gone, and with it the space it took
    saved(run, step, keep=1)
    assert steps(run) == [step]


def test_other_folders_among_checkpoints_are_left_alone(tmp_path):
    run = Run(tmp_path)
    saved(run, 10)
    (tmp_path / "training" / "step-10-copy").mkdir()
    (tmp_path / "training" / "notes").write_text("mine")
    saved(run, 20, keep=1)
    assert steps(run) == [20]
    assert sorted(os.listdir(tmp_path / "training")) == ["notes", "step-000000020", "step-10-copy"]
