"""Recipe: everything that decides what is trained, as one record, one TOML file, one command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from regard.data.settings import DataSettings
from regard.decoding.settings import DecodingSettings
from regard.errors import RegardError, unknown_name
from regard.settings import Table, fields_of, from_table, read_toml, read_value, to_table
from regard.text.settings import TextSettings
from regard.training.settings import TrainingSettings

SIZES = ("source_size", "target_size")
"""What a model's config learns from the tokenizers, so no recipe says it."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings. Those of the model are a table, since each model has its own; its `name` is the preset."""

    data: DataSettings = field(default_factory=DataSettings)
    text: TextSettings = field(default_factory=TextSettings)
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)

    def table(self) -> Table:
        """The recipe as plain values."""
        return to_table(self)


def read_recipe(path: Path) -> Table:
    """The table of a recipe file; paths in it that are not absolute begin at its folder."""
    table = read_toml(path)
    data = table.get("data", {})
    if isinstance(data, dict):
        for name in ("train", "source", "target", "valid", "valid_source", "valid_target"):
            given = data.get(name)
            if isinstance(given, str) and given != "-" and (path.parent / given).exists():
                data[name] = str(path.parent / given)
    return table


def to_recipe(table: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from plain values, its model's settings checked against the preset."""
    recipe = from_table(Recipe, table, where)
    if "name" in recipe.model:
        model_fields(str(recipe.model["name"]), where)
        check_model(recipe.model, where)
    return recipe


def model_fields(name: str, where: str = "model") -> dict[str, Any]:
    """The settings of a preset: field name -> Field."""
    from regard.models import MODELS

    if name not in MODELS:
        raise unknown_name(f"{where}: model", name, MODELS)
    return {key: value for key, value in fields_of(MODELS[name].config).items() if key not in SIZES}


def check_model(table: Mapping[str, Any], where: str) -> None:
    """Raise a `RegardError` for a setting that the preset does not have, or of the wrong type."""
    from regard.models import MODELS

    preset = MODELS[table["name"]]
    given = {name: value for name, value in table.items() if name != "name"}
    for name in SIZES:
        if name in given:
            raise RegardError(f"{where}: [model] {name} comes from the tokenizer; leave it out")
    from_table(preset.config, {**dict.fromkeys(SIZES, 8), **preset.settings, **given}, f"{where}: [model]")


def override(table: Table, options: Sequence[tuple[str, str]], where: str = "command line") -> Table:
    """A table with settings replaced by what was typed: dotted names, or short ones that only one section has."""
    changed = {name: dict(value) if isinstance(value, Mapping) else value for name, value in table.items()}
    for name, text in sorted(options, key=lambda option: option[0] not in ("model", "model.name")):
        section, key = place_of(name, changed, where)
        known = known_fields(section, changed, where)
        values = changed.setdefault(section, {})
        first, _, rest = key.partition(".")
        if section == "data" and first == "corpus" and rest:
            corpus = values["corpus"] = dict(values.get("corpus", {}))
            corpus[rest] = corpus_value(values.get("train"), rest, text)
        elif section == "model" and key == "name":
            values["name"] = text
        elif key in known:
            values[key] = read_value(text, known[key].type, f"--{name}")
        else:
            raise unknown_name(f"--{name}: [{section}]", key, known)
    return changed


def corpus_value(corpus: str | None, name: str, text: str) -> Any:
    """A setting of a built-in corpus, in the type that the corpus gives it."""
    from regard.data.corpora import CORPORA

    if corpus not in CORPORA:
        raise RegardError(f"--data.corpus.{name}: is for a built-in corpus ({', '.join(CORPORA)}); found {corpus}")
    known = fields_of(CORPORA[corpus])
    if name not in known:
        raise unknown_name(f"--data.corpus.{name}: {corpus}", name, known)
    return read_value(text, known[name].type, f"--data.corpus.{name}")


def place_of(name: str, table: Mapping[str, Any], where: str) -> tuple[str, str]:
    """The section and the key of an option's name."""
    sections = [each.name for each in fields(Recipe)]
    first, dot, rest = name.partition(".")
    if dot and first in sections:
        return first, rest.replace("-", "_") if first != "data" or not rest.startswith("corpus.") else rest
    if name == "model":
        return "model", "name"
    key = name.replace("-", "_")
    holding = [section for section in sections if not dot and key in known_fields(section, table, where)]
    if len(holding) == 1:
        return holding[0], key
    if holding:
        raise RegardError(f"--{name}: may be {' or '.join(f'--{section}.{key}' for section in holding)}; say which")
    known = [key for section in sections for key in known_fields(section, table, where)]
    raise unknown_name("options", f"--{name}", [f"--{each.replace('_', '-')}" for each in known])


def known_fields(section: str, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a section; those of the model depend on its name."""
    if section == "model":
        chosen = table.get("model", {}).get("name")
        return model_fields(chosen, where) if chosen else every_model_field()
    kinds = {"data": DataSettings, "text": TextSettings, "training": TrainingSettings, "decoding": DecodingSettings}
    return fields_of(kinds[section])


def every_model_field() -> dict[str, Any]:
    """The fields of all models, for when the preset is not chosen yet."""
    from regard.models import MODELS

    return {name: each for preset in MODELS for name, each in model_fields(preset).items()}
