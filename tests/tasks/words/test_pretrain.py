"""Taggers and classifiers that are pretrained on unlabeled text, in real runs."""

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
from regard.checkpoint import list_checkpoints
from regard.cli import main
from regard.errors import RegardError
from regard.files import read_tensors
from regard.run import Run
from regard.tasks.loading import load
from regard.tasks.words import pretrain
from regard.training.loop import Trainer
from tests.tiny_labels import write_data

SIZES: dict[str, Any] = {"hidden": 4, "embedding": 6, "char_width": 4, "encoder": "rnn", "word_dropout": 0.2}
SHORT: dict[str, Any] = {"steps": 6, "batch_tokens": 80, "validate_every": 2, "seed": 3, "learning_rate": 0.01}
PRETRAINING: dict[str, Any] = {
    "steps": 5,
    "batch_tokens": 60,
    "learning_rate": 0.01,
    "target_words": 9,
    "labeled_repeats": 1,
}
TEXT = "mr ann saw one owl . in max two owls slept ; Bob saw three <unk> !\nthe owl saw four of five eels\n" * 20


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    (folder / "text.txt").write_text(TEXT)
    return folder


def recipe(folder: Path, task: str = "tag", **sections: Any) -> dict[str, Any]:
    file = {"tag": "names.bio", "label": "one.tsv"}[task]
    about = {"task": task, "train": str(folder / file), "unlabeled": str(folder / "text.txt")}
    base = {"data": about, "model": SIZES, "pretraining": PRETRAINING, "training": SHORT}
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
def test_unlabeled_text_tells_what_words_are_that_have_no_labels(tmp_path):
    """Names of two kinds, in sentences that do not tell which; what is said of them in the text does."""
    draw = random.Random(0)
    names = {"PER": [f"a{letter}" for letter in "bcdefghijklm"], "LOC": [f"o{letter}" for letter in "bcdefghijklm"]}
    every = [(word, kind) for kind in names for word in names[kind]]
    chosen = [(draw.choice(WAYS[kind]), word, draw.choice(names[kind])) for word, kind in draw.choices(every, k=1200)]
    (tmp_path / "text.txt").write_text("".join(f"{way.format(*two)}\n" for way, *two in chosen))
    labeled = draw.choices([(word, kind) for kind in names for word in names[kind][:6]], k=60)
    (tmp_path / "train.bio").write_text("\n".join(f"here\tO\nis\tO\n{word}\t{kind}\n" for word, kind in labeled))
    path = str(tmp_path / "train.bio")
    plain: dict[str, Any] = {
        "data": {"task": "tag", "train": path, "validation": path},
        "model": {
            "encoder": "rnn",
            "char_encoder": "none",
            "char_ngrams": 0,
            "embedding": 16,
            "hidden": 16,
            "dropout": 0.2,
        },
        "training": {"steps": 60, "learning_rate": 0.01, "batch_tokens": 60, "validate_every": 60},
    }
    reads = {**plain, "data": {**plain["data"], "unlabeled": str(tmp_path / "text.txt")}}
    reads["pretraining"] = {
        "steps": 150,
        "batch_tokens": 400,
        "learning_rate": 0.01,
        "dropout": 0.1,
        "labeled_repeats": 1,
    }
    right = []
    for name, table in (("plain", plain), ("reads", reads)):
        train(table, tmp_path / name, quiet=True)
        unseen = [(word, kind) for kind in names for word in names[kind][6:]]
        taggings = load(tmp_path / name).predict([["here", "is", word] for word, _ in unseen])
        right.append(sum(tagging.tags[2] == kind for tagging, (_, kind) in zip(taggings, unseen, strict=True)))
    assert right[0] <= 8  # of twelve: no better than a guess
    assert right[1] >= 11


# The two phases


class StopError(Exception):
    """As if the machine were switched off."""


@pytest.mark.parametrize("task", ["tag", "label"])
@pytest.mark.parametrize("model", [{}, {"encoder": "both", "attention_heads": 2, "layers": 2}])
def test_the_first_phase_changes_the_reader_and_the_second_begins_with_it(task, model, data, tmp_path, monkeypatch):
    new, read = api.initialize_model, pretrain.run_pretraining
    at: dict[str, dict[str, torch.Tensor]] = {}

    def made(*arguments: Any) -> Any:
        model = new(*arguments)
        at["first"] = copy.deepcopy(model.state_dict())
        return model

    def reading(run: Run, *rest: Any) -> None:
        read(run, *rest)
        at["read"] = list_checkpoints(Run(run.path / "pretraining"))[-1].load_tensors("model")

    def update(self: Trainer) -> None:
        if self.run.path.name == "run" and self.counters.step == 0:
            at["then"] = copy.deepcopy(self.engine.model.state_dict())
        real(self)

    real = Trainer.update
    monkeypatch.setattr(api, "initialize_model", made)
    monkeypatch.setattr(pretrain, "run_pretraining", reading)
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
    assert [path.name for path in (tmp_path / "run/pretraining").iterdir()] == [
        "metrics.jsonl"
    ]  # the rest is of no use now


@pytest.mark.parametrize("phase", ["pretraining", "run"])
@pytest.mark.parametrize("stop", [StopError, KeyboardInterrupt])
def test_a_run_that_was_stopped_in_either_phase_ends_in_the_same_bits(phase, stop, data, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT)
    path = str(tmp_path / "text.txt")
    table = recipe(data, data={"unlabeled": path}, model={"layers": 2}, training={"ema_decay": 0.9})
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
        whole, resumed = (list_checkpoints(run)[-1].load_tensors(part) for run in runs)
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(whole[name], resumed[name]) for name in resumed), part
    for folder in ("", "pretraining"):
        lines = [Run(run.path / folder).read_metrics() for run in runs]
        whole, resumed = ([{**line, "seconds": 0} for line in part] for part in lines)
        assert whole == resumed
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
    assert capsys.readouterr().err.endswith("stopped; run the same command again to resume at step 3 of pretraining\n")
    assert main(["inspect", str(tmp_path / "run")]) == 0
    assert "(10 from unlabeled text)" in capsys.readouterr().out


def test_a_run_that_has_learned_labels_never_reads_again(data, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT)
    table = recipe(data, data={"unlabeled": str(tmp_path / "text.txt")})
    train(table, tmp_path / "run", quiet=True)
    (tmp_path / "text.txt").unlink()
    train({**table, "training": {**SHORT, "steps": 8}}, tmp_path / "run", quiet=True)
    assert [line["step"] for line in Run(tmp_path / "run").read_metrics()] == [2, 4, 6, 8]
    with pytest.raises(RegardError, match=r"run was started with pretraining.steps = 5, got 6; choose another --out$"):
        train({**table, "pretraining": {**PRETRAINING, "steps": 6}}, tmp_path / "run", quiet=True)
    with pytest.raises(RegardError, match=r"run was started with data.unlabeled = .*, got none; choose another --out$"):
        train(without(table, "data", "unlabeled"), tmp_path / "run", quiet=True)


def test_another_text_is_refused_while_it_is_read(data, tmp_path, begin):
    path, run = tmp_path / "text.txt", tmp_path / "run"
    path.write_text(TEXT)
    table = recipe(data, data={"unlabeled": str(path)})
    begin(table, run)
    path.write_text(f"{TEXT}more of it\n")
    with pytest.raises(RegardError) as caught:
        train(table, run, quiet=True)
    assert str(caught.value) == f"{path} differs from the text that {run} was started with; choose another --out"
    path.write_text(TEXT)
    train(table, run, quiet=True)


def test_the_best_reader_of_text_is_the_one_that_has_read(data, tmp_path):
    table = recipe(data, pretraining={"steps": 120, "learning_rate": 0.02, "dropout": 0.0}, training={"steps": 1})
    train(table, tmp_path / "run", quiet=True)
    lines = Run(tmp_path / "run/pretraining").read_metrics()
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
    owl, once, never = model.vocabulary.encode(["Owl", "<unk>", "never"])
    assert (owl.word_id >= model.vocabulary.size - model.vocabulary.unlabeled, owl.vector_id) == (True, 1)
    assert (once.word_id, never.word_id, never.vector_id) == (1, 1, 2)
    assert model.model.config.unlabeled == model.vocabulary.unlabeled
    vectors = read_tensors(Run(tmp_path / "run").model_file)["reader.embedding.vectors"]
    assert torch.equal(vectors, torch.tensor([[0, 0], [0.5, -1], [2, 0.25]]))
    assert model.predict("one owl saw never") is not None


def test_another_run_takes_the_words_over_and_no_further_text(data, tmp_path):
    train(recipe(data), tmp_path / "first", quiet=True)
    table = recipe(data)
    table = {"data": table["data"], "training": SHORT}
    with pytest.raises(RegardError) as caught:
        train(table, tmp_path / "second", base=tmp_path / "first", quiet=True)
    assert str(caught.value) == (
        "recipe: [data] unlabeled cannot be combined with --from; pretraining is the first phase of a run"
    )
    train(without(table, "data", "unlabeled"), tmp_path / "second", base=tmp_path / "first", quiet=True)
    first, second = (load(tmp_path / name).vocabulary for name in ("first", "second"))
    assert first.to_json() == second.to_json()
    assert second.unlabeled == 10
    assert not (tmp_path / "second/pretraining").exists()


def test_what_is_said(data, tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt.gz").write_bytes(gzip.compress(b"An owl, an eel.\n\nOwls and eels!\nan owl\n"))
    table = recipe(data, "label", data={"unlabeled": str(tmp_path / "texts")}, training={"steps": 1})
    train(table, tmp_path / "run")
    log = capsys.readouterr().err.splitlines()
    assert (
        f"unlabeled: 3 lines, 3 sentences, 12 words, from {tmp_path}/texts; 9 different words, 0 of them in "
        "the labeled texts, 2 added to the vocabulary"
    ) in log
    assert "note: unlabeled text and labeled texts have no words in common" in log
    assert any(line.startswith("words: 15 known") for line in log)
    (begun,) = [line for line in log if line.startswith("pretraining: ")]
    assert begun.startswith("pretraining: 5 steps of up to 60 words, learning rate 0.01, validation every 1 step; ")
    assert begun.endswith(" steps per epoch, labeled texts repeated 1 time; 9 target words")
    first = next(line for line in log if line.startswith("step      1"))
    assert "  perplexity forwards " in first
    assert "  perplexity backwards " in first
    assert "pretraining is complete; training on labels" in log
    card = json.loads((tmp_path / "run/run.json").read_text())
    assert (card["data"]["unlabeled"]["words"], card["vocabulary"]["unlabeled"]) == (12, 2)
    train(without(table, "data", "unlabeled"), tmp_path / "none")
    assert "note: [pretraining] has no effect without --unlabeled" in capsys.readouterr().err


@pytest.mark.parametrize("encoder", ["embedding", "attention"])
def test_what_has_no_rnn_cannot_read(encoder, data, tmp_path):
    with pytest.raises(RegardError) as caught:
        train(recipe(data, "label", model={"encoder": encoder, "attention_heads": 2}), tmp_path / "run", quiet=True)
    assert str(caught.value) == f"data.unlabeled requires model.encoder rnn or both, got {encoder}"
    assert not (tmp_path / "run").exists()


def test_what_else_is_one_line(data, tmp_path):
    for file, task in (("copy", "pairs"), (str(data / "text.txt"), "text")):
        with pytest.raises(RegardError) as caught:
            train({"data": {"train": file, "unlabeled": "t.txt"}}, tmp_path / "run", quiet=True)
        line = f"recipe: [data] unlabeled is for the tasks tag and label; this recipe is for {task}"
        assert str(caught.value) == line
    with pytest.raises(RegardError) as caught:
        train({"data": {"train": "copy"}, "pretraining": {"labeled_repeats": 0}}, tmp_path / "run", quiet=True)
    assert str(caught.value) == "recipe: [pretraining] is for the tasks tag and label; this recipe is for pairs"
    with pytest.raises(RegardError) as caught:
        train(recipe(data, data={"unlabeled": str(tmp_path / "no.txt")}), tmp_path / "run", quiet=True)
    assert str(caught.value) == f"cannot read {tmp_path}/no.txt: not found"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_and_a_recipe_beside_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/text.txt").write_text(TEXT)
    short = ["--steps", "2", "--validate-every", "2", "--hidden", "4", "--device", "cpu", "--pretraining.steps", "3"]
    table = ["names.bio", "--task", "tag", "--unlabeled", "sub/text.txt", "--pretraining.batch-tokens=50"]
    assert main(["train", *table, "--out", "run", *short]) == 0
    settings = Run(Path("run")).read_recipe()
    assert settings["data"]["unlabeled"] == str(tmp_path / "sub/text.txt")
    assert (settings["pretraining"]["steps"], settings["pretraining"]["batch_tokens"]) == (3, 50)
    (tmp_path / "sub/ner.toml").write_text('[data]\ntrain = "names.bio"\nunlabeled = "text.txt"\n')
    assert main(["train", "sub/ner.toml", "--out", "other", *short]) == 0
    assert Run(Path("other")).read_recipe()["data"]["unlabeled"] == str(tmp_path / "sub/text.txt")
    assert main(["evaluate", "run", "--data", "names.bio"]) == 0
    assert main(["train", "names.bio", "--unlabeled", "sub/text.txt", "--out", "third", "--encoder", "attention"]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("regard: data.unlabeled requires model.encoder rnn or both, ")
    )
