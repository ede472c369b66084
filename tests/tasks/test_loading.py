"""Load run folders, intact and damaged."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard import memory
from regard.card import format_card
from regard.errors import RegardError
from regard.models import Gpt, RecurrentLm
from regard.tasks.loading import load
from regard.tasks.pairs.predictor import PairPredictor
from regard.tasks.text.predictor import TextPredictor
from tests.signing import edit_card, sign


def test_a_run_of_pairs_predicts_and_one_of_text_writes(reverse_run, text_run, gpt_run):
    assert type(load(reverse_run)) is type(load(reverse_run)) is PairPredictor
    assert type(load(text_run)) is type(load(text_run)) is TextPredictor
    assert isinstance(load(text_run).model, RecurrentLm)
    assert isinstance(load(gpt_run).model, Gpt)
    assert regard.load(str(gpt_run)).generate("the ", max_tokens=3, seed=1).prompt == "the "


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_parameters_recipe_and_tokens_are_those_of_the_folder(name, request):
    run = request.getfixturevalue(name)
    model = load(run)
    expected = load_file(run / "model.safetensors")
    parameters = model.model.state_dict()
    assert parameters.keys() == expected.keys()
    assert all(torch.equal(parameters[name], expected[name]) for name in expected)
    assert not model.model.training
    assert model.card["task"] == "text"
    assert model.recipe.model["name"] == model.card["model"]
    assert model.tokenizer.size == model.card["vocabulary"]["target"]


def test_loading_draws_no_random_numbers_that_matter(gpt_run):
    one, other = load(gpt_run), load(gpt_run)
    assert one.score_texts("the cat").log_probabilities == other.score_texts("the cat").log_probabilities
    assert one.tokenizers.shared_vocab
    assert (other.recipe, other.card) == (one.recipe, one.card)


def test_a_run_of_an_unknown_task(reverse_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    edit_card(run, task="rank")
    with pytest.raises(RegardError) as caught:
        load(run)
    assert str(caught.value) == f"{run}/run.json: unknown task 'rank'; choose from tag, text, label, pairs"


def newer(content: bytes) -> bytes:
    card = json.loads(content)
    del card["card_sha256"]
    return format_card({**card, "format": 2, "regard": "9.9"})


RESTORE = "; to restore it, run regard train --out {run}"
CHECKSUM = "{run}/{name} is corrupt: its checksum differs from run.json" + RESTORE


def damaged(run: Path, folder: Path, name: str, change) -> Path:
    """A copy of a run of which one file was changed."""
    copy = folder / "run"
    shutil.copytree(run, copy)
    path = copy / name
    content = change(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    return copy


@pytest.mark.parametrize("kind", ["reverse_run", "gpt_run"])
@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("tokenizer.json", lambda content: content[:-9], CHECKSUM),
        ("tokenizer.json", lambda content: None, "{run}/{name} is missing" + RESTORE),
        ("model.safetensors", lambda content: content[:-9], CHECKSUM),
        ("model.safetensors", lambda content: None, "{run}/{name} is missing" + RESTORE),
        ("recipe.toml", lambda content: content.replace(b"24", b"25").replace(b"16", b"17"), CHECKSUM),
        (
            "run.json",
            newer,
            "{run}/{name}: format 2 was written by regard 9.9; "
            f"regard {regard.__version__} reads formats up to 1; upgrade regard",
        ),
        (
            "run.json",
            lambda content: content.replace(b'"format": 1', b'"format": 2'),
            "{run}/run.json was damaged or edited: its checksum differs from card_sha256" + RESTORE,
        ),
        ("run.json", lambda content: content[:-9], "{run}/run.json is corrupt: {json}" + RESTORE),
        ("run.json", lambda content: None, "{run} is not a run folder: run.json is missing" + RESTORE),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(kind, tmp_path, name, change, line, request):
    run = damaged(request.getfixturevalue(kind), tmp_path, name, change)
    with pytest.raises(RegardError) as caught:
        load(run)
    if "{json}" in line:
        assert str(caught.value).startswith(line.partition("{json}")[0].format(run=run))
        assert str(caught.value).endswith(RESTORE.format(run=run))
    else:
        assert str(caught.value) == line.format(run=run, name=name)


NO_NAME = "{run}/recipe.toml: missing name in [model]"
MISMATCH = "{run}/model.safetensors does not match recipe.toml: parameters differ"


@pytest.mark.parametrize(
    ("kind", "old", "new", "line"),
    [
        ("reverse_run", b'name = "bahdanau"', b"", NO_NAME),
        ("reverse_run", b"hidden = 24", b"hidden = 24000", MISMATCH),
        (
            "reverse_run",
            b"hidden = 24",
            b"hidden = 9000000000000000000",
            "{run}/recipe.toml: [model] hidden must be at most 100,000, got 9,000,000,000,000,000,000",
        ),
        (
            "reverse_run",
            b"hidden = 24",
            b'hidden = "24"',
            '{run}/recipe.toml: [model] hidden: expected an integer, got "24"',
        ),
        ("gpt_run", b'name = "gpt"', b"", NO_NAME),
        ("gpt_run", b"width = 16", b"width = 16000", MISMATCH),
        (
            "gpt_run",
            b"layers = 2",
            b'layers = "2"',
            '{run}/recipe.toml: [model] layers: expected an integer, got "2"',
        ),
    ],
)
def test_a_recipe_that_is_not_that_of_the_model_is_refused_in_one_line(kind, tmp_path, old, new, line, request):
    run = damaged(request.getfixturevalue(kind), tmp_path, "recipe.toml", lambda content: content.replace(old, new))
    sign(run, "recipe.toml")
    with pytest.raises(RegardError) as caught:
        load(run)
    assert str(caught.value) == line.format(run=run)


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RegardError) as caught:
        load(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path}/none: not found; expected a run folder created by regard train"


def test_a_model_that_does_not_fit_into_memory_is_refused(gpt_run, monkeypatch):
    monkeypatch.setattr(memory, "get_available_memory", lambda device: 0)
    with pytest.raises(RegardError) as caught:
        load(gpt_run)
    assert str(caught.value) == (
        "model needs about 0.0 GB for parameters; 0.0 GB of memory are available; close other programs"
    )
