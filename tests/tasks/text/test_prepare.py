"""Training on text, through the real loop."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import train
from regard.checkpoint import list_checkpoints
from regard.errors import RegardError
from regard.files import read_tensors
from regard.run import Run
from regard.tasks.loading import load

WORDS = ["one", "two", "three", "four", "five"]
SMALL = {"steps": 12, "batch_tokens": 96, "validate_every": 4, "seed": 3}
MODELS: dict[str, dict[str, Any]] = {
    "neural-lm": {"hidden": 8, "embedding": 8},
    "rnn-lm": {"hidden": 8, "embedding": 8},
    "gru-lm": {"hidden": 8, "embedding": 8},
    "lstm-lm": {"hidden": 8, "embedding": 8, "layers": 2, "weight_dropout": 0.2},
    "attentive-lm": {"hidden": 8, "embedding": 8, "window": 10},
    "gpt": {"width": 8, "heads": 2, "layers": 1, "context_length": 16},
}


@pytest.fixture
def book(tmp_path):
    random.seed(5)
    path = tmp_path / "book.txt"
    path.write_text("\n".join(" ".join(random.choices(WORDS, k=6)) for _ in range(60)))
    return path


def recipe(book: Path, name: str, **training: object) -> dict[str, Any]:
    segment = {} if name == "gpt" else {"segment_length": 12}
    model: dict[str, Any] = {"name": name, **MODELS[name]}
    return {"data": {"train": str(book)}, "model": model, "training": {**SMALL, **segment, **training}}


def stopped(monkeypatch, after: int) -> None:
    """Let the loop be interrupted behind an update."""
    from regard.training.loop import Trainer

    real = Trainer.update

    def update(self: Trainer) -> None:
        real(self)
        if self.counters.step == after:
            signal_stop(self)

    def signal_stop(self: Trainer) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "update", update)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(name, book, tmp_path, monkeypatch):
    train(recipe(book, name), tmp_path / "whole", quiet=True)
    with monkeypatch.context() as patch:
        stopped(patch, after=6)  # between validations, in the middle of the text
        with pytest.raises(KeyboardInterrupt):
            train(recipe(book, name), tmp_path / "parts", quiet=True)
    assert list_checkpoints(Run(tmp_path / "parts"))[-1].step == 6
    train(recipe(book, name), tmp_path / "parts", quiet=True)
    for resumed, whole in zip(*(list_checkpoints(Run(tmp_path / run)) for run in ("parts", "whole")), strict=True):
        assert whole.list_parts() == [*(["memory"] if name != "gpt" else []), "model", "optimizer"]
        for part in whole.list_parts():
            tensors, expected = resumed.load_tensors(part), whole.load_tensors(part)
            assert tensors.keys() == expected.keys()
            assert all(torch.equal(tensors[key], expected[key]) for key in expected), part
    best = [read_tensors(Run(tmp_path / run).model_file) for run in ("parts", "whole")]
    assert all(torch.equal(best[0][key], best[1][key]) for key in best[1])
    assert [{**line, "seconds": 0} for line in Run(tmp_path / "parts").read_metrics()] == [
        {**line, "seconds": 0} for line in Run(tmp_path / "whole").read_metrics()
    ]


def test_the_valid_loss_is_that_of_every_held_out_token(book, tmp_path):
    valid = tmp_path / "valid.txt"
    valid.write_text("one two three\nfour")
    table = recipe(book, "gru-lm")
    table["data"]["validation"] = str(valid)
    train(table, tmp_path / "run", quiet=True)
    model = load(tmp_path / "run")
    best = model.card["best"]["value"]
    ids = torch.tensor([[2, *model.tokenizer.encode(valid.read_text()), 3]])
    with torch.no_grad():
        logits, _ = model.model(ids[:, :-1])
    expected = torch.nn.functional.cross_entropy(logits[0].double(), ids[0, 1:])
    assert best == pytest.approx(expected.item(), rel=1e-5)
    line = next(line for line in Run(tmp_path / "run").read_metrics() if line["step"] == model.card["best"]["step"])
    assert line["valid_perplexity"] == pytest.approx(math.exp(best))


def test_a_model_learns_what_follows_what(tmp_path):
    path = tmp_path / "count.txt"
    path.write_text("\n".join(["one two three four five"] * 200))
    data = {"train": str(path), "documents": "line"}
    training = {"steps": 150, "batch_tokens": 96, "segment_length": 12, "validate_every": 50, "learning_rate": 0.02}
    model = {"name": "gru-lm", "hidden": 16, "embedding": 16, "dropout": 0.0}
    train(
        {"data": data, "text": {"tokenizer": "words"}, "model": model, "training": training},
        tmp_path / "run",
        quiet=True,
    )
    text = load(tmp_path / "run").generate("one two", greedy=True)
    assert (text.text, text.ended) == (" three four five", True)


@pytest.mark.parametrize(
    ("section", "settings", "line"),
    [
        ("data", {"source": "a"}, "recipe: [data] source is for the task pairs; this recipe is for text"),
        ("data", {"validation": "-"}, "data: text cannot be read from stdin (-); save it to a file"),
        (
            "data",
            {"max_tokens": 9},
            "recipe: [data] max_tokens is for the tasks label and pairs; this recipe is for text",
        ),
        ("data", {"validation_share": 0.0}, "recipe: [data] validation_share must be above 0 and below 1, got 0.0"),
        ("text", {"bpe_dropout": 0.1}, "recipe: [text] bpe_dropout is for the task pairs; this recipe is for text"),
        ("training", {"metric": "bleu"}, "training.metric must be loss for the task text, got bleu"),
    ],
)
def test_what_is_for_pairs_is_refused(section, settings, line, book, tmp_path):
    table = recipe(book, "gru-lm")
    table[section] = {**table.get(section, {}), **settings}
    with pytest.raises(RegardError) as error:
        train(table, tmp_path / "run", quiet=True)
    assert str(error.value) == line
    assert not (tmp_path / "run").exists()


def test_another_text_is_not_gone_on_with(book, tmp_path):
    train(recipe(book, "gru-lm"), tmp_path / "run", quiet=True)
    book.write_text(book.read_text() + "\nsix")
    with pytest.raises(RegardError, match=r"is not the text that .*run was started with; choose another --out$"):
        train(recipe(book, "gru-lm", steps=20), tmp_path / "run", quiet=True)


def test_a_folder_of_text_needs_no_model_named(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("some words and more words " * 30)
    train({"data": {"train": str(folder)}, "training": {"steps": 2, "validate_every": 1}}, tmp_path / "run", quiet=True)
    card = Run(tmp_path / "run").read_card()
    assert (card["task"], card["model"]) == ("text", "lstm-lm")


def test_tuning_takes_over_tokens_and_parameters(book, tmp_path):
    train(recipe(book, "gpt"), tmp_path / "run", quiet=True)
    other = tmp_path / "other.txt"
    other.write_text("five four three two one\n" * 20)
    table = {
        "data": {"train": str(other)},
        "training": {**SMALL, "steps": 1, "validate_every": 1, "learning_rate": 1e-9},
    }
    train(table, tmp_path / "tuned", base=tmp_path / "run", quiet=True)
    before, after = (read_tensors(Run(tmp_path / run).model_file) for run in ("run", "tuned"))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


@pytest.mark.parametrize(("name", "noted"), [("pairs.tsv", True), ("book.txt", False)])
def test_a_table_that_is_read_as_plain_text_is_noted(tmp_path, name, noted, capsys):
    path = tmp_path / name
    path.write_text("one two\tthree four\n" * 30)
    train(recipe(path, "gpt", steps=1), tmp_path / "run")
    note = f"note: {path} is read as plain text, tabs or commas included; for pairs, choose another --model\n"
    assert (note in capsys.readouterr().err) == noted
