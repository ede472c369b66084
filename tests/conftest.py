import os
import shutil
import signal
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import portalocker
import pytest
import torch
from hypothesis import settings

from regard.api import train
from tests.chromium import tell_skipped
from tests.tiny_labels import TASKS, train_all

Share = Callable[[str, Callable[[Path], object]], Path]

settings.register_profile("regard", deadline=None, derandomize=True)  # a slow machine fails no test, and a run repeats
settings.load_profile("regard")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it runs in the background ignore it

torch.set_num_threads(1)  # the tests run side by side, one on each core
os.environ["OMP_NUM_THREADS"] = "1"  # and so do the processes that tests start

REVERSE: dict[str, Any] = {
    "data": {"train": "reverse", "corpus_size": 250, "corpus": {"min_length": 2, "max_length": 4, "alphabet": "abcd"}},
    "model": {"name": "bahdanau", "hidden": 24, "embedding": 24, "dropout": 0.0},
    "training": {"steps": 200, "batch_tokens": 300, "learning_rate": 0.01, "validate_every": 100},
}
ONE_STEP = {"steps": 1, "batch_tokens": 100, "validate_every": 1}
TEXTS = [
    "The cats sleep",
    "dogs do not sleep",
    "cats do not like dogs",
    "the dogs like cats",
    "birds sing",
    "Cats sing",
]

LINES = ["the cat sees the dog", "the dog sees a bird", "a bird sings", "the cat sleeps", "a dog sleeps, the cat sings"]
SHORT = {"steps": 40, "batch_tokens": 200, "learning_rate": 0.02, "validate_every": 20}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What opens a page in a browser is slow."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in tell_skipped(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture(scope="session")
def share(tmp_path_factory) -> Share:
    """What gives a folder, made and filled by the first of all processes of a test run that asks for it."""
    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def shared(name: str, fill: Callable[[Path], object]) -> Path:
        folder, full = common / name, common / f"{name}.full"
        with (common / f"{name}.lock").open("w") as lock:
            portalocker.lock(lock, portalocker.LOCK_EX)
            if not full.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of one that failed
                folder.mkdir()
                fill(folder)
                full.touch()
        return folder

    return shared


SMALL_GPT = {"width": 16, "heads": 2, "context_length": 64}
CORPUS_RUNS: dict[str, dict[str, Any]] = {
    "acts": {"data": {"corpus_size": 2000}, "training": {"steps": 150, "learning_rate": 0.01}},
    "terms": {"training": ONE_STEP},
    "entities": {"model": {"hidden": 8, "attention_heads": 2, "crf": False}, "training": ONE_STEP},
    "agreement": {
        "data": {"corpus": {"max_distance": 4}},
        "model": SMALL_GPT,
        "training": ONE_STEP,
    },
    "coreference": {
        "model": SMALL_GPT,
        "text": {"tokenizer": "bpe"},
        "training": ONE_STEP,
    },
}
"""Settings of short runs on built-in corpora of the tasks label, tag and text; only acts is learned."""


@pytest.fixture(scope="session")
def corpus_runs(share) -> dict[str, Path]:
    """Runs on the built-in corpora of the tasks label, tag and text."""

    def fill(folder: Path) -> None:
        for name, recipe in CORPUS_RUNS.items():
            data = {"corpus_size": 200, **recipe.get("data", {}), "train": name}
            train({**recipe, "data": data}, folder / name, quiet=True)

    folder = share("corpora", fill)
    return {name: folder / name for name in CORPUS_RUNS}


@pytest.fixture(scope="session")
def reverse_run(share) -> Path:
    """A model with attention that has learned to reverse two to four letters."""
    return share("reverse", lambda folder: train(REVERSE, folder / "reverse", quiet=True)) / "reverse"


@pytest.fixture(scope="session")
def transformer_run(share) -> Path:
    """A Transformer of two decoder layers with two heads each, hardly trained."""
    sizes = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    recipe = {**REVERSE, "model": {"name": "transformer", **sizes}, "training": ONE_STEP}
    return share("transformer", lambda folder: train(recipe, folder / "transformer", quiet=True)) / "transformer"


@pytest.fixture(scope="session")
def subword_run(share) -> Path:
    """A model of subwords of lower-cased text, hardly trained."""

    def fill(folder: Path) -> None:
        pairs = "".join(f"{text}\t{' '.join(reversed(text.split()))}\n" for text in TEXTS)
        (folder / "pairs.tsv").write_text(pairs)
        recipe = {
            "data": {"train": str(folder / "pairs.tsv"), "validation_share": 0.2},
            "text": {"source_tokenizer": "bpe", "target_tokenizer": "bpe", "vocab_size": 280, "lowercase": True},
            "model": {"name": "luong-dot", "hidden": 8, "embedding": 8},
        }
        train({**recipe, "training": ONE_STEP}, folder / "subwords", quiet=True)

    return share("subwords", fill) / "subwords"


@pytest.fixture(scope="session")
def plain_run(share) -> Path:
    """A model without attention, of characters, hardly trained."""
    model = {"name": "seq2seq", "hidden": 8, "embedding": 8}
    text = {"source_tokenizer": "characters", "target_tokenizer": "characters"}
    recipe = {**REVERSE, "text": text, "model": model, "training": ONE_STEP}
    return share("plain", lambda folder: train(recipe, folder / "plain", quiet=True)) / "plain"


@pytest.fixture(scope="session")
def letters_run(share) -> Path:
    """A model from letters to phones, one phone for each letter and single words as sources, hardly trained."""

    def fill(folder: Path) -> None:
        words = ["".join(letters) for letters in product("abc", "de", "abc", "def")]
        (folder / "letters.tsv").write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in words))
        recipe = {
            "data": {"train": str(folder / "letters.tsv"), "validation_share": 0.2},
            "text": {"source_tokenizer": "characters", "target_tokenizer": "words"},
            "model": {"name": "luong-dot", "hidden": 8, "embedding": 8},
        }
        train({**recipe, "training": ONE_STEP}, folder / "letters", quiet=True)

    return share("letters", fill) / "letters"


@pytest.fixture(scope="session")
def text_run(share) -> Path:
    """A recurrent language model of words, trained on lines as documents."""

    def fill(folder: Path) -> None:
        (folder / "lines.txt").write_text("\n".join(LINES * 8))
        recipe = {
            "data": {"train": str(folder / "lines.txt"), "documents": "line"},
            "text": {"tokenizer": "words"},
            "model": {"name": "gru-lm", "hidden": 12, "embedding": 12, "dropout": 0.0},
        }
        train({**recipe, "training": {**SHORT, "segment_length": 8}}, folder / "text", quiet=True)

    return share("text", fill) / "text"


@pytest.fixture(scope="session")
def gpt_run(share) -> Path:
    """A GPT of characters that reads 16 at once, two layers with two heads each, trained on one long document."""

    def fill(folder: Path) -> None:
        (folder / "book.txt").write_text("\n".join(LINES * 8))
        recipe = {
            "data": {"train": str(folder / "book.txt")},
            "text": {"tokenizer": "characters"},
            "model": {"name": "gpt", "width": 16, "heads": 2, "layers": 2, "context_length": 16},
        }
        train({**recipe, "training": SHORT}, folder / "gpt", quiet=True)

    return share("gpt", fill) / "gpt"


@pytest.fixture(scope="session")
def label_runs(share) -> dict[str, Path]:
    """Classifiers and taggers that have learned what decides, by name; their data lie beside them."""
    folder = share("labels", train_all)
    return {name: folder / name for name in TASKS}
