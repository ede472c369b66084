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
from regard.run import Checkpoint, Run, checkpoints_of, save_checkpoint


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def begun(path: Path) -> Run:
    found = Run(path)
    write_text(found.tokenizer_file, "{}\n")
    found.write_recipe({"training": {"steps": 3}})
    write_tensors(found.model_file, {"weight": torch.tensor([1.5, -2.0])})
    found.write_card({"task": "pairs"})
    return found


def saved(where: Run, step: int, keep: int = 9) -> Checkpoint:
    tensors = {"model": {"weight": torch.full((2,), float(step))}, "optimizer": {}}
    return save_checkpoint(where, step, tensors, {"step": step}, keep)


def steps(where: Run) -> list[int]:
    return [checkpoint.step for checkpoint in checkpoints_of(where)]


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
    found = begun(tmp_path)
    size = found.model_file.stat().st_size
    for place in (0, 8, size // 2, size - 1):
        flip(found.model_file, place)
        with refused(
            f"{tmp_path}/model.safetensors: is not the file that was written (its checksum differs); "
            "restore it from a copy"
        ):
            found.read_parameters()
        flip(found.model_file, place)
    found.check(found.tokenizer_file)
    flip(found.tokenizer_file, 0)
    with refused(
        f"{tmp_path}/tokenizer.json: is not the file that was written (its checksum differs); restore it from a copy"
    ):
        found.check(found.tokenizer_file)


def test_a_run_without_a_model(tmp_path):
    found = Run(tmp_path)
    found.write_card({})
    with refused(f"{tmp_path}: has no model.safetensors yet; train it until its first validation"):
        found.read_parameters()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "is damaged (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        (b"", "is damaged (Expecting value: line 1 column 1 (char 0))"),
        (b'{"a": "\xff"}', "is damaged ('utf-8' codec can't decode byte 0xff in position 7: invalid start byte)"),
    ],
)
def test_a_damaged_card(tmp_path, content, text):
    (tmp_path / "run.json").write_bytes(content)
    with refused(f"{tmp_path}/run.json: {text}; restore it from a copy"):
        Run(tmp_path).read_card()


@pytest.mark.parametrize(
    ("content", "found"),
    [("{}", "none"), ("[]", "none"), ('{"format": "1"}', '"1"'), ('{"format": true}', "true"), ('{"format": 0}', "0")],
)
def test_a_format_that_is_none(tmp_path, content, found):
    (tmp_path / "run.json").write_text(content)
    with refused(f"{tmp_path}/run.json: has the format {found}; this regard reads 1 to 1"):
        Run(tmp_path).read_card()


def test_a_newer_format(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 2, "regard": "7.5"}')
    with refused(
        f"{tmp_path}/run.json: has the format 2, made by regard 7.5; "
        f"this regard {__version__} reads up to 1: install a newer one"
    ):
        Run(tmp_path).read_card()


def test_a_path_that_is_no_run(tmp_path):
    with refused(f"{tmp_path}/runs: there is no such folder; a run made by regard train is needed"):
        Run(tmp_path / "runs").read_card()
    with refused(f"{tmp_path}: is no run; there is no run.json in it"):
        Run(tmp_path).read_card()
    (tmp_path / "run.json").mkdir()
    with refused(f"{tmp_path}/run.json: cannot be read: Is a directory"):
        Run(tmp_path).read_card()


# the folder


def test_whether_a_run_was_begun(tmp_path):
    found = Run(tmp_path / "run")
    assert not found.exists()
    (tmp_path / "run").mkdir()
    assert not found.exists()
    begun(tmp_path / "run")
    assert found.exists()


def test_a_folder_of_other_things_is_refused(tmp_path):
    for name in ("recipe.toml", "thesis.tex"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        with refused(f"{folder}: holds other things than a run; choose another folder"):
            Run(folder).exists()
    with refused(f"{folder}/thesis.tex: is a file; a folder for the run is needed"):
        Run(folder / "thesis.tex").exists()
    with refused(f"{tmp_path}/{'x' * 300}: cannot be read: File name too long"):
        Run(tmp_path / ("x" * 300)).exists()


def test_what_died_before_it_had_begun_may_begin_again(tmp_path):
    found = Run(tmp_path)
    with found.locked():
        pass
    found.log_file.write_text("data: ...\n")
    write_text(found.tokenizer_file, "{}")
    found.write_recipe({})
    (tmp_path / ".run.json.unfinished").write_text("{")
    assert not found.exists()
    write_tensors(found.model_file, {})  # a card was there once, so this is not ours to write over
    with refused(f"{tmp_path}: holds other things than a run; choose another folder"):
        found.exists()


def test_two_trainings_do_not_share_a_folder(tmp_path):
    program = (
        "import sys, pathlib, regard.run\n"
        "try:\n"
        "    with regard.run.Run(pathlib.Path(sys.argv[1])).locked(): print('got it')\n"
        "except regard.run.RegardError as error: print(error)\n"
    )

    def other():
        return subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout

    with Run(tmp_path).locked():
        assert other() == f"{tmp_path}: another training writes here; wait, or choose another --out\n"
    assert other() == "got it\n"


def test_errors_inside_the_lock_pass_and_free_it(tmp_path):
    with pytest.raises(OSError, match="of the training itself"), Run(tmp_path).locked():
        raise OSError("of the training itself")
    with Run(tmp_path).locked():
        pass


def test_a_folder_that_cannot_be_locked(tmp_path, monkeypatch):
    (tmp_path / "training").write_text("")
    with refused(f"{tmp_path}/training/lock: cannot be written: File exists"), Run(tmp_path).locked():
        pass

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("portalocker.portalocker.LOCKER", no_locks)
    with refused(f"{tmp_path}/b/training/lock: cannot be locked: No locks available"), Run(tmp_path / "b").locked():
        pass


# metrics


def test_metrics_grow_and_are_cut_back(tmp_path):
    found = Run(tmp_path)
    assert found.metrics() == []
    lines = [{"step": step, "valid_loss": 1 / step} for step in (1, 2, 3)]
    for line in lines:
        found.add_metrics(line)
    assert [json.loads(line) for line in found.metrics_file.read_text().splitlines()] == lines
    found.cut_metrics(2)
    assert found.metrics() == lines[:2]
    found.add_metrics(lines[2])
    assert found.metrics() == lines
    found.cut_metrics(0)
    assert found.metrics_file.read_bytes() == b""


@pytest.mark.parametrize("line", [b'{"step": 2', b"[]", b'{"loss": 1}', b"\xff"])
def test_a_damaged_line_of_metrics_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + line + b"\n")
    with refused(f"{tmp_path}/metrics.jsonl, line 2: is damaged; remove the line"):
        Run(tmp_path).metrics()


# checkpoints


def test_a_checkpoint_is_read_back(tmp_path):
    tensors = {"model": {"a": torch.randn(2, 3)}, "optimizer": {"steps.a": torch.tensor(7.0)}}
    state = {"step": 12, "best": None, "loss": 0.1}
    checkpoint = save_checkpoint(Run(tmp_path), 12, tensors, state, keep=1)
    (found,) = checkpoints_of(Run(tmp_path))
    assert found == checkpoint
    assert (found.path.name, found.step, found.state()) == ("step-000000012", 12, state)
    for name, values in tensors.items():
        assert all(torch.equal(found.tensors(name)[key], value) for key, value in values.items())
    assert sorted(os.listdir(found.path)) == ["model.safetensors", "optimizer.safetensors", "sha256.json", "state.json"]
    sums = json.loads((found.path / "sha256.json").read_text())
    assert sums == {name: hashlib.sha256((found.path / name).read_bytes()).hexdigest() for name in sums}
    assert len(sums) == 3


def test_no_checkpoints(tmp_path):
    assert steps(Run(tmp_path)) == []
    with Run(tmp_path).locked():
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
    found = Run(tmp_path)
    saved(found, 10)
    newest = saved(found, 20).path / name
    if damage == "flip":
        flip(newest, newest.stat().st_size // 2)
    elif damage == "cut":
        newest.write_bytes(newest.read_bytes()[:-1])
    else:
        newest.unlink()
    assert steps(found) == [10]
    saved(found, 15, keep=2)  # training went on from 10
    assert steps(found) == [10, 15]
    assert not newest.parent.exists()


@pytest.mark.parametrize("content", [b"[]", b'["state.json"]', b"3", b"{}", b'{"model.safetensors": ""}', b"\xff"])
def test_checksums_that_are_none_are_damage(tmp_path, content):
    checkpoint = saved(Run(tmp_path), 1)
    (checkpoint.path / "sha256.json").write_bytes(content)
    assert not checkpoint.is_whole()


def test_a_step_may_be_saved_again(tmp_path):
    found = Run(tmp_path)
    for number in range(3):
        save_checkpoint(found, 10, {}, {"step": 10, "number": number}, keep=2)
        (only,) = checkpoints_of(found)
        assert (only.step, only.state()["number"]) == (10, number)
    saved(found, 20, keep=2)
    assert steps(found) == [10, 20]


@pytest.mark.parametrize("step", [10, 20])
def test_a_disk_that_fails_while_saving_loses_no_checkpoint(tmp_path, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    found = Run(tmp_path)
    first = saved(found, 10, keep=1)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with refused(
            f"{tmp_path}/training/{'step-000000010.1' if step == 10 else 'step-000000020'}: "
            "cannot be written: No space left on device"
        ):
            saved(found, step, keep=1)
    assert checkpoints_of(found) == [first]
    saved(found, step, keep=1)
    assert steps(found) == [step]
    assert len(os.listdir(tmp_path / "training")) == 1  # what was unfinished is gone


def test_other_folders_among_checkpoints_are_left_alone(tmp_path):
    found = Run(tmp_path)
    saved(found, 10)
    (tmp_path / "training" / "step-10-copy").mkdir()
    (tmp_path / "training" / "notes").write_text("mine")
    saved(found, 20, keep=1)
    assert steps(found) == [20]
    assert sorted(os.listdir(tmp_path / "training")) == ["notes", "step-000000020", "step-10-copy"]
