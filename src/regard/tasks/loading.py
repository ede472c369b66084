"""Load a run: from its folder to a predictor of its task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.run import Run
from regard.tasks import TASKS, to_recipe
from regard.tasks.base import Task

if TYPE_CHECKING:
    import torch

    from regard.recipe import Recipe
    from regard.tasks.actions import Invocation
    from regard.tasks.predictor import Predictor


def load(path: str | Path, device: str | torch.device = "cpu") -> Any:
    """The trained model of a run folder, as what it can do: answer, write on, label or tag.

    Example:
        >>> regard.load("runs/dates").predict("vendredi 3 mars 2017").text
        '2017-03-03'
        >>> regard.load("runs/book").generate("The ", tokens=20, seed=1).text
        'night was dark, and no'
    """
    import torch

    from regard.recipe import build_model

    run = Run(Path(path))
    task, card, recipe = task_of_run(run.path), run.read_card(), read_recipe(run)
    tokenizers = task.load_tokenizers(run)
    parameters = run.read_parameters()
    with torch.device("meta"):  # without memory, which wrong sizes might ask too much of
        described = build_model(recipe, tokenizers).state_dict()
    if {n: t.shape for n, t in parameters.items()} != {n: t.shape for n, t in described.items()}:
        raise RegardError(f"{run.model_file}: does not hold the parameters that recipe.toml describes")
    model = build_model(recipe, tokenizers)
    model.load_state_dict(parameters)
    return task.predictor_class()(model, tokenizers, recipe, card, str(device))


def read_recipe(run: Run) -> Recipe:
    """The recipe of a run, which names its model."""
    recipe = to_recipe(run.read_recipe(), str(run.recipe_file))
    if "name" not in recipe.model:
        raise RegardError(f"{run.recipe_file}: [model] has no name; restore the file from a copy")
    return recipe


def load_like(predictor: Predictor[Any], path: Path, given: Invocation) -> Any:
    """Load another run, which must be of the same task as one that is loaded."""
    other = task_of_run(path)
    if other.name != predictor.task_name:
        raise RegardError(f"{path}: {other.does}, where {given.run} {predictor.task.does}; give a run of the same task")
    return load(path, given.device)


def task_of_run(path: Path) -> Task:
    """The task of a run."""
    run = Run(path)
    name = run.read_card().get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise RegardError(f"{run.card_file}: has the task {name!r}; there are: {', '.join(TASKS)}")
    return TASKS[name]
