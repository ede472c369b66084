"""Tasks, and the one table that training, the command line, the server, `look` and `explain` ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.recipe import Recipe, check_model, find_files, find_preset, fitting_models, read_sections
from regard.settings import Table, read_toml
from regard.tasks.base import Task
from regard.tasks.label import LabelTask
from regard.tasks.pairs import PairTask
from regard.tasks.tag import TagTask
from regard.tasks.text import TextTask

__all__ = ["TASKS", "Task", "read_recipe", "recipes", "task_of", "to_recipe"]

TASKS: dict[str, Task] = {task.name: task for task in (TagTask(), TextTask(), LabelTask(), PairTask())}
"""Every task by its name, in the order in which they are asked whether data are theirs; pairs are all the rest."""


def recipes() -> dict[str, type[Recipe]]:
    """The recipe of every task, by the name of the task."""
    return {name: task.recipe for name, task in TASKS.items()}


def task_of(table: Mapping[str, Any], where: str = "recipe") -> Task:
    """What a recipe is for: what its model learns, else what `data.task` says, else the first that claims its data."""
    model, data = (part if isinstance(part := table.get(name), Mapping) else {} for name in ("model", "data"))
    told, preset = data.get("task"), model.get("name")
    if told is not None and not (isinstance(told, str) and told in TASKS):
        raise unknown_name(f"{where}: [data] task", told, TASKS)
    if preset is not None:
        task = find_preset(preset, f"{where}: [model] name").task
        if told not in (None, task):
            raise RegardError(f"data.task is {told}; {preset} is for the task {task}")
        return TASKS[task]
    return TASKS[told] if told is not None else next(task for task in TASKS.values() if task.claims(data))


def to_recipe(table: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from plain values, its model's settings checked against the preset."""
    task = task_of(table, where)
    recipe = read_sections(recipes(), task.name, table, where)
    if "name" in recipe.model:
        check_model(recipe.model, where)
    else:
        fitting_models(recipe.model, where, task.presets)
    return recipe


def read_recipe(path: Path) -> Table:
    """The table of a recipe file, checked; a file that it names is looked for beside it first."""
    table = read_toml(path)
    find_files(table, path.parent, recipes().values())
    to_recipe(table, str(path))
    return table
