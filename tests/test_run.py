"""The run folder: what a crash, a damaged disk or a second training may do to it."""

import errno
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from regard import __version__
from regard.errors import RegardError
from regard.files import read_tensors, write_tensors
from regard.run import SIGNED_FILES, Run
from tests.signing import edit_card


def refused(text):
    return pytest.raises(RegardError, match=f"^{re.escape(text)}$")


def flip(path: Path, index: int) -> None:
    content = bytearray(path.read_bytes())
    content[index] ^= 1
    path.write_bytes(content)


def begun(path: Path) -> Run:
    run = Run(path)
    (path / "training").mkdir(parents=True)  # as after lock
    run.write_files({"task": "pairs"}, {"recipe.toml": b"[training]\nsteps = 3\n", "tokenizer.json": b"{}\n"})
    run.save_model({"weight": torch.tensor([1.5, -2.0])}, {"best": {"step": 3}})
    return run


def validated(path: Path) -> Run:
    run = begun(path)
    run.add_metrics({"step": 3, "valid_loss": 0.25})
    return run


# the card


def test_the_card_has_the_checksums_of_the_files(tmp_path):
    card = begun(tmp_path).read_card()
    sums = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("recipe.toml", "tokenizer.json", "model.safetensors")
    }
    assert card == {"task": "pairs", "format": 1, "regard": __version__, "sha256": sums, "best": {"step": 3}}
    written = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert written.pop("card_sha256") == hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()
    assert written == card
    assert tomllib.loads((tmp_path / "recipe.toml").read_text()) == {"training": {"steps": 3}}
    assert Run(tmp_path).read_recipe() == {"training": {"steps": 3}}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*sums, "run.json", "training"])
    assert {path.name: path.read_bytes() for path in Run(tmp_path).copies.iterdir()} == {
        name: (tmp_path / name).read_bytes() for name in (*sums, "run.json")
    }
    assert Run(tmp_path).read_parameters()["weight"].tolist() == [1.5, -2.0]


def test_every_flipped_byte_of_the_model_is_noticed(tmp_path):
    run = begun(tmp_path)
    size = run.model_file.stat().st_size
    for index in (0, 8, size // 2, size - 1):
        flip(run.model_file, index)
        with refused(
            f"{tmp_path}/model.safetensors is corrupt: its checksum differs from run.json; "
            f"to restore it, run regard train --out {tmp_path}"
        ):
            run.read_parameters()
        flip(run.model_file, index)
    run.find_file("tokenizer.json")
    flip(run.tokenizer_file, 0)
    shutil.rmtree(run.checkpoints)
    with refused(f"{tmp_path}/tokenizer.json is corrupt: its checksum differs from run.json"):
        run.find_file("tokenizer.json")
    run.tokenizer_file.unlink()
    with refused(f"{tmp_path}/tokenizer.json is missing"):
        run.find_file("tokenizer.json")


def test_any_other_digit_on_the_card_is_noticed(tmp_path):
    run = validated(tmp_path)
    content = run.card_file.read_bytes()
    name = content.index(b"card_sha256")
    indices = [match.start() for match in re.finditer(rb"[0-9a-f]", content)]
    for index in indices:
        if name <= index < name + len("card_sha256"):
            continue  # another name of the checksum leaves all that it is for
        other = b"1" if content[index : index + 1] != b"1" else b"2"
        run.card_file.write_bytes(content[:index] + other + content[index + 1 :])
        with pytest.raises(RegardError, match=f"; to restore it, run regard train --out {tmp_path}$"):
            run.read_card()
    assert len(indices) > 5 * 64


@pytest.mark.parametrize("damage", [b'"step": 4', b'"step" 3'])
def test_a_damaged_card_is_restored_from_its_copy(tmp_path, damage):
    run = validated(tmp_path)
    content = run.card_file.read_bytes()
    run.card_file.write_bytes(content.replace(b'"step": 3', damage))
    restore = f"; to restore it, run regard train --out {tmp_path}"
    line = "was damaged or edited: its checksum differs from card_sha256" if b":" in damage else "is corrupt: "
    with pytest.raises(RegardError, match=rf"run.json {line}.*{re.escape(restore)}$"):
        run.read_parameters()
    assert run.restore_files() == [
        "note: run.json was damaged or edited (kept as run.json.damaged); restored it from training/copies"
    ]
    assert run.card_file.read_bytes() == content
    run.card_file.unlink()
    assert run.exists()
    with refused(f"{tmp_path} is not a run folder: run.json is missing{restore}"):
        run.read_card()
    assert run.restore_files() == ["note: run.json was missing; restored it from training/copies"]
    assert run.card_file.read_bytes() == content


def test_without_a_copy_a_damaged_card_is_refused(tmp_path):
    run = validated(tmp_path)
    run.card_copy.unlink()
    run.card_file.write_bytes(run.card_file.read_bytes().replace(b'"step": 3', b'"step": 4'))
    for use in (run.restore_files, run.read_recipe, lambda: run.add_metrics({"step": 9})):
        with refused(
            f"{tmp_path}/run.json was damaged or edited: its checksum differs from card_sha256; restore it from a "
            "backup, or remove card_sha256 if you edited it"
        ):
            use()


def test_a_card_edited_by_hand_is_accepted_without_its_checksum(tmp_path):
    run = validated(tmp_path)
    edit_card(tmp_path, task="mine")
    assert run.read_card()["task"] == "mine"
    assert run.restore_files() == []
    assert json.loads(run.card_copy.read_text())["task"] == "mine"
    run.save_model({"weight": torch.zeros(1)}, {"best": {"step": 4}})
    assert (run.read_card()["task"], "card_sha256" in json.loads(run.card_file.read_text())) == ("mine", True)


def test_another_digit_in_the_metrics_is_noticed_and_never_signed(tmp_path):
    run = validated(tmp_path)
    content = run.metrics_file.read_bytes()
    run.metrics_file.write_bytes(content.replace(b"0.25", b"0.15"))
    for use in (run.read_metrics, lambda: run.add_metrics({"step": 6})):
        with refused(
            f"{tmp_path}/metrics.jsonl is corrupt: its checksum differs from run.json; "
            f"to restore it, run regard train --out {tmp_path}"
        ):
            use()
    run.restore_files()
    assert run.metrics_file.read_bytes() == content
    run.metrics_file.unlink()
    (run.copies / "metrics.jsonl").unlink()
    assert run.restore_files() == []  # the checkpoint has them, too
    assert run.reset_metrics(content)
    assert run.read_metrics() == [{"step": 3, "valid_loss": 0.25}]


@pytest.mark.parametrize("name", SIGNED_FILES)
@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_file_is_restored_from_its_copy(tmp_path, name, damage):
    run, card, file = validated(tmp_path), (tmp_path / "run.json").read_bytes(), tmp_path / name
    before = file.read_bytes()
    assert run.restore_files() == []
    if damage == "flip":
        flip(file, 2)
        assert run.restore_files() == [
            f"note: {name} was damaged or edited (kept as {name}.damaged); restored it from training/copies"
        ]
        flip(tmp_path / f"{name}.damaged", 2)
        assert (tmp_path / f"{name}.damaged").read_bytes() == before
    else:
        file.unlink()
        assert run.restore_files() == [f"note: {name} was missing; restored it from training/copies"]
    assert (file.read_bytes(), run.card_file.read_bytes()) == (before, card)
    assert run.read_parameters()["weight"].tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("sha256", None, "sha256: expected an object, got null"),
        ("sha256", {"recipe.toml": 3}, "sha256: recipe.toml: expected a string, got 3"),
        ("data", None, "data: expected an object, got null"),
        ("best", 3, "best: expected an object, got 3"),
        ("threads", "2", 'threads: expected an integer, got "2"'),
    ],
)
def test_a_field_of_the_card_with_another_type_is_one_line(tmp_path, field, value, problem):
    run = begun(tmp_path)
    run.card_file.write_text(json.dumps({**run.read_card(), field: value}))
    with refused(f"{run.card_file}: {problem}"):
        run.read_checksums()


def test_nothing_is_restored_outside_the_folder(tmp_path):
    run = begun(tmp_path / "run")
    (tmp_path / "mine").write_text("mine")
    (run.copies.parent / "mine").write_text("theirs")  # what training/copies/../mine is
    sums = {"../mine": hashlib.sha256(b"theirs").hexdigest()}
    edit_card(run.path, sha256=sums)
    with refused(
        f'{run.card_file}: sha256: unknown file "../mine"; '
        "choose from metrics.jsonl, model.safetensors, recipe.toml, tokenizer.json"
    ):
        run.restore_files()
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_damaged_copy_is_made_anew_and_without_a_good_one_nothing_is_signed(tmp_path):
    run = begun(tmp_path)
    flip(run.copies / "model.safetensors", 9)
    assert run.restore_files() == []
    assert (run.copies / "model.safetensors").read_bytes() == run.model_file.read_bytes()
    flip(run.copies / "model.safetensors", 9)
    flip(run.model_file, 8)
    card, model = run.card_file.read_bytes(), run.model_file.read_bytes()
    for _ in range(2):
        with refused(
            f"{tmp_path}/model.safetensors is corrupt: its checksum differs from run.json, and training/copies has no "
            "intact copy; restore it from a backup, or choose another --out"
        ):
            run.restore_files()
    assert (run.card_file.read_bytes(), run.model_file.read_bytes()) == (card, model)


def test_what_is_written_does_not_sign_what_is_not(tmp_path):
    run = begun(tmp_path)
    flip(run.tokenizer_file, 0)
    run.save_model({"weight": torch.zeros(1)}, {"unvalidated": {"step": 1}})
    assert run.read_parameters()["weight"].tolist() == [0]
    with pytest.raises(RegardError, match=r"tokenizer.json is corrupt: its checksum differs"):
        run.find_file("tokenizer.json")
    card = run.read_card()
    assert (card.get("best"), card["unvalidated"]) == (None, {"step": 1})


def test_model_and_card_change_together_wherever_the_process_dies(tmp_path, monkeypatch):
    """A crash before each renaming in turn: the card always names parameters that can be read."""
    replace, deaths = Path.replace, 0
    for fatal in range(9):
        run, count = begun(tmp_path / str(fatal)), iter(range(99))

        def dying(path, target, count=count, fatal=fatal):
            if next(count) == fatal:
                raise KeyboardInterrupt
            return replace(path, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", dying)
            try:
                run.save_model({"weight": torch.zeros(2)}, {"best": {"step": 4}})
            except KeyboardInterrupt:
                deaths += 1
        weights = run.read_parameters()["weight"].tolist()
        assert (run.read_card()["best"]["step"], weights) in [(3, [1.5, -2.0]), (4, [0, 0])]
        assert run.restore_files() == []
        assert run.read_parameters()["weight"].tolist() == weights
        assert run.read_parameters()["weight"].tolist() == read_tensors(run.model_file)["weight"].tolist()
        assert not list(run.path.glob("*.next"))
    assert deaths == 5  # the new model, the card, the name of the model, the copies of model and card


def test_a_run_without_a_model(tmp_path):
    run = Run(tmp_path)
    run.write_files({}, {})
    with refused(f"{tmp_path}: model.safetensors is missing; train until the first validation"):
        run.read_parameters()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b"[" * 100_000, "maximum recursion depth exceeded while decoding a JSON array from a unicode string"),
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
    (tmp_path / "tokenizer.json.next").write_text("{}")
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
    with refused(f"cannot write {tmp_path}/training/lock: not a directory"), Run(tmp_path).lock():
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
    content = run.metrics_file.read_bytes()
    assert not run.reset_metrics(content[: content.index(b'{"step": 3')])
    assert run.read_metrics() == lines[:2]
    run.add_metrics(lines[2])
    assert run.read_metrics() == lines
    for damaged in (content[:-1], content.replace(b"1.0", b"1.5"), b""):
        run.metrics_file.write_bytes(damaged)
        assert run.reset_metrics(content)
        assert run.read_metrics() == lines
    assert not run.reset_metrics(b"")
    assert run.metrics_file.read_bytes() == b""


@pytest.mark.parametrize("line", [b'{"step": 2', b"[]", b"[" * 100_000, b'{"loss": 1}', b"\xff"])
def test_a_damaged_line_of_metrics_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + line + b"\n")
    with refused(f"{tmp_path}/metrics.jsonl, line 2 is corrupt; remove the line"):
        Run(tmp_path).read_metrics()
