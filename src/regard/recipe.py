"""Recipe: everything that decides what is trained, as one record and one TOML file.

Each task has a recipe of its own, a dataclass whose fields are its sections. What is here knows no task: their
recipes are passed in.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError, unknown_name
from regard.settings import Field, Mark, Table, beside, fields_of, from_table, merge_fields, to_table

if TYPE_CHECKING:
    from regard.models import Model, Preset

OF_ATTENTION = {"score", "heads", "project", "normaliser", "learn_width", "input_feeding"}
"""What means nothing to a model without attention."""

OF_POOLING = {"heads", "normaliser", "queries"}
"""What means nothing to a classifier that makes one vector of its words without attention."""

MANY = 2**31
"""A vocabulary that is large enough for every setting, where that of the tokenizer is not known yet."""

SIZES: dict[str, Any] = {
    **dict.fromkeys(("source_size", "target_size", "size", "words", "pieces", "vectors", "vectors_width"), MANY),
    "unlabelled": 0,
    "labels": ("O", "B-X", "I-X"),
}
"""What a model's config learns from the tokenizers, so no recipe says it; with what it may be before it is known."""


class Recipe:
    """All settings of a run, section by section; each task has a dataclass for its own.

    Those of the model are a table, since each model has its own; its `name` is the preset.
    """

    data: Any
    text: Any
    model: dict[str, Any]
    training: Any

    if TYPE_CHECKING:

        def __getattr__(self, section: str) -> Any: ...  # sections that not every task has

    def table(self) -> Table:
        """The recipe as plain values."""
        return to_table(self)


Recipes = Mapping[str, type[Recipe]]
"""The recipe of each task, by the name of the task."""


def section_fields(recipes: Iterable[type[Recipe]]) -> dict[str, Field]:
    """The sections of some recipes."""
    return merge_fields(map(fields_of, recipes))


def setting_fields(section: str, recipes: Iterable[type[Recipe]]) -> dict[str, Field]:
    """The settings that a section has in some recipes; none of the model's, which depend on its name."""
    kinds = [fields_of(recipe)[section].type for recipe in recipes if section in fields_of(recipe)]
    return merge_fields(fields_of(kind) for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind))


def marked(mark: Mark, recipes: Iterable[type[Recipe]]) -> set[tuple[str, str]]:
    """The section and the name of each setting with a mark."""
    recipes = list(recipes)
    settings = ((section, setting_fields(section, recipes)) for section in section_fields(recipes))
    return {(section, name) for section, known in settings for name, each in known.items() if mark in each.marks}


def read_sections(recipes: Recipes, task: str, table: Mapping[str, Any], where: str) -> Recipe:
    """The recipe of a task from plain values; a setting that only other tasks have is refused."""
    for section, values in table.items():
        names = values if isinstance(values, Mapping) else {}
        for name in (None, *names):
            if tasks := others_with(recipes, task, section, name):
                place = beside(where, f"[{section}]")
                raise of_other_task(place if name is None else beside(place, name), tasks, task)
    return from_table(recipes[task], table, where)


def others_with(recipes: Recipes, task: str, section: str, name: str | None = None) -> list[str]:
    """The tasks that have a section, or a setting in it, if the given one has it not."""

    def has(recipe: type[Recipe]) -> bool:
        return section in fields_of(recipe) if name is None else name in setting_fields(section, [recipe])

    return [] if has(recipes[task]) else [other for other, recipe in recipes.items() if has(recipe)]


def of_other_task(what: str, tasks: Sequence[str], task: str) -> RegardError:
    """The error for a setting that only other tasks have."""
    word = "task" if len(tasks) == 1 else "tasks"
    return RegardError(f"{what} is for the {word} {' and '.join(tasks)}; this recipe is for {task}")


def find_files(table: Table, folder: Path, recipes: Iterable[type[Recipe]]) -> None:
    """Give files that lie in a folder, that of the recipe, their whole path in a table."""
    from regard.data.corpora import CORPORA

    for section, name in marked("path", recipes):
        values = table.get(section)
        given = values.get(name) if isinstance(values, dict) else None
        if isinstance(given, str) and given not in CORPORA and os.path.exists(folder / given):
            table[section][name] = str(folder / given)


def find_preset(name: object, what: str) -> Preset:
    """A preset by its name; `what` says in errors what that is the name of."""
    from regard.models import MODELS

    if not isinstance(name, str) or name not in MODELS:
        raise unknown_name(what, name, MODELS)
    return MODELS[name]


def model_fields(name: object, what: str = "model") -> dict[str, Field]:
    """The settings of a preset: field name -> Field; `what` names it in errors."""
    return {key: value for key, value in fields_of(find_preset(name, what).config).items() if key not in SIZES}


def check_model(table: Mapping[str, Any], where: str) -> None:
    """Raise a `RegardError` for a preset that there is not, or a setting that is not right for it."""
    preset = find_preset(table["name"], f"{where}: [model] name")
    given = {name: value for name, value in table.items() if name != "name"}
    sizes = {name: SIZES[name] for name in SIZES.keys() & fields_of(preset.config).keys()}
    if found := sizes.keys() & given.keys():
        raise RegardError(f"{where}: [model] {min(found)} comes from the tokenizer; leave it out")
    config: Any = from_table(preset.config, {**sizes, **preset.settings, **given}, f"{where}: [model]")
    if getattr(config, "attention", "") == "none" and (useless := OF_ATTENTION & given.keys()):
        raise RegardError(f"{where}: [model] {min(useless)} is of attention, and {table['name']} has none here")
    if getattr(config, "pooling", "attention") != "attention" and (useless := OF_POOLING & given.keys()):
        raise RegardError(f"{where}: [model] {min(useless)} is of pooling by attention, not by {config.pooling}")


def every_model_field() -> dict[str, Field]:
    """The fields of all models, for when the preset is not chosen yet."""
    from regard.models import MODELS

    return merge_fields(map(model_fields, MODELS))


def build_model(recipe: Recipe, tokenizers: Any) -> Model:
    """The model that a recipe describes, with random parameters."""
    from regard.models import MODELS, build

    name = recipe.model["name"]
    settings = {key: value for key, value in recipe.model.items() if key != "name"}
    known = fields_of(MODELS[name].config)
    sizes = {key: value for key, value in tokenizers.sizes().items() if key in known}
    return build(name, **sizes, **settings)


def fitting_models(settings: Mapping[str, Any], where: str, presets: Sequence[str]) -> list[str]:
    """Those presets that take some settings; what is wrong with these if none does."""
    refused: dict[str, RegardError] = {}
    for name in presets:
        try:
            check_model({**settings, "name": name}, where)
        except RegardError as error:
            refused[name] = error
    if len(refused) == len(presets):
        raise refused[max(refused, key=lambda name: len(model_fields(name).keys() & settings.keys()))]
    return [name for name in presets if name not in refused]
