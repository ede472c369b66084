"""Tasks, and the table of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.recipe import Recipe, check_model, find_compatible_models, find_preset, parse_sections, resolve_paths
from regard.settings import Table, read_toml
from regard.tasks.base import Task
from regard.tasks.built_in import find_corpus_task
from regard.tasks.label import LabelTask
from regard.tasks.pairs import PairTask
from regard.tasks.tag import TagTask
from regard.tasks.text import TextTask

__all__ = ["TASKS", "Task", "find_task", "get_recipes", "read_recipe_file", "to_recipe"]

TASKS: dict[str, Task] = {task.name: task for task in (TagTask(), TextTask(), LabelTask(), PairTask())}
"""Task name -> task. The first task that claims some data gets them; pairs claims all the rest."""


def get_recipes() -> dict[str, type[Recipe]]:
    """Return the recipe class of every task, by task name."""
    return {name: task.recipe for name, task in TASKS.items()}


def find_task(table: Mapping[str, Any], location: str = "recipe") -> Task:
    """Return the task of a recipe: that of its model, else `data.task`, else of its data.

    A built-in corpus has a task; other data have the first task that claims them.
    """
    model, data = (part if isinstance(part := table.get(name), Mapping) else {} for name in ("model", "data"))
    task_name, preset = data.get("task"), model.get("name")
    if task_name is not None and not (isinstance(task_name, str) and task_name in TASKS):
        raise unknown_name(f"{location}: [data] task", task_name, TASKS)
    if preset is not None:
        task = find_preset(preset, f"{location}: [model] name").task
        if task_name not in (None, task):
            raise RegardError(f"data.task is {task_name}, but model {preset} is for the task {task}")
        return TASKS[task]
    task_name = task_name or find_corpus_task(data)
    return TASKS[task_name] if task_name is not None else next(task for task in TASKS.values() if task.claims(data))


def to_recipe(table: Mapping[str, Any], location: str) -> Recipe:
    """Build a recipe from plain values, and check the settings of its model."""
    task = find_task(table, location)
    recipe = parse_sections(get_recipes(), task.name, table, location)
    if "name" in recipe.model:
        check_model(recipe.model, location)
    else:
        find_compatible_models(recipe.model, location, task.presets)
    return recipe


def read_recipe_file(path: Path) -> Table:
    """Read and check a recipe file; files that it names are looked up in its folder first."""
    table = read_toml(path)
    resolve_paths(table, path.parent, get_recipes().values())
    to_recipe(table, str(path))
    return table
