"""The run folder: what a crash, a damaged disk or a second training may do to it."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from regard import __version__
from regard.errors import RegardError
from regard.files import write_tensors, write_text
from regard.run import Checkpoint, Run, list_checkpoints, save_checkpoint


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


def flip(path: Path, index: int) -> None:
    content = bytearray(path.read_bytes())
    content[index] ^= 1
    path.write_bytes(content)


def begun(path: Path) -> Run:
    run = Run(path)
    write_text(run.tokenizer_file, "{}\n")
    run.write_recipe({"training": {"steps": 3}})
    write_tensors(run.model_file, {"weight": torch.tensor([1.5, -2.0])})
    run.write_card({"task": "pairs"})
    return run


def saved(run: Run, step: int, keep: int = 9) -> Checkpoint:
    tensors = {"model": {"weight": torch.full((2,), float(step))}, "optimizer": {}}
    return save_checkpoint(run, step, tensors, {"step": step}, keep)


def steps(run: Run) -> list[int]:
    return [checkpoint.step for checkpoint in list_checkpoints(run)]


# the card


def test_the_card_has_the_checksums_of_the_files(tmp_path):
    card = begun(tmp_path).read_card()
    sums = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("recipe.toml", "tokenizer.json", "model.safetensors")
    }
    assert card == {"task": "pairs", "format": 1, "regard": __version__, "sha256": sums}
    assert json.loads((tmp_path / "run.json").read_text("utf-8")) == card
    assert tomllib.loads((tmp_path / "recipe.toml").read_text()) == {"training": {"steps": 3}}
    assert Run(tmp_path).read_recipe() == {"training": {"steps": 3}}
    assert Run(tmp_path).read_parameters()["weight"].tolist() == [1.5, -2.0]


def test_every_flipped_byte_of_the_model_is_noticed(tmp_path):
    run = begun(tmp_path)
    size = run.model_file.stat().st_size
    for index in (0, 8, size // 2, size - 1):
        flip(run.model_file, index)
        with refused(f"{tmp_path}/model.safetensors is corrupt: its checksum differs from run.json"):
            run.read_parameters()
        flip(run.model_file, index)
    run.verify_checksum(run.tokenizer_file)
    flip(run.tokenizer_file, 0)
    with refused(f"{tmp_path}/tokenizer.json is corrupt: its checksum differs from run.json"):
        run.verify_checksum(run.tokenizer_file)


def test_a_run_without_a_model(tmp_path):
    run = Run(tmp_path)
    run.write_card({})
    with refused(f"{tmp_path}: model.safetensors is missing; train until the first validation"):
        run.read_parameters()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"a": "\xff"}', "'utf-8' codec can't decode byte 0xff in position 7: invalid start byte"),
    ],
)
def test_a_damaged_card(tmp_path, content, text):
    (tmp_path / "run.json").write_bytes(content)
    with refused(f"{tmp_path}/run.json is corrupt: {text}"):
        Run(tmp_path).read_card()


@pytest.mark.parametrize(
    ("content", "text"),
    [("{}", "none"), ("[]", "none"), ('{"format": "1"}', '"1"'), ('{"format": true}', "true"), ('{"format": 0}', "0")],
)
def test_a_format_that_is_none(tmp_path, content, text):
    (tmp_path / "run.json").write_text(content)
    with refused(f"{tmp_path}/run.json: expected format 1 to 1, got {text}"):
        Run(tmp_path).read_card()


def test_a_newer_format(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 2, "regard": "7.5"}')
    with refused(
        f"{tmp_path}/run.json: format 2 was written by regard 7.5; regard {__version__} reads formats up to 1; "
        "upgrade regard"
    ):
        Run(tmp_path).read_card()


def test_a_path_that_is_no_run(tmp_path):
    with refused(f"{tmp_path}/runs: not found; expected a run folder created by regard train"):
        Run(tmp_path / "runs").read_card()
    with refused(f"{tmp_path} is not a run folder: run.json is missing"):
        Run(tmp_path).read_card()
    (tmp_path / "run.json").mkdir()
    with refused(f"cannot read {tmp_path}/run.json: is a directory"):
        Run(tmp_path).read_card()


# the folder


def test_whether_a_run_was_begun(tmp_path):
    run = Run(tmp_path / "run")
    assert not run.exists()
    (tmp_path / "run").mkdir()
    assert not run.exists()
    begun(tmp_path / "run")
    assert run.exists()


def test_a_folder_of_other_things_is_refused(tmp_path):
    for name in ("recipe.toml", "thesis.tex"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        with refused(f"{folder} is not empty and not a run; choose another folder"):
            Run(folder).exists()
    with refused(f"{folder}/thesis.tex: expected a folder for the run, got a file"):
        Run(folder / "thesis.tex").exists()
    with refused(f"cannot read {tmp_path}/{'x' * 300}: file name too long"):
        Run(tmp_path / ("x" * 300)).exists()


def test_what_died_before_it_had_begun_may_begin_again(tmp_path):
    run = Run(tmp_path)
    with run.lock():
        pass
    run.log_file.write_text("data: ...\n")
    write_text(run.tokenizer_file, "{}")
    run.write_recipe({})
    (tmp_path / ".run.json.unfinished").write_text("{")
    assert not run.exists()
    write_tensors(run.model_file, {})  # a card was there once, so this is not ours to write over
    with refused(f"{tmp_path} is not empty and not a run; choose another folder"):
        run.exists()


def test_two_trainings_do_not_share_a_folder(tmp_path):
    program = (
        "import sys, pathlib, regard.run\n"
        "try:\n"
        "    with regard.run.Run(pathlib.Path(sys.argv[1])).lock(): print('got it')\n"
        "except regard.run.RegardError as error: print(error)\n"
    )

    def other():
        return subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout

    with Run(tmp_path).lock():
        assert other() == f"{tmp_path} is in use by another training; wait, or choose another --out\n"
    assert other() == "got it\n"


def test_errors_inside_the_lock_pass_and_free_it(tmp_path):
    with pytest.raises(OSError, match="of the training itself"), Run(tmp_path).lock():
        raise OSError("of the training itself")
    with Run(tmp_path).lock():
        pass


def test_a_folder_that_cannot_be_locked(tmp_path, monkeypatch):
    (tmp_path / "training").write_text("")
    with refused(f"cannot write {tmp_path}/training/lock: file exists"), Run(tmp_path).lock():
        pass

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("portalocker.portalocker.LOCKER", no_locks)
    with refused(f"cannot lock {tmp_path}/b/training/lock: no locks available"), Run(tmp_path / "b").lock():
        pass


# metrics


def test_metrics_grow_and_are_cut_back(tmp_path):
    run = Run(tmp_path)
    assert run.read_metrics() == []
    lines = [{"step": step, "valid_loss": 1 / step} for step in (1, 2, 3)]
    for line in lines:
        run.add_metrics(line)
    assert [json.loads(line) for line in run.metrics_file.read_text().splitlines()] == lines
    run.truncate_metrics(2)
    assert run.read_metrics() == lines[:2]
    run.add_metrics(lines[2])
    assert run.read_metrics() == lines
    run.truncate_metrics(0)
    assert run.metrics_file.read_bytes() == b""


@pytest.mark.parametrize("line", [b'{"step": 2', b"[]", b'{"loss": 1}', b"\xff"])
def test_a_damaged_line_of_metrics_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + line + b"\n")
    with refused(f"{tmp_path}/metrics.jsonl, line 2 is corrupt; remove the line"):
        Run(tmp_path).read_metrics()


# checkpoints


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
        "model.safetensors",
        "optimizer.safetensors",
        "sha256.json",
        "state.json",
    ]
    sums = json.loads((loaded.path / "sha256.json").read_text())
    assert sums == {name: hashlib.sha256((loaded.path / name).read_bytes()).hexdigest() for name in sums}
    assert len(sums) == 3


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


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "sha256.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_after_damage_the_one_before_counts(tmp_path, name, damage):
    run = Run(tmp_path)
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


@pytest.mark.parametrize("content", [b"[]", b'["state.json"]', b"3", b"{}", b'{"model.safetensors": ""}', b"\xff"])
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
    saved(run, step, keep=1)
    assert steps(run) == [step]
    assert len(os.listdir(tmp_path / "training")) == 1  # what was unfinished is gone


def test_other_folders_among_checkpoints_are_left_alone(tmp_path):
    run = Run(tmp_path)
    saved(run, 10)
    (tmp_path / "training" / "step-10-copy").mkdir()
    (tmp_path / "training" / "notes").write_text("mine")
    saved(run, 20, keep=1)
    assert steps(run) == [20]
    assert sorted(os.listdir(tmp_path / "training")) == ["notes", "step-000000020", "step-10-copy"]
