"""From a run folder to what works with it, and what is said of one that is damaged."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.errors import RegardError
from regard.models import Gpt, RecurrentLm
from regard.tasks.loading import load
from regard.tasks.pairs.predictor import PairPredictor
from regard.tasks.text.predictor import TextPredictor


def test_a_run_of_pairs_predicts_and_one_of_text_writes(reverse_run, text_run, gpt_run):
    assert type(load(reverse_run)) is type(load(reverse_run)) is PairPredictor
    assert type(load(text_run)) is type(load(text_run)) is TextPredictor
    assert isinstance(load(text_run).model, RecurrentLm)
    assert isinstance(load(gpt_run).model, Gpt)
    assert regard.load(str(gpt_run)).generate("the ", tokens=3, seed=1).prompt == "the "


@pytest.mark.parametrize("name", ["text_run", "gpt_run"])
def test_parameters_recipe_and_tokens_are_those_of_the_folder(name, request):
    run = request.getfixturevalue(name)
    found = load(run)
    wanted = load_file(run / "model.safetensors")
    parameters = found.model.state_dict()
    assert parameters.keys() == wanted.keys()
    assert all(torch.equal(parameters[each], wanted[each]) for each in wanted)
    assert not found.model.training
    assert found.card["task"] == "text"
    assert found.recipe.model["name"] == found.card["model"]
    assert found.tokenizer.size == found.card["vocabulary"]["target"]


def test_loading_draws_no_random_numbers_that_matter(gpt_run):
    one, other = load(gpt_run), load(gpt_run)
    assert one.read("the cat").log_probabilities == other.read("the cat").log_probabilities
    assert one.tokenizers.joint
    assert (other.recipe, other.card) == (one.recipe, one.card)


def test_a_run_of_an_unknown_task(reverse_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    card = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**card, "task": "rank"}))
    with pytest.raises(RegardError) as caught:
        load(run)
    assert str(caught.value) == f"{run}/run.json: has the task 'rank'; there are: tag, text, label, pairs"


def newer(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "format": 2, "regard": "9.9"}).encode()


CHECKSUM = "{run}/{name}: is not the file that was written (its checksum differs); restore it from a copy"


def damaged(run: Path, folder: Path, name: str, change) -> Path:
    """A copy of a run of which one file was changed."""
    copy = folder / "run"
    shutil.copytree(run, copy)
    path = copy / name
    found = change(path.read_bytes())
    path.unlink() if found is None else path.write_bytes(found)
    return copy


@pytest.mark.parametrize("kind", ["reverse_run", "gpt_run"])
@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("tokenizer.json", lambda content: content[:-9], CHECKSUM),
        ("tokenizer.json", lambda content: None, "{run}/{name}: cannot be read: No such file or directory"),
        ("model.safetensors", lambda content: content[:-9], CHECKSUM),
        (
            "model.safetensors",
            lambda content: None,
            "{run}: has no model.safetensors yet; train it until its first validation",
        ),
        (
            "recipe.toml",
            lambda content: b"\xff" + content,
            "{run}/{name}: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte; "
            "a TOML file is needed",
        ),
        (
            "run.json",
            newer,
            "{run}/{name}: has the format 2, made by regard 9.9; "
            f"this regard {regard.__version__} reads up to 1: install a newer one",
        ),
        ("run.json", lambda content: None, "{run}: is no run; there is no run.json in it"),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(kind, tmp_path, name, change, line, request):
    run = damaged(request.getfixturevalue(kind), tmp_path, name, change)
    with pytest.raises(RegardError) as caught:
        load(run)
    assert str(caught.value) == line.format(run=run, name=name)


NO_NAME = "{run}/recipe.toml: [model] has no name; restore the file from a copy"
NOT_DESCRIBED = "{run}/model.safetensors: does not hold the parameters that recipe.toml describes"


@pytest.mark.parametrize(
    ("kind", "old", "new", "line"),
    [
        ("reverse_run", b'name = "bahdanau"', b"", NO_NAME),
        ("reverse_run", b"hidden = 24", b"hidden = 2400000", NOT_DESCRIBED),
        (
            "reverse_run",
            b"hidden = 24",
            b'hidden = "24"',
            '{run}/recipe.toml: [model] hidden is "24"; a whole number is needed',
        ),
        ("gpt_run", b'name = "gpt"', b"", NO_NAME),
        ("gpt_run", b"width = 16", b"width = 160000", NOT_DESCRIBED),
        (
            "gpt_run",
            b"layers = 2",
            b'layers = "2"',
            '{run}/recipe.toml: [model] layers is "2"; a whole number is needed',
        ),
    ],
)
def test_a_recipe_that_is_not_that_of_the_model_is_refused_in_one_line(kind, tmp_path, old, new, line, request):
    run = damaged(request.getfixturevalue(kind), tmp_path, "recipe.toml", lambda content: content.replace(old, new))
    with pytest.raises(RegardError) as caught:
        load(run)
    assert str(caught.value) == line.format(run=run)


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RegardError) as caught:
        load(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path}/none: there is no such folder; a run made by regard train is needed"
