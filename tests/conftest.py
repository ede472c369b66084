import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from regard.api import train
from tests.tiny_labels import train_all

settings.register_profile("regard", deadline=None, derandomize=True)  # a slow machine fails no test, and a run repeats
settings.load_profile("regard")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it runs in the background ignore it

torch.set_num_threads(1)  # the tests run side by side, one on each core

REVERSE: dict[str, Any] = {
    "data": {"train": "reverse", "count": 250, "corpus": {"shortest": 2, "longest": 4, "alphabet": "abcd"}},
    "model": {"name": "bahdanau", "hidden": 24, "embedding": 24, "dropout": 0.0},
    "training": {"steps": 200, "tokens": 300, "rate": 0.01, "validate_every": 100},
}
ONE_STEP = {"steps": 1, "tokens": 100, "validate_every": 1}
TEXTS = [
    "The cats sleep",
    "dogs do not sleep",
    "cats do not like dogs",
    "the dogs like cats",
    "birds sing",
    "Cats sing",
]

LINES = ["the cat sees the dog", "the dog sees a bird", "a bird sings", "the cat sleeps", "a dog sleeps, the cat sings"]
SHORT = {"steps": 40, "tokens": 200, "rate": 0.02, "validate_every": 20}


@pytest.fixture(scope="session")
def reverse_run(tmp_path_factory) -> Path:
    """A model with attention that has learnt to reverse two to four letters."""
    run = tmp_path_factory.mktemp("runs") / "reverse"
    train(REVERSE, run, quiet=True)
    return run


@pytest.fixture(scope="session")
def transformer_run(tmp_path_factory) -> Path:
    """A Transformer of two decoder layers with two heads each, hardly trained."""
    run = tmp_path_factory.mktemp("runs") / "transformer"
    sizes = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    train({**REVERSE, "model": {"name": "transformer", **sizes}, "training": ONE_STEP}, run, quiet=True)
    return run


@pytest.fixture(scope="session")
def subword_run(tmp_path_factory) -> Path:
    """A model of subwords of lower-cased text, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    pairs = "".join(f"{text}\t{' '.join(reversed(text.split()))}\n" for text in TEXTS)
    (folder / "pairs.tsv").write_text(pairs)
    recipe = {
        "data": {"train": str(folder / "pairs.tsv"), "held_out": 0.2},
        "text": {"source_kind": "bpe", "target_kind": "bpe", "size": 280, "lowercase": True},
        "model": {"name": "luong-dot", "hidden": 8, "embedding": 8},
    }
    train({**recipe, "training": ONE_STEP}, folder / "subwords", quiet=True)
    return folder / "subwords"


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory) -> Path:
    """A model without attention, of characters, hardly trained."""
    run = tmp_path_factory.mktemp("runs") / "plain"
    model = {"name": "seq2seq", "hidden": 8, "embedding": 8}
    text = {"source_kind": "characters", "target_kind": "characters"}
    train({**REVERSE, "text": text, "model": model, "training": ONE_STEP}, run, quiet=True)
    return run


@pytest.fixture(scope="session")
def text_run(tmp_path_factory) -> Path:
    """A recurrent language model of words, trained on lines as documents."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "lines.txt").write_text("\n".join(LINES * 8))
    recipe = {
        "data": {"train": str(folder / "lines.txt"), "documents": "line"},
        "text": {"kind": "words"},
        "model": {"name": "gru-lm", "hidden": 12, "embedding": 12, "dropout": 0.0},
    }
    train({**recipe, "training": {**SHORT, "segment": 8}}, folder / "text", quiet=True)
    return folder / "text"


@pytest.fixture(scope="session")
def gpt_run(tmp_path_factory) -> Path:
    """A GPT of characters that reads 16 at once, two layers with two heads each, trained on one long document."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "book.txt").write_text("\n".join(LINES * 8))
    recipe = {
        "data": {"train": str(folder / "book.txt")},
        "text": {"kind": "characters"},
        "model": {"name": "gpt", "width": 16, "heads": 2, "layers": 2, "longest": 16},
    }
    train({**recipe, "training": SHORT}, folder / "gpt", quiet=True)
    return folder / "gpt"


@pytest.fixture(scope="session")
def label_runs(tmp_path_factory) -> dict[str, Path]:
    """Classifiers and taggers that have learnt what decides, by name; their data lie beside them."""
    return train_all(tmp_path_factory.mktemp("labels"))
