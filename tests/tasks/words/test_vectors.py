"""Taggers and classifiers with pretrained word vectors, in real runs."""

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import train
from regard.checkpoint import Checkpoint, list_checkpoints
from regard.cli import main
from regard.errors import RegardError
from regard.files import read_tensors, write_tensors
from regard.run import Run
from regard.tasks.loading import load
from regard.training.loop import Trainer
from tests.signing import sign
from tests.tiny_labels import write_data

SIZES: dict[str, Any] = {"hidden": 4, "embedding": 6, "char_width": 4, "encoder": "rnn"}
SHORT: dict[str, Any] = {
    "steps": 6,
    "batch_tokens": 80,
    "validate_every": 2,
    "seed": 3,
    "learning_rate": 0.01,
    "weight_decay": 0.1,
}
TABLE = torch.tensor([[0, 0], [0.5, -1], [2, 0.25], [-3, 1], [1, 1]])
FILE = "one 0.5 -1\nAnn 2 0.25\nnever -3 1\nseen 1 1\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    (folder / "v.txt").write_text(FILE)
    return folder


def recipe(data: Path, task: str = "tag", vectors: object = None, **sections: Any) -> dict[str, Any]:
    file = {"tag": "names.bio", "label": "one.tsv"}[task]
    about = {"task": task, "train": str(data / file), "vectors": str(vectors or data / "v.txt")}
    model, training = ({**base, **sections.get(name, {})} for name, base in (("model", SIZES), ("training", SHORT)))
    return {"data": about, "model": model, "training": training}


def vectors_in(run: Path) -> list[torch.Tensor]:
    """Those of the run and of all its checkpoints."""
    checkpoints = list_checkpoints(Run(run))
    states = [read_tensors(Run(run).model_file), *(checkpoint.load_tensors("model") for checkpoint in checkpoints)]
    return [state["reader.embedding.vectors"] for state in states]


@pytest.mark.parametrize("task", ["tag", "label"])
@pytest.mark.parametrize("settings", [{}, {"ema_decay": 0.9, "average_checkpoints": 2}])
def test_vectors_stay_as_they_were_and_the_run_needs_the_file_no_more(task, settings, data, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text(FILE)
    train(recipe(data, task, path, training=settings), tmp_path / "run", quiet=True)
    path.unlink()
    assert len(tables := vectors_in(tmp_path / "run")) >= 3
    assert all(torch.equal(table, TABLE) for table in tables)
    model = load(tmp_path / "run")
    assert model.vocabulary.vectors == ("one", "Ann", "never", "seen")
    text = "one never Ann"
    assert model.predict(text) is not None
    words = model.vocabulary.encode(text.split())
    assert [word.vector_id for word in words] == [1, 3, 2]
    assert words[1].word_id == 1  # <unk>: it was never seen in training
    learned = sum(parameter.numel() for parameter in model.model.parameters())
    card = Run(tmp_path / "run").read_card()
    assert (card["parameters"], card["vocabulary"]["vectors"]) == (learned, 4)
    before = Run(tmp_path / "run").read_metrics()
    train({"training": {"steps": 8}}, tmp_path / "run", quiet=True)
    assert [line["step"] for line in Run(tmp_path / "run").read_metrics()] == [*(line["step"] for line in before), 8]
    assert torch.equal(vectors_in(tmp_path / "run")[-1], TABLE)


def test_a_word_that_was_never_seen_is_told_from_others_by_its_vector(tmp_path):
    """A label is decided by a word that is a thing or an animal; of half of them training has no example."""
    animals, things = ([f"{kind}{letter}" for letter in "abcdef"] for kind in ("x", "y"))
    lines = [f"{word} 1 {n % 3}\n" for n, word in enumerate(animals)]
    lines += [f"{word} -1 {n % 3}\n" for n, word in enumerate(things)]
    (tmp_path / "v.txt").write_text("".join(lines))
    texts = [f"{word}\t{label}\n" for some, label in ((animals, "a"), (things, "t")) for word in some[:3] * 8]
    (tmp_path / "train.tsv").write_text("".join(texts))
    model = {"encoder": "embedding", "char_encoder": "none", "embedding": 4, "word_dropout": 0.5, "dropout": 0.0}
    data = {"task": "label", "train": str(tmp_path / "train.tsv"), "vectors": str(tmp_path / "v.txt")}
    training = {"steps": 60, "learning_rate": 0.05, "batch_tokens": 24, "validate_every": 60}
    data["validation"] = data["train"]
    train({"data": data, "model": model, "training": training}, tmp_path / "run", quiet=True)
    answers = load(tmp_path / "run").predict([*animals[3:], *things[3:]])
    assert [each.labels[0] for each in answers] == ["a"] * 3 + ["t"] * 3


def test_what_is_said(data, tmp_path, capsys):
    """240 texts of eight filling words and five that decide; one is in each file of vectors."""
    (tmp_path / "cut.txt").write_text("900 1\ngood 1\nbad 2\n")
    table = recipe(data, "label", tmp_path / "cut.txt", training={"steps": 1, "validate_every": 1})
    train(table, tmp_path / "run")
    log = [line for line in capsys.readouterr().err.splitlines() if "vectors" in line]
    texts = {line.split("\t")[0] for line in (data / "one.tsv").read_text().splitlines()}
    held = Run(tmp_path / "run").read_card()["data"]["validation"]
    assert len(log) == 2
    assert log[0].startswith(
        f"vectors: 2 of width 1, from {tmp_path}/cut.txt; they cover 2 of 13 different training words, "
    )
    share = float(log[0].split("words, ")[1].removesuffix("% of all training words"))
    words = [word for text in texts for word in text.split()]
    assert abs(share - 100 * sum(word in ("good", "bad") for word in words) / len(words)) < 2
    assert held < 20  # so that the share of all texts is about that of those to train on
    assert log[1] == f"note: vectors: {tmp_path}/cut.txt: the first line announces 900 vectors, got 2"
    assert main(["inspect", str(tmp_path / "run")]) == 0
    assert "pieces, 2 pretrained vectors; 3 labels" in capsys.readouterr().out


def test_tuned_vectors_are_learned_and_nothing_stays_nothing(data, tmp_path):
    train(recipe(data, model={"fine_tune_vectors": True}), tmp_path / "run", quiet=True)
    table = vectors_in(tmp_path / "run")[-1]
    assert not torch.equal(table[1:3], TABLE[1:3])
    assert torch.equal(table[0], TABLE[0])
    learned = sum(parameter.numel() for parameter in load(tmp_path / "run").model.parameters())
    train(recipe(data), tmp_path / "frozen", quiet=True)
    fewer = sum(parameter.numel() for parameter in load(tmp_path / "frozen").model.parameters())
    assert learned == fewer + TABLE.numel()


@pytest.mark.parametrize("tune", [False, True])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits_without_the_file(tune, data, tmp_path, monkeypatch):
    path = tmp_path / "v.txt"
    path.write_text(FILE)
    table = recipe(
        data, vectors=path, model={"fine_tune_vectors": tune, "word_dropout": 0.2}, training={"ema_decay": 0.9}
    )
    train(table, tmp_path / "whole", quiet=True)
    real = Trainer.update

    def update(self: Trainer) -> None:
        real(self)
        if self.counters.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", update)
        with pytest.raises(KeyboardInterrupt):
            train(table, tmp_path / "parts", quiet=True)
    path.unlink()
    train(table, tmp_path / "parts", quiet=True)
    for part in ("model", "optimizer", "average"):
        resumed, whole = (list_checkpoints(Run(tmp_path / run))[-1].load_tensors(part) for run in ("parts", "whole"))
        assert resumed.keys() == whole.keys()
        assert all(torch.equal(resumed[name], whole[name]) for name in whole), part
        assert ("moment.reader.embedding.vectors" in whole) == (tune and part == "optimizer")


def test_a_run_that_was_stopped_before_its_first_checkpoint_needs_the_same_vectors_again(data, tmp_path, begin):
    path, run = tmp_path / "v.txt", tmp_path / "run"
    path.write_text(FILE)
    table = recipe(data, vectors=path)
    begin(table, run)
    path.write_text("one 0.5 -1\n")
    with pytest.raises(RegardError) as caught:
        train(table, run, quiet=True)
    assert str(caught.value) == f"{path} differs from the vectors that {run} was started with; choose another --out"
    path.write_text(FILE)
    train(table, run, quiet=True)
    assert torch.equal(vectors_in(run)[-1], TABLE)


def test_another_run_takes_vectors_over_and_no_others(data, tmp_path):
    train(recipe(data), tmp_path / "first", quiet=True)
    table = recipe(data)
    table = {"data": table["data"], "training": SHORT}
    with pytest.raises(RegardError) as caught:
        train(table, tmp_path / "second", base=tmp_path / "first", quiet=True)
    assert str(caught.value) == (
        f"recipe: [data] vectors cannot be combined with --from; they come from {tmp_path}/first"
    )
    del table["data"]["vectors"]
    train(table, tmp_path / "second", base=tmp_path / "first", quiet=True)
    assert torch.equal(vectors_in(tmp_path / "second")[-1], TABLE)
    with pytest.raises(RegardError, match=r"run was started with data.vectors = .*, got none; choose another --out$"):
        train({"data": table["data"]}, tmp_path / "first", quiet=True)


TEXT = "one two three\nAnn saw one <unk> in two\n" * 40


def language_model(folder: Path, name: str, kind: str = "words", **model: Any) -> Path:
    (folder / "text.txt").write_text(TEXT)
    table = {
        "data": {"train": str(folder / "text.txt")},
        "text": {"tokenizer": kind},
        "model": {"name": name, **model},
        "training": {"steps": 2, "batch_tokens": 64, "validate_every": 2},
    }
    train(table, folder / name, quiet=True)
    return folder / name


@pytest.mark.parametrize("name", ["neural-lm", "lstm-lm", "attentive-lm", "gpt"])
def test_the_words_of_a_language_model_are_vectors(name, data, tmp_path):
    gpt: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "context_length": 16}
    source = language_model(tmp_path, name, **(gpt if name == "gpt" else {"embedding": 8, "hidden": 8}))
    train(recipe(data, vectors=source), tmp_path / "run", quiet=True)
    model, tokenizer = load(tmp_path / "run"), load(source).tokenizer
    assert sorted(model.vocabulary.vectors) == [
        "Ann",
        "in",
        "one",
        "saw",
        "three",
        "two",
    ]  # neither <unk> nor line ends
    table = read_tensors(Run(source).model_file)
    embedding = table["embedding.weight" if name == "gpt" else "vocabulary.embedding.weight"]
    assert model.model.reader.embedding.vectors is not None
    for index, word in enumerate(model.vocabulary.vectors, 1):
        (token_id,) = tokenizer.encode(word)
        assert torch.equal(model.model.reader.embedding.vectors[index], embedding[token_id])


def test_what_is_no_source_of_vectors_is_one_line(data, tmp_path):
    train(recipe(data), tmp_path / "tagger", quiet=True)
    spelt = language_model(tmp_path, "lstm-lm", "characters", embedding=8, hidden=8)
    (tmp_path / "empty").mkdir()
    for path, line in (
        ("tagger", ": expected the run of a language model, got attentive-tagger"),
        (spelt.name, ": expected a model with --tokenizer words, got characters"),
        ("empty", " is not a run folder: run.json is missing"),
    ):
        with pytest.raises(RegardError) as caught:
            train(recipe(data, vectors=tmp_path / path), tmp_path / "run", quiet=True)
        assert str(caught.value) == f"{tmp_path}/{path}{line}"
        assert not (tmp_path / "run").exists()
    with pytest.raises(RegardError) as caught:
        train(recipe(data, vectors=tmp_path / "none"), tmp_path / "run", quiet=True)
    assert str(caught.value) == f"cannot read {tmp_path}/none: not found"


def test_a_run_without_the_vectors_it_describes_is_one_line(data, tmp_path):
    run = Run(language_model(tmp_path, "lstm-lm", embedding=8, hidden=8))
    tensors = read_tensors(run.model_file)
    narrow = tensors["vocabulary.embedding.weight"][:, :4]
    for changed in ({"odd": narrow}, {**tensors, "vocabulary.embedding.weight": narrow}):
        write_tensors(run.model_file, changed)
        sign(run.path, "model.safetensors")
        with pytest.raises(RegardError) as caught:
            train(recipe(data, vectors=run.path), tmp_path / "run", quiet=True)
        assert str(caught.value) == f"{run.model_file} does not match recipe.toml: parameters differ"


def test_what_vectors_mean_nothing_for_and_what_needs_them(data, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    for train_on, task in (("copy", "pairs"), (str(tmp_path / "text.txt"), "text")):
        with pytest.raises(RegardError) as caught:
            train({"data": {"train": train_on, "vectors": "v.txt"}}, tmp_path / "run", quiet=True)
        line = f"recipe: [data] vectors is for the tasks tag and label; this recipe is for {task}"
        assert str(caught.value) == line
    table = recipe(data, model={"fine_tune_vectors": True})
    del table["data"]["vectors"]
    with pytest.raises(RegardError) as caught:
        train(table, tmp_path / "run", quiet=True)
    assert str(caught.value) == (
        "model attentive-tagger: fine_tune_vectors requires pretrained vectors; pass --vectors FILE"
    )


@pytest.mark.slow
def test_the_command_and_a_recipe_beside_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    (tmp_path / "v.txt").write_text(FILE)
    short = ["--steps", "2", "--validate-every", "2", "--hidden", "4", "--device", "cpu"]
    assert main(["train", "names.bio", "--vectors", "v.txt", "--fine-tune-vectors", "--out", "run", *short]) == 0
    assert Run(Path("run")).read_recipe()["data"]["vectors"] == str(tmp_path / "v.txt")
    (tmp_path / "sub").mkdir()
    (tmp_path / "v.txt").rename("sub/v.txt")
    (tmp_path / "sub/ner.toml").write_text('[data]\ntrain = "names.bio"\nvectors = "v.txt"\n')
    assert main(["train", "sub/ner.toml", "--out", "other", *short]) == 0
    assert Run(Path("other")).read_recipe()["data"]["vectors"] == str(tmp_path / "sub/v.txt")
    capsys.readouterr()
    for command in (["predict", "run"], ["explain", "run", "mr ann one"], ["look", "run", "mr ann"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"mr ann one never\n")))
        assert main(command) == 0, capsys.readouterr().err
    assert main(["evaluate", "run", "--data", "names.bio"]) == 0
    capsys.readouterr()


def test_the_width_of_a_kernel_is_set_by_the_vectors(data, tmp_path):
    model = {"encoder": "embedding", "score": "gaussian", "char_encoder": "none"}
    widths = []
    for times in (1, 1000):
        path = tmp_path / f"{times}.txt"
        words = {word for line in (data / "one.tsv").read_text().splitlines() for word in line.split("\t")[0].split()}
        path.write_text("".join(f"{word} {times * len(word)} {times * ord(word[0])}\n" for word in sorted(words)))
        train(recipe(data, "label", path, model=model, training={"steps": 1}), tmp_path / f"run{times}", quiet=True)
        parameters = read_tensors(Run(tmp_path / f"run{times}").model_file)
        widths += [value.item() for name, value in parameters.items() if name.endswith("score.width")]
    small, large = widths
    assert large > 100 * small


def test_vectors_of_words_that_training_never_sees_do_not_decay(data, tmp_path):
    train(recipe(data, model={"fine_tune_vectors": True}), tmp_path / "run", quiet=True)
    assert all(torch.equal(each[3:], TABLE[3:]) for each in vectors_in(tmp_path / "run"))
    assert not all(torch.equal(each, TABLE) for each in vectors_in(tmp_path / "run"))


def test_vectors_may_have_moved_once_training_has_begun(data, tmp_path):
    train(recipe(data), tmp_path / "run", quiet=True)
    train(recipe(data, vectors=tmp_path / "gone.txt", training={"steps": 8}), tmp_path / "run", quiet=True)
    assert list_checkpoints(Run(tmp_path / "run"))[-1].step == 8


def test_a_checkpoint_of_other_parameters_is_one_line(data, tmp_path, monkeypatch):
    train(recipe(data), tmp_path / "run", quiet=True)
    real = Checkpoint.load_tensors
    monkeypatch.setattr(Checkpoint, "load_tensors", lambda *arguments: {**real(*arguments), "odd": torch.zeros(1)})
    with pytest.raises(RegardError) as caught:
        train(recipe(data, training={"steps": 8}), tmp_path / "run", quiet=True)
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: cannot resume: run was started by another version of regard "
        "(only the checkpoint has the parameter odd); choose another --out"
    )
