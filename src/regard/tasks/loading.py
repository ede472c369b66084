"""Load a run folder as a predictor of its task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.run import Run, list_members
from regard.tasks import TASKS, to_recipe
from regard.tasks.base import Task

if TYPE_CHECKING:
    import torch

    from regard.recipe import Recipe
    from regard.tasks.actions import Invocation
    from regard.tasks.predictor import Predictor


def load(path: str | Path | Sequence[str | Path], device: str | torch.device = "cpu") -> Any:
    """Load a trained model from a run folder, or several as an ensemble.

    Args:
        path: The run folder, as created by `regard train` or `regard.train`. A folder that `regard train --seeds` made,
            or a sequence of such folders, is an ensemble: one model that averages the probabilities of all.
        device: The device to load the model on.

    Returns:
        The predictor for the task of the run: `PairPredictor`, `TextPredictor`, `LabelPredictor` or `TagPredictor`.

    Raises:
        RegardError: If the folder is not a run, a file in it is missing or corrupt, or the models of an ensemble do not
            have the same tokens.

    Example:
        >>> regard.load("runs/dates").predict("vendredi 3 mars 2017").text
        '2017-03-03'
        >>> regard.load("runs/book").generate("The ", max_tokens=20, seed=1).text
        'night was dark, and no'
    """
    if not isinstance(path, str | Path):
        return load_ensemble([member for each in path for member in list_members(Path(each)) or [Path(each)]], device)
    members = list_members(Path(path))
    return load_run(Path(path), device) if members is None else load_ensemble(members, device)


def load_ensemble(paths: Sequence[Path], device: str | torch.device) -> Predictor[Any]:
    """Load several runs as one model; settings other than those of the model are those of the first."""
    from regard.models.ensemble import build_ensemble

    if not paths:
        raise RegardError("load: expected at least one run, got none")
    check_same_tokens(paths)
    predictors = [load_run(path, device) for path in paths]
    first = predictors[0]
    model = build_ensemble([predictor.model for predictor in predictors])
    card = {name: value for name, value in first.card.items() if name not in ("best", "unvalidated")}
    return type(first)(model, first.tokenizers, first.recipe, card, str(device))


def check_same_tokens(paths: Sequence[Path]) -> None:
    """Raise a `RegardError` unless all runs have the same task and the same tokenizers."""
    first, task, tokens = paths[0], get_run_task(paths[0]), Run(paths[0]).read_checksums().get("tokenizer.json")
    for path in paths[1:]:
        other = get_run_task(path)
        if other is not task:
            raise RegardError(f"{path}: expected a run of the task {task.name}, as {first}, got {other.name}")
        if Run(path).read_checksums().get("tokenizer.json") != tokens:
            raise RegardError(f"{path} has other tokens than {first}; the models of an ensemble must share tokenizers")


def load_run(path: Path, device: str | torch.device) -> Predictor[Any]:
    """Load the trained model of one run."""
    from regard.memory import check_memory, count_parameter_bytes, on_meta_device
    from regard.recipe import build_model

    run = Run(path)
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
    """Return the task of a run, or of the runs of an ensemble."""
    members = list_members(path)
    run = Run(path if members is None else members[0])
    name = run.read_card().get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise RegardError(f"{run.card_file}: unknown task {name!r}; choose from {', '.join(TASKS)}")
    return TASKS[name]
