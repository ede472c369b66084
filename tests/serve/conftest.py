"""Models of every kind, loaded once and served."""

import pytest

from regard.api import train
from regard.serve.served_models import start_model
from regard.serve.settings import ServeSettings
from regard.tasks.loading import load
from tests.serve.running import running

ONE_STEP = {"steps": 1, "batch_tokens": 100, "validate_every": 1}
SMALL = {"embedding": 6, "hidden": 4, "char_width": 4}
TEXTS = [
    ("who wrote this", "she", "person"),
    ("where is the town", "here", "place"),
    ("who is she", "a man", "person"),
    ("where is he", "there", "place"),
]
SENTENCES = [("Ann B-P", "sees O", "Bob B-P"), ("a O", "man O", "sees O", "Ann B-P")]


@pytest.fixture(scope="session")
def hardly_trained(tmp_path_factory):
    """A classifier, one of pairs of texts, and a tagger."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "label.tsv").write_text("".join(f"{text}\t{label}\n" for text, _, label in TEXTS * 5))
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{other}\t{label}\n" for text, other, label in TEXTS * 5))
    (folder / "tag.bio").write_text("\n\n".join("\n".join(lines) for lines in SENTENCES * 5) + "\n")
    tasks = {
        "label": ({"train": "label.tsv", "task": "label"}, "attentive-classifier"),
        "label-pairs": ({"train": "pairs.tsv", "task": "label", "columns": ["1", "3", "2"]}, "attentive-classifier"),
        "tag": ({"train": "tag.bio", "task": "tag"}, "attentive-tagger"),
    }
    for name, (data, model) in tasks.items():
        data = {**data, "train": str(folder / str(data["train"])), "validation_share": 0.2}
        recipe = {"data": data, "model": {"name": model, **SMALL}, "training": ONE_STEP}
        train(recipe, folder / name, quiet=True)
    return {name: folder / name for name in tasks}


@pytest.fixture(scope="session")
def predictors(reverse_run, transformer_run, plain_run, gpt_run, text_run, hardly_trained):
    """Every kind of model, by the name it is served under."""
    runs = {"reverse": reverse_run, "transformer": transformer_run, "plain": plain_run, "gpt": gpt_run}
    runs |= {"text": text_run, **hardly_trained}
    return {name: load(run) for name, run in runs.items()}


@pytest.fixture(scope="session")
def models(predictors):
    models = {name: start_model(name, model, ServeSettings()) for name, model in predictors.items()}
    yield models
    for model in models.values():
        model.worker.stop(5)


@pytest.fixture(scope="session")
def client(models):
    with running(models) as client:
        yield client
