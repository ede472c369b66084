"""Load a run folder as a predictor of its task."""

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
    """Load a trained model from a run folder.

    Args:
        path: The run folder, as created by `regard train` or `regard.train`.
        device: The device to load the model on.

    Returns:
        The predictor for the task of the run: `PairPredictor`, `TextPredictor`, `LabelPredictor` or `TagPredictor`.

    Raises:
        RegardError: If the folder is not a run, or a file in it is missing or corrupt.

    Example:
        >>> regard.load("runs/dates").predict("vendredi 3 mars 2017").text
        '2017-03-03'
        >>> regard.load("runs/book").generate("The ", max_tokens=20, seed=1).text
        'night was dark, and no'
    """
    from regard.memory import check_memory, count_parameter_bytes, on_meta_device
    from regard.recipe import build_model

    run = Run(Path(path))
    task, card, recipe = get_run_task(run.path), run.read_card(), read_run_recipe(run)
    tokenizers = task.load_tokenizers(run)
    parameters = run.read_parameters()
    with on_meta_device():  # allocates nothing, in case the sizes in the recipe are wrong and huge
        expected = build_model(recipe, tokenizers)
    if {n: t.shape for n, t in parameters.items()} != {n: t.shape for n, t in expected.state_dict().items()}:
        raise RegardError(f"{run.model_file} does not match recipe.toml: parameters differ")
    check_memory(count_parameter_bytes(expected), "parameters", "cpu", "close other programs")
    model = build_model(recipe, tokenizers)
    model.load_state_dict(parameters)
    return task.get_predictor_class()(model, tokenizers, recipe, card, str(device))


def read_run_recipe(run: Run) -> Recipe:
    """Read the recipe of a run and check that it names a model."""
    recipe = to_recipe(run.read_recipe(), str(run.recipe_file))
    if "name" not in recipe.model:
        raise RegardError(f"{run.recipe_file}: missing name in [model]")
    return recipe


def load_same_task(predictor: Predictor[Any], path: Path, invocation: Invocation) -> Any:
    """Load another run of the same task as a predictor."""
    other = get_run_task(path)
    if other.name != predictor.task_name:
        raise RegardError(f"{path}: expected a run of the task {predictor.task_name}, got {other.name}")
    return load(path, invocation.device)


def get_run_task(path: Path) -> Task:
    """Return the task of a run."""
    run = Run(path)
    name = run.read_card().get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise RegardError(f"{run.card_file}: unknown task {name!r}; choose from {', '.join(TASKS)}")
    return TASKS[name]
