"""Recipe: all settings of a training, as a dataclass and as a TOML file.

Each task has its own recipe, a dataclass with one field per section. The functions here know no task; they take the
recipe classes as arguments.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import aliases
from regard.bounds import MAX_VOCABULARY
from regard.errors import RegardError, unknown_name
from regard.settings import Field, Mark, Table, get_fields, join_location, merge_fields, parse_settings, to_table

if TYPE_CHECKING:
    from regard.models import Model, Preset

ATTENTION_SETTINGS = {"score", "heads", "project", "normalizer", "learn_width", "input_feeding"}
"""Settings that a model without attention ignores."""

POOLING_SETTINGS = {"heads", "normalizer", "queries", "project"}
"""Settings that a classifier without attention pooling ignores."""

PLACEHOLDER_SIZE = MAX_VOCABULARY
"""Vocabulary size to check settings with while that of the tokenizer is unknown."""

SIZE_SETTINGS = (
    "hidden",
    "width",
    "layers",
    "encoder_layers",
    "decoder_layers",
    "attention_layers",
    "embedding",
    "feed_forward",
    "char_width",
    "char_ngrams",
    "queries",
    "window",
    "context_length",
    "max_length",
)
"""Settings that decide how many parameters a model has."""

SIZES: dict[str, Any] = {
    **dict.fromkeys(
        ("source_vocab_size", "target_vocab_size", "vocab_size", "words", "pieces", "vectors"),
        PLACEHOLDER_SIZE,
    ),
    "vectors_width": 1,
    "unlabeled": 0,
    "labels": ("O", "B-X", "I-X"),
}
"""Settings of a model that come from the tokenizers, not from the recipe, with placeholder values."""


class Recipe:
    """All settings of a run, by section; each task has its own subclass, a dataclass.

    The settings of the model are a dict, since they depend on the model; `name` is the preset.
    """

    data: Any
    text: Any
    model: dict[str, Any]
    training: Any

    if TYPE_CHECKING:

        def __getattr__(self, section: str) -> Any: ...  # sections that only some tasks have

    def to_table(self) -> Table:
        """Return the recipe as nested dicts of plain values."""
        return to_table(self)


Recipes = Mapping[str, type[Recipe]]
"""Task name -> recipe class."""


def get_section_fields(recipes: Iterable[type[Recipe]]) -> dict[str, Field]:
    """Return the sections of the recipes, by name."""
    return merge_fields(map(get_fields, recipes))


def get_setting_fields(section: str, recipes: Iterable[type[Recipe]]) -> dict[str, Field]:
    """Return the settings of a section in the recipes. For [model] it is empty: its settings depend on the preset."""
    kinds = [get_fields(recipe)[section].type for recipe in recipes if section in get_fields(recipe)]
    return merge_fields(get_fields(kind) for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind))


def find_marked_settings(mark: Mark, recipes: Iterable[type[Recipe]]) -> set[tuple[str, str]]:
    """Return the section and name of each setting with a mark."""
    recipes = list(recipes)
    settings = ((section, get_setting_fields(section, recipes)) for section in get_section_fields(recipes))
    return {(section, name) for section, fields in settings for name, field in fields.items() if mark in field.marks}


def parse_sections(recipes: Recipes, task: str, table: Mapping[str, Any], location: str) -> Recipe:
    """Build the recipe of a task from plain values.

    Raises:
        RegardError: For an invalid setting, or a setting that only other tasks have.
    """
    for section, values in table.items():
        names = values if isinstance(values, Mapping) else {}
        for name in (None, *names):
            if tasks := find_other_tasks(recipes, task, section, name):
                section_location = join_location(location, f"[{section}]")
                raise build_other_task_error(
                    section_location if name is None else join_location(section_location, name), tasks, task
                )
    return parse_settings(recipes[task], table, location)


def find_other_tasks(recipes: Recipes, task: str, section: str, name: str | None = None) -> list[str]:
    """Return the tasks that have a section (or a setting in it); none if the given task has it."""

    def has_setting(recipe: type[Recipe]) -> bool:
        return section in get_fields(recipe) if name is None else name in get_setting_fields(section, [recipe])

    return [] if has_setting(recipes[task]) else [other for other, recipe in recipes.items() if has_setting(recipe)]


def build_other_task_error(setting: str, tasks: Sequence[str], task: str) -> RegardError:
    """Return the error for a setting that only other tasks have."""
    word = "task" if len(tasks) == 1 else "tasks"
    return RegardError(f"{setting} is for the {word} {' and '.join(tasks)}; this recipe is for {task}")


def resolve_paths(table: Table, folder: Path, recipes: Iterable[type[Recipe]]) -> None:
    """Replace file names in a table by full paths where the file exists in the folder of the recipe."""
    from regard.data.corpora import CORPORA

    for section, name in find_marked_settings("path", recipes):
        values = table.get(section)
        file_name = values.get(name) if isinstance(values, dict) else None
        if isinstance(file_name, str) and file_name not in CORPORA and os.path.exists(folder / file_name):
            table[section][name] = str(folder / file_name)


def find_preset(name: object, location: str) -> Preset:
    """Return a preset by name; `location` names the setting in errors."""
    from regard.models import MODELS

    if not isinstance(name, str) or name not in MODELS:
        raise unknown_name(location, name, MODELS, aliases.MODELS.get(str(name).lower().replace("_", "-")))
    return MODELS[name]


def get_model_fields(name: object, location: str = "model") -> dict[str, Field]:
    """Return the settings of a preset by name; `location` names the setting in errors."""
    return {key: value for key, value in get_fields(find_preset(name, location).config).items() if key not in SIZES}


def check_model(table: Mapping[str, Any], location: str) -> None:
    """Raise a `RegardError` for an unknown preset or a setting that is invalid for it."""
    preset = find_preset(table["name"], f"{location}: [model] name")
    settings = {name: value for name, value in table.items() if name != "name"}
    sizes = {name: SIZES[name] for name in SIZES.keys() & get_fields(preset.config).keys()}
    if size_names := sizes.keys() & settings.keys():
        raise RegardError(f"{location}: [model] {min(size_names)} is set by the tokenizer; remove it")
    config: Any = parse_settings(preset.config, {**sizes, **preset.settings, **settings}, f"{location}: [model]")
    if getattr(config, "attention", "") == "none" and (unused := ATTENTION_SETTINGS & settings.keys()):
        raise RegardError(f"{location}: [model] {min(unused)} requires attention, but attention is none")
    if getattr(config, "pooling", "attention") != "attention" and (unused := POOLING_SETTINGS & settings.keys()):
        raise RegardError(
            f"{location}: [model] {min(unused)} requires pooling by attention, but pooling is {config.pooling}"
        )


def get_all_model_fields() -> dict[str, Field]:
    """Return the settings of all presets, merged by name."""
    from regard.models import MODELS

    return merge_fields(map(get_model_fields, MODELS))


def build_model(recipe: Recipe, tokenizers: Any) -> Model:
    """Build the model of a recipe, with random parameters."""
    from regard.models import MODELS, build

    name = recipe.model["name"]
    settings = {key: value for key, value in recipe.model.items() if key != "name"}
    config_fields = get_fields(MODELS[name].config)
    sizes = {key: value for key, value in tokenizers.sizes().items() if key in config_fields}
    return build(name, **sizes, **settings)


def list_large_settings(recipe: Recipe) -> list[str]:
    """List the settings that make a model large: those above their default, or else width and layers."""
    fields, settings = get_model_fields(recipe.model["name"]), recipe.model
    known = [name for name in SIZE_SETTINGS if name in fields]
    large = [name for name in known if (settings.get(name) or 0) > (fields[name].default or 0)]
    return [f"model.{name}" for name in large or known[:2]]


def find_compatible_models(settings: Mapping[str, Any], location: str, presets: Sequence[str]) -> list[str]:
    """Return the presets that accept the settings; raise the most relevant error if none does."""
    errors: dict[str, RegardError] = {}
    for name in presets:
        try:
            check_model({**settings, "name": name}, location)
        except RegardError as error:
            errors[name] = error
    if len(errors) == len(presets):
        raise errors[max(errors, key=lambda name: len(get_model_fields(name).keys() & settings.keys()))]
    return [name for name in presets if name not in errors]
