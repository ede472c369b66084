"""What `regard.load` does: from a run folder to a model that works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.errors import RegardError
from regard.label_predictor import LabelPredictor, TagPredictor
from regard.predictor import Predictor
from regard.recipe import Recipe, build_model
from regard.run import Card, Run
from regard.tasks import task_of, to_recipe
from regard.text_predictor import TextPredictor

if TYPE_CHECKING:
    from regard.models import Model

AnyPredictor = Predictor | TextPredictor | LabelPredictor | TagPredictor


def load(path: str | Path, device: str | torch.device = "cpu") -> AnyPredictor:
    """The trained model of a run folder, as what it can do: answer, write on, label or tag.

    Example:
        >>> regard.load("runs/dates").predict("vendredi 3 mars 2017").text
        '2017-03-03'
        >>> regard.load("runs/book").generate("The ", tokens=20, seed=1).text
        'night was dark, and no'
    """
    model, tokenizers, recipe, card = read_run(Run(Path(path)))
    predictor: Any = task_of(recipe.table()).predictor(model, tokenizers, recipe, card, str(device))
    return predictor


def load_pairs(path: str | Path, device: str | torch.device = "cpu") -> Predictor:
    """A model that answers a source by a target, for commands that need one."""
    found = load(path, device)
    if isinstance(found, TextPredictor):
        raise RegardError(f"{path}: is a language model ({found.name}), which has no targets; see regard generate")
    if not isinstance(found, Predictor):
        raise RegardError(f"{path}: is of the model {found.name}, which has no targets; see regard predict")
    return found


def load_text(path: str | Path, device: str | torch.device = "cpu") -> TextPredictor:
    """A language model, for commands that need one."""
    found = load(path, device)
    if not isinstance(found, TextPredictor):
        raise RegardError(f"{path}: is no language model but {found.name}; see regard predict")
    return found


def load_labels(path: str | Path, device: str | torch.device = "cpu") -> LabelPredictor:
    """A classifier, for commands that need one."""
    found = load(path, device)
    if not isinstance(found, LabelPredictor):
        raise RegardError(f"{path}: is no classifier but {found.name}")
    return found


def load_tags(path: str | Path, device: str | torch.device = "cpu") -> TagPredictor:
    """A tagger, for commands that need one."""
    found = load(path, device)
    if not isinstance(found, TagPredictor):
        raise RegardError(f"{path}: is no tagger but {found.name}")
    return found


def read_run(run: Run) -> tuple[Model, Any, Recipe, Card]:
    """The model of a run with its parameters, its tokenizers, its recipe and its card."""
    card = run.read_card()
    recipe = to_recipe(run.read_recipe(), str(run.recipe_file))
    if "name" not in recipe.model:
        raise RegardError(f"{run.recipe_file}: [model] has no name; restore the file from a copy")
    tokenizers = task_of(recipe.table()).load_tokenizers(run)
    parameters = run.read_parameters()
    with torch.device("meta"):  # without memory, which wrong sizes might ask too much of
        described = build_model(recipe, tokenizers).state_dict()
    if {n: t.shape for n, t in parameters.items()} != {n: t.shape for n, t in described.items()}:
        raise RegardError(f"{run.model_file}: does not hold the parameters that recipe.toml describes")
    model = build_model(recipe, tokenizers)
    model.load_state_dict(parameters)
    return model, tokenizers, recipe, card
