"""Taggers and classifiers that read unlabelled text before they learn labels, in real runs."""

import copy
import gzip
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import api
from regard.api import train
from regard.cli import main
from regard.errors import RegardError
from regard.files import read_tensors
from regard.run import Run, checkpoints_of
from regard.tasks.loading import load
from regard.tasks.words import pretrain
from regard.training.loop import Trainer
from tests.tiny_labels import write_data

SIZES: dict[str, Any] = {"hidden": 4, "embedding": 6, "spelling_width": 4, "encoder": "rnn", "word_dropout": 0.2}
SHORT: dict[str, Any] = {"steps": 6, "tokens": 80, "validate_every": 2, "seed": 3, "rate": 0.01}
READING: dict[str, Any] = {"steps": 5, "tokens": 60, "rate": 0.01, "targets": 9, "repeats": 1}
TEXT = "mr ann saw one owl . in max two owls slept ; Bob saw three <unk> !\nthe owl saw four of five eels\n" * 20


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    (folder / "text.txt").write_text(TEXT)
    return folder


def recipe(folder: Path, task: str = "tag", **sections: Any) -> dict[str, Any]:
    file = {"tag": "names.bio", "label": "one.tsv"}[task]
    about = {"task": task, "train": str(folder / file), "unlabelled": str(folder / "text.txt")}
    base = {"data": about, "model": SIZES, "reading": READING, "training": SHORT}
    return {name: {**table, **sections.get(name, {})} for name, table in base.items()}


def without(table: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    return {**table, section: {key: value for key, value in table[section].items() if key != name}}


# What it is good for


WAYS = {
    "PER": ["{0} said that it rains .", "we asked {0} today .", "{0} and {1} laughed ."],
    "LOC": ["we live in {0} now .", "the train to {0} is late .", "from {0} to {1} ."],
}
"""What is said of persons, and of places."""


@pytest.mark.slow
def test_unlabelled_text_tells_what_words_are_that_have_no_labels(tmp_path):
    """Names of two kinds, in sentences that do not tell which; what is said of them in the text does."""
    draw = random.Random(0)
    names = {"PER": [f"a{letter}" for letter in "bcdefghijklm"], "LOC": [f"o{letter}" for letter in "bcdefghijklm"]}
    every = [(word, kind) for kind in names for word in names[kind]]
    chosen = [(draw.choice(WAYS[kind]), word, draw.choice(names[kind])) for word, kind in draw.choices(every, k=1200)]
    (tmp_path / "text.txt").write_text("".join(f"{way.format(*two)}\n" for way, *two in chosen))
    labelled = draw.choices([(word, kind) for kind in names for word in names[kind][:6]], k=60)
    (tmp_path / "train.bio").write_text("\n".join(f"here\tO\nis\tO\n{word}\t{kind}\n" for word, kind in labelled))
    path = str(tmp_path / "train.bio")
    plain: dict[str, Any] = {
        "data": {"task": "tag", "train": path, "valid": path},
        "model": {"encoder": "rnn", "spelling": "none", "embedding": 16, "hidden": 16, "dropout": 0.2},
        "training": {"steps": 60, "rate": 0.01, "tokens": 60, "validate_every": 60},
    }
    reads = {**plain, "data": {**plain["data"], "unlabelled": str(tmp_path / "text.txt")}}
    reads["reading"] = {"steps": 150, "tokens": 400, "rate": 0.01, "dropout": 0.1, "repeats": 1}
    right = []
    for name, table in (("plain", plain), ("reads", reads)):
        train(table, tmp_path / name, quiet=True)
        unseen = [(word, kind) for kind in names for word in names[kind][6:]]
        found = load(tmp_path / name).predict([["here", "is", word] for word, _ in unseen])
        right.append(sum(each.tags[2] == kind for each, (_, kind) in zip(found, unseen, strict=True)))
    assert right[0] <= 8  # of twelve: no better than a guess
    assert right[1] >= 11


# The two phases


class StopError(Exception):
    """As if the machine were switched off."""


@pytest.mark.parametrize("task", ["tag", "label"])
@pytest.mark.parametrize("model", [{}, {"encoder": "both", "attention_heads": 2, "layers": 2}])
def test_the_first_phase_changes_the_reader_and_the_second_begins_with_it(task, model, data, tmp_path, monkeypatch):
    new, read = api.new_model, pretrain.read_first
    at: dict[str, dict[str, torch.Tensor]] = {}

    def made(*arguments: Any) -> Any:
        model = new(*arguments)
        at["first"] = copy.deepcopy(model.state_dict())
        return model

    def reading(run: Run, *rest: Any) -> None:
        read(run, *rest)
        at["read"] = checkpoints_of(Run(run.path / "reading"))[-1].tensors("model")

    def update(self: Trainer) -> None:
        if self.run.path.name == "run" and self.counters.step == 0:
            at["then"] = copy.deepcopy(self.engine.model.state_dict())
        real(self)

    real = Trainer.update
    monkeypatch.setattr(api, "new_model", made)
    monkeypatch.setattr(pretrain, "read_first", reading)
    monkeypatch.setattr(Trainer, "update", update)
    train(recipe(data, task, model=model), tmp_path / "run", quiet=True)
    assert at["first"].keys() == at["then"].keys()
    for name, value in at["then"].items():
        upon = "_l1" in name or name.startswith(("reader.stack", "reader.project"))
        untouched = upon or not name.startswith("reader.")
        assert torch.equal(at["first"][name], value) == untouched, name
        if name.startswith("reader."):
            assert torch.equal(at["read"][name], value), name
    assert set(at["read"]) - set(at["then"]) == {"next.weight", "next.bias", "before.weight", "before.bias"}
    assert [path.name for path in (tmp_path / "run/reading").iterdir()] == [
        "metrics.jsonl"
    ]  # the rest is of no use now


@pytest.mark.parametrize("phase", ["reading", "run"])
@pytest.mark.parametrize("stop", [StopError, KeyboardInterrupt])
def test_a_run_that_was_stopped_in_either_phase_ends_in_the_same_bits(phase, stop, data, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT)
    path = str(tmp_path / "text.txt")
    table = recipe(data, data={"unlabelled": path}, model={"layers": 2}, training={"ema": 0.9})
    train(table, tmp_path / "whole/run", quiet=True)
    real, met = Trainer.update, []

    def update(self: Trainer) -> None:
        real(self)
        if self.run.path.name == phase and self.counters.step == 3 and not met:
            met.append(self.counters.step)
            raise stop

    monkeypatch.setattr(Trainer, "update", update)
    with pytest.raises(stop):
        train(table, tmp_path / "broken/run", quiet=True)
    assert met == [3]
    if phase == "run":
        Path(path).unlink()  # it was read, and is needed no more
    train(table, tmp_path / "broken/run", quiet=True)
    runs = [Run(tmp_path / name / "run") for name in ("whole", "broken")]
    for part in ("model", "optimizer", "average"):
        ours, theirs = (checkpoints_of(run)[-1].tensors(part) for run in runs)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs), part
    for folder in ("", "reading"):
        lines = [Run(run.path / folder).metrics() for run in runs]
        ours, theirs = ([{**line, "seconds": 0} for line in each] for each in lines)
        assert ours == theirs
        assert [line["step"] for line in lines[0]] == ([1, 2, 3, 4, 5] if folder else [2, 4, 6])


def test_ctrl_c_while_text_is_read_saves_and_says_where(data, tmp_path, monkeypatch, capsys):
    real = Trainer.update

    def update(self: Trainer) -> None:
        real(self)
        if self.counters.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "update", update)
    with pytest.raises(KeyboardInterrupt):
        train(recipe(data), tmp_path / "run")
    assert capsys.readouterr().err.endswith("stopped; the same command again goes on from step 3 of the reading\n")
    assert main(["inspect", str(tmp_path / "run")]) == 0
    assert "(10 from unlabelled text)" in capsys.readouterr().out


def test_a_run_that_has_learnt_labels_never_reads_again(data, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT)
    table = recipe(data, data={"unlabelled": str(tmp_path / "text.txt")})
    train(table, tmp_path / "run", quiet=True)
    (tmp_path / "text.txt").unlink()
    train({**table, "training": {**SHORT, "steps": 8}}, tmp_path / "run", quiet=True)
    assert [line["step"] for line in Run(tmp_path / "run").metrics()] == [2, 4, 6, 8]
    with pytest.raises(RegardError, match=r"was begun with reading.steps = 5, not 6; choose another --out$"):
        train({**table, "reading": {**READING, "steps": 6}}, tmp_path / "run", quiet=True)
    with pytest.raises(RegardError, match=r"was begun with data.unlabelled = .*, not none; choose another --out$"):
        train(without(table, "data", "unlabelled"), tmp_path / "run", quiet=True)


def test_another_text_is_refused_while_it_is_read(data, tmp_path, begin):
    path, run = tmp_path / "text.txt", tmp_path / "run"
    path.write_text(TEXT)
    table = recipe(data, data={"unlabelled": str(path)})
    begin(table, run)
    path.write_text(f"{TEXT}more of it\n")
    with pytest.raises(RegardError) as caught:
        train(table, run, quiet=True)
    assert str(caught.value) == f"{path}: is not the text that {run} was begun with; choose another --out"
    path.write_text(TEXT)
    train(table, run, quiet=True)


def test_the_best_reader_of_text_is_the_one_that_has_read(data, tmp_path):
    table = recipe(data, reading={"steps": 120, "rate": 0.02, "dropout": 0.0}, training={"steps": 1})
    train(table, tmp_path / "run", quiet=True)
    lines = Run(tmp_path / "run/reading").metrics()
    assert [line["step"] for line in lines] == [24, 48, 72, 96, 120]
    assert lines[-1]["valid_loss"] < 0.85 * lines[0]["valid_loss"]
    for line in lines:
        both = torch.tensor([line["valid_perplexity_forwards"], line["valid_perplexity_backwards"]]).double()
        assert both.log().sum().item() == pytest.approx(line["valid_loss"])


# With other things


@pytest.mark.parametrize("task", ["tag", "label"])
def test_words_of_the_text_are_known_beside_vectors_too(task, data, tmp_path):
    (tmp_path / "v.txt").write_text("owl 0.5 -1\nnever 2 0.25\n")
    table = recipe(data, task, data={"vectors": str(tmp_path / "v.txt")})
    train(table, tmp_path / "run", quiet=True)
    model = load(tmp_path / "run")
    owl, once, never = model.lexicon.encode(["Owl", "<unk>", "never"])
    assert (owl.number >= model.lexicon.size - model.lexicon.unlabelled, owl.vector) == (True, 1)
    assert (once.number, never.number, never.vector) == (1, 1, 2)
    assert model.model.config.unlabelled == model.lexicon.unlabelled
    found = read_tensors(Run(tmp_path / "run").model_file)["reader.embedding.vectors"]
    assert torch.equal(found, torch.tensor([[0, 0], [0.5, -1], [2, 0.25]]))
    assert model.predict("one owl saw never") is not None


def test_another_run_takes_the_words_over_and_no_further_text(data, tmp_path):
    train(recipe(data), tmp_path / "first", quiet=True)
    table = recipe(data)
    table = {"data": table["data"], "training": SHORT}
    with pytest.raises(RegardError) as caught:
        train(table, tmp_path / "second", base=tmp_path / "first", quiet=True)
    assert str(caught.value) == (
        "recipe: [data] unlabelled text is read before all else, not after --from; leave it out"
    )
    train(without(table, "data", "unlabelled"), tmp_path / "second", base=tmp_path / "first", quiet=True)
    first, second = (load(tmp_path / name).lexicon for name in ("first", "second"))
    assert first.to_json() == second.to_json()
    assert second.unlabelled == 10
    assert not (tmp_path / "second/reading").exists()


def test_what_is_said(data, tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt.gz").write_bytes(gzip.compress(b"An owl, an eel.\n\nOwls and eels!\nan owl\n"))
    table = recipe(data, "label", data={"unlabelled": str(tmp_path / "texts")}, training={"steps": 1})
    train(table, tmp_path / "run")
    said = capsys.readouterr().err.splitlines()
    assert (
        f"unlabelled: 3 lines, 3 sentences, 12 words, from {tmp_path}/texts; of 9 different words 0 are known from "
        "the labelled texts, 2 more are learnt"
    ) in said
    assert "note: unlabelled: has no word in common with the labelled texts" in said
    assert any(line.startswith("words: 15 known") for line in said)
    (begun,) = [line for line in said if line.startswith("reading: ")]
    assert begun.startswith("reading: 5 updates of 60 words at the most, rate 0.01, validation every 1; ")
    assert begun.endswith(" an epoch, in which the labelled texts come 1 times; 9 words are told")
    first = next(line for line in said if line.startswith("step      1"))
    assert "  perplexity forwards " in first
    assert "  perplexity backwards " in first
    assert "reading is done; now the labels" in said
    card = json.loads((tmp_path / "run/run.json").read_text())
    assert (card["data"]["unlabelled"]["words"], card["vocabulary"]["unlabelled"]) == (12, 2)
    train(without(table, "data", "unlabelled"), tmp_path / "none")
    assert "note: [reading] is for --unlabelled text; there is none" in capsys.readouterr().err


@pytest.mark.parametrize("encoder", ["embedding", "attention"])
def test_what_has_no_rnn_cannot_read(encoder, data, tmp_path):
    with pytest.raises(RegardError) as caught:
        train(recipe(data, "label", model={"encoder": encoder, "attention_heads": 2}), tmp_path / "run", quiet=True)
    assert str(caught.value) == (
        f"data.unlabelled: is read by an rnn, and model.encoder is {encoder}; take rnn or both, or leave it out"
    )
    assert not (tmp_path / "run").exists()


def test_what_else_is_one_line(data, tmp_path):
    for file, task in (("copy", "pairs"), (str(data / "text.txt"), "text")):
        with pytest.raises(RegardError) as caught:
            train({"data": {"train": file, "unlabelled": "t.txt"}}, tmp_path / "run", quiet=True)
        line = f"recipe: [data] unlabelled is for the tasks tag and label; this recipe is for {task}"
        assert str(caught.value) == line
    with pytest.raises(RegardError) as caught:
        train({"data": {"train": "copy"}, "reading": {"repeats": 0}}, tmp_path / "run", quiet=True)
    assert str(caught.value) == "recipe: [reading] is for the tasks tag and label; this recipe is for pairs"
    with pytest.raises(RegardError) as caught:
        train(recipe(data, data={"unlabelled": str(tmp_path / "no.txt")}), tmp_path / "run", quiet=True)
    assert str(caught.value) == f"{tmp_path}/no.txt: there is no such file"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_and_a_recipe_beside_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/text.txt").write_text(TEXT)
    short = ["--steps", "2", "--validate-every", "2", "--hidden", "4", "--device", "cpu", "--reading.steps", "3"]
    table = ["names.bio", "--task", "tag", "--unlabelled", "sub/text.txt", "--reading.tokens=50"]
    assert main(["train", *table, "--out", "run", *short]) == 0
    found = Run(Path("run")).read_recipe()
    assert (found["data"]["unlabelled"], found["reading"]["steps"], found["reading"]["tokens"]) == (
        "sub/text.txt",
        3,
        50,
    )
    (tmp_path / "sub/ner.toml").write_text('[data]\ntrain = "names.bio"\nunlabelled = "text.txt"\n')
    assert main(["train", "sub/ner.toml", "--out", "other", *short]) == 0
    assert Run(Path("other")).read_recipe()["data"]["unlabelled"] == "sub/text.txt"
    assert main(["evaluate", "run", "--data", "names.bio"]) == 0
    assert main(["train", "names.bio", "--unlabelled", "sub/text.txt", "--out", "third", "--encoder", "attention"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("regard: data.unlabelled: is read by an rnn, and")
