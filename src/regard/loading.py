"""What `regard.load` does: from a run folder to a model that works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.errors import RegardError
from regard.models import LanguageModel
from regard.predictor import Predictor
from regard.recipe import Recipe, build_model, to_recipe
from regard.run import Card, Run
from regard.text import Tokenizers
from regard.text_predictor import TextPredictor

if TYPE_CHECKING:
    from regard.models import Seq2Seq


def load(path: str | Path, device: str | torch.device = "cpu") -> Predictor | TextPredictor:
    """The trained model of a run folder: one that predicts targets, or a language model.

    Example:
        >>> regard.load("runs/dates").predict("vendredi 3 mars 2017").text
        '2017-03-03'
        >>> regard.load("runs/book").generate("The ", tokens=20, seed=1).text
        'night was dark, and no'
    """
    model, tokenizers, recipe, card = read_run(Run(Path(path)))
    if isinstance(model, LanguageModel):
        return TextPredictor(model, tokenizers, recipe, card, device)
    return Predictor(model, tokenizers, recipe, card, device)


def load_pairs(path: str | Path, device: str | torch.device = "cpu") -> Predictor:
    """A model that answers a source by a target, for commands that need one."""
    found = load(path, device)
    if isinstance(found, TextPredictor):
        raise RegardError(f"{path}: is a language model ({found.name}), which has no targets; see regard generate")
    return found


def load_text(path: str | Path, device: str | torch.device = "cpu") -> TextPredictor:
    """A language model, for commands that need one."""
    found = load(path, device)
    if isinstance(found, Predictor):
        raise RegardError(f"{path}: is no language model but {found.name}, which answers a source; see regard predict")
    return found


def read_run(run: Run) -> tuple[Seq2Seq | LanguageModel, Tokenizers, Recipe, Card]:
    """The model of a run with its parameters, its tokenizers, its recipe and its card."""
    card = run.read_card()
    recipe = to_recipe(run.read_recipe(), str(run.recipe_file))
    if "name" not in recipe.model:
        raise RegardError(f"{run.recipe_file}: [model] has no name; restore the file from a copy")
    run.check(run.tokenizer_file)
    tokenizers = Tokenizers.load(run.tokenizer_file)
    parameters = run.read_parameters()
    with torch.device("meta"):  # without memory, which wrong sizes might ask too much of
        described = build_model(recipe, tokenizers).state_dict()
    if {n: t.shape for n, t in parameters.items()} != {n: t.shape for n, t in described.items()}:
        raise RegardError(f"{run.model_file}: does not hold the parameters that recipe.toml describes")
    model = build_model(recipe, tokenizers)
    model.load_state_dict(parameters)
    return model, tokenizers, recipe, card
