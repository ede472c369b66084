"""Recipe: everything that decides what is trained, as one record, one TOML file, one command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import DataSettings
from regard.decoding.settings import DecodingSettings
from regard.errors import RegardError, unknown_name
from regard.settings import Field, Table, accepts, fields_of, from_table, read_toml, read_value, to_table
from regard.text.settings import TextSettings
from regard.training.settings import ReadingSettings, TrainingSettings

if TYPE_CHECKING:
    from regard.models import Model, Task
    from regard.run import Run
    from regard.text import Lexicon, Tokenizers

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

DEFAULT_MODELS = {
    "pairs": ("bahdanau", "transformer"),
    "text": ("lstm-lm", "gpt"),
    "label": ("attentive-classifier",),
    "tag": ("attentive-tagger",),
}
"""The presets among which is chosen where none is named."""

FILES = ("train", "source", "target", "valid", "valid_source", "valid_target", "vectors", "unlabelled")
FIRST = ("model", "model.name", "train", "data.train")
"""What other settings of a command line are read by."""

WHOLE_NAMES = ("reading",)
"""Sections whose settings are called as those of others are, so that only whole names tell them apart."""

SYNONYMS = {
    "batch_size": "--tokens, in tokens of a side",
    "beam_size": "--beam",
    "block_size": "--longest of gpt, or --segment",
    "bptt": "--segment",
    "clip_norm": "--clip",
    "context_length": "--longest of gpt, or --segment",
    "d_model": "--width, or --hidden of a recurrent model",
    "embedding_size": "--embedding",
    "epochs": "--steps, in updates",
    "ffn_dim": "--feed-forward",
    "grad_clip": "--clip",
    "gradient_accumulation": "--accumulate",
    "gradient_accumulation_steps": "--accumulate",
    "hidden_dim": "--hidden, or --width of a transformer",
    "hidden_size": "--hidden, or --width of a transformer",
    "label_smoothing": "--smoothing",
    "learning_rate": "--rate",
    "lr": "--rate",
    "max_length": "--most-tokens",
    "max_steps": "--steps",
    "n_heads": "--heads",
    "n_layers": "--layers, or --encoder-layers and --decoder-layers of a transformer",
    "num_epochs": "--steps, in updates",
    "num_heads": "--heads",
    "num_layers": "--layers, or --encoder-layers and --decoder-layers of a transformer",
    "num_steps": "--steps",
    "o": "--out",
    "output": "--out",
    "output_dir": "--out",
    "q": "--quiet",
    "scheduler": "--schedule",
    "test_size": "--held-out",
    "val": "--valid",
    "validation": "--valid",
    "vocab_size": "--size",
    "warmup_steps": "--warmup",
    "wd": "--weight-decay",
}
"""What settings are called elsewhere, and what they are called here."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings. Those of the model are a table, since each model has its own; its `name` is the preset."""

    data: DataSettings = field(default_factory=DataSettings)
    text: TextSettings = field(default_factory=TextSettings)
    model: dict[str, Any] = field(default_factory=dict)
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)

    def table(self) -> Table:
        """The recipe as plain values."""
        return to_table(self)


def read_recipe(path: Path) -> Table:
    """The table of a recipe file, checked; a file that it names is looked for beside it first."""
    from regard.data.corpora import CORPORA

    table = read_toml(path)
    data = table.get("data", {})
    for name in FILES if isinstance(data, dict) else ():
        given = data.get(name)
        if isinstance(given, str) and given not in CORPORA and os.path.exists(path.parent / given):
            data[name] = str(path.parent / given)
    to_recipe(table, str(path))
    return table


def to_recipe(table: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from plain values, its model's settings checked against the preset."""
    recipe = from_table(Recipe, table, where)
    if "name" in recipe.model:
        check_model(recipe.model, where)
    else:
        fitting_models(recipe.model, where, task_of(recipe))
    return recipe


def task_of(recipe: Recipe) -> Task:
    """What is to be learnt: as it is said, or what the model learns, or what the data look like."""
    from regard.models import MODELS

    data = recipe.data
    if "name" in recipe.model:
        task = MODELS[recipe.model["name"]].task
        if data.task not in (None, task):
            raise RegardError(f"data.task is {data.task}; {recipe.model['name']} is for the task {task}")
        return task
    if data.task is not None:
        return data.task
    if data.train is not None and data.train.removesuffix(".gz").endswith(OF_TAGS):
        return "tag"
    of_pairs = data.format is not None or bool(data.columns)
    return "text" if data.train is not None and looks_like_text(data.train) and not of_pairs else "pairs"


OF_TAGS = (".bio", ".bioes", ".conll", ".iob", ".iob2")
"""How the name of a file of tagged sentences ends."""


def looks_like_text(name: str) -> bool:
    """Whether a name is that of plain text rather than of pairs: a folder, or a file whose name says so."""
    return name.removesuffix(".gz").endswith((".txt", ".text")) or os.path.isdir(name)


def model_fields(name: object, what: str = "model") -> dict[str, Field]:
    """The settings of a preset: field name -> Field; `what` names it in errors."""
    from regard.models import MODELS

    if not isinstance(name, str) or name not in MODELS:
        raise unknown_name(what, name, MODELS)
    return {key: value for key, value in fields_of(MODELS[name].config).items() if key not in SIZES}


def check_model(table: Mapping[str, Any], where: str) -> None:
    """Raise a `RegardError` for a preset that there is not, or a setting that is not right for it."""
    from regard.models import MODELS

    model_fields(table["name"], f"{where}: [model] name")
    preset = MODELS[table["name"]]
    given = {name: value for name, value in table.items() if name != "name"}
    sizes = {name: SIZES[name] for name in SIZES.keys() & fields_of(preset.config).keys()}
    if found := sizes.keys() & given.keys():
        raise RegardError(f"{where}: [model] {min(found)} comes from the tokenizer; leave it out")
    config: Any = from_table(preset.config, {**sizes, **preset.settings, **given}, f"{where}: [model]")
    if getattr(config, "attention", "") == "none" and (useless := OF_ATTENTION & given.keys()):
        raise RegardError(f"{where}: [model] {min(useless)} is of attention, and {table['name']} has none here")
    if getattr(config, "pooling", "attention") != "attention" and (useless := OF_POOLING & given.keys()):
        raise RegardError(f"{where}: [model] {min(useless)} is of pooling by attention, not by {config.pooling}")


def recipe_of(run: Run) -> Recipe:
    """The recipe of a run, which names its model."""
    recipe = to_recipe(run.read_recipe(), str(run.recipe_file))
    if "name" not in recipe.model:
        raise RegardError(f"{run.recipe_file}: [model] has no name; restore the file from a copy")
    return recipe


def build_model(recipe: Recipe, tokenizers: Tokenizers | Lexicon) -> Model:
    """The model that a recipe describes, with random parameters."""
    from regard.models import build

    settings = {name: value for name, value in recipe.model.items() if name != "name"}
    return build(recipe.model["name"], **tokenizers.sizes(task_of(recipe)), **settings)


def fitting_models(settings: Mapping[str, Any], where: str, task: Task) -> list[str]:
    """Those of `DEFAULT_MODELS` that take some settings; what is wrong with these if none does."""
    refused: dict[str, RegardError] = {}
    for name in DEFAULT_MODELS[task]:
        try:
            check_model({**settings, "name": name}, where)
        except RegardError as error:
            refused[name] = error
    if len(refused) == len(DEFAULT_MODELS[task]):
        raise refused[max(refused, key=lambda name: len(model_fields(name).keys() & settings.keys()))]
    return [name for name in DEFAULT_MODELS[task] if name not in refused]


def override(table: Table, options: Sequence[tuple[str, str | None]]) -> Table:
    """A table with settings replaced by what was typed: dotted names, or short ones that only one section has.

    An option without a value is None, which is right where the setting can be true.
    """
    changed = {name: dict(value) for name, value in table.items()}
    for name, text in sorted(options, key=lambda option: option[0] not in FIRST):
        section, key = place_of(name, changed)
        values = changed.setdefault(section, {})
        if section == "data" and key.startswith("corpus."):
            inside = key.removeprefix("corpus.")
            known = corpus_fields(values.get("train"), name)
            values["corpus"] = {**values.get("corpus", {}), inside: typed(name, inside, text, known)}
        elif section == "model" and key == "name":
            values["name"] = typed(name, key, text, {"name": Field("name", str, "", "")})
            model_fields(values["name"], f"--{name}")
        else:
            values[key] = typed(name, key, text, known_fields(section, changed))
    return changed


def typed(option: str, key: str, text: str | None, known: Mapping[str, Field]) -> Any:
    """What was typed for a setting, in its type."""
    if key not in known:
        raise unknown_name(f"--{option}", key, known)
    if text is not None:
        return read_value(text, known[key].type, f"--{option}")
    if not accepts(known[key].type, True):
        raise RegardError(f"--{option}: a value is missing")
    return True


def corpus_fields(corpus: str | None, option: str) -> dict[str, Field]:
    """The settings of a built-in corpus."""
    from regard.data.corpora import CORPORA

    if corpus not in CORPORA:
        raise RegardError(f"--{option}: is for a built-in corpus ({', '.join(CORPORA)}); found {corpus or 'none'}")
    return fields_of(CORPORA[corpus])


def place_of(name: str, table: Mapping[str, Any]) -> tuple[str, str]:
    """The section and the key of an option's name."""
    if name == "model":
        return "model", "name"
    sections = [each.name for each in fields(Recipe)]
    first, dot, rest = name.replace("-", "_").partition(".")
    if dot and first in sections:
        return first, rest
    short = [section for section in sections if not dot and section not in WHOLE_NAMES]
    holding = [section for section in short if first in known_fields(section, table)]
    if not dot and first in known_corpus_fields(table):
        holding.append("data.corpus")
    if len(holding) > 1:
        raise RegardError(f"--{name}: may be {' or '.join(f'--{section}.{name}' for section in holding)}; say which")
    if not holding:
        raise no_option(name, table)
    return ("data", f"corpus.{first}") if holding == ["data.corpus"] else (holding[0], first)


def no_option(name: str, table: Mapping[str, Any], dashes: str = "--") -> RegardError:
    """The error for an option that there is not, with the one that may be meant."""
    sections = [each.name for each in fields(Recipe)]
    key = name.replace("-", "_")
    model = table.get("model", {}).get("name")
    if model is not None and key in every_model_field():
        own = ", ".join(each.replace("_", "-") for each in model_fields(model))
        return RegardError(f"--{name}: {model} has no such setting; it has {own}")
    if key in SYNONYMS:
        return RegardError(f"train: there is no option {dashes}{name}; here it is {SYNONYMS[key]}")
    for section in WHOLE_NAMES:
        if key in known_fields(section, table):
            return RegardError(f"train: there is no option {dashes}{name}; it may be --{section}.{name}")
    short = [section for section in sections if section not in WHOLE_NAMES]
    known = [key.replace("_", "-") for section in short for key in known_fields(section, table)]
    known += ["model", "out", "from", "device", "quiet"]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean --{near[0]}?" if near else "regard train --help lists all"
    return RegardError(f"train: there is no option {dashes}{name}; {hint}")


def known_corpus_fields(table: Mapping[str, Any]) -> dict[str, Field]:
    """The settings of the built-in corpus that a table names; none where it names a file."""
    from regard.data.corpora import CORPORA

    corpus = table.get("data", {}).get("train")
    return fields_of(CORPORA[corpus]) if corpus in CORPORA else {}


def known_fields(section: str, table: Mapping[str, Any]) -> dict[str, Field]:
    """The fields of a section; those of the model depend on its name."""
    if section == "model":
        chosen = table.get("model", {}).get("name")
        return every_model_field() if chosen is None else model_fields(chosen)
    kinds = {
        "data": DataSettings,
        "text": TextSettings,
        "reading": ReadingSettings,
        "training": TrainingSettings,
        "decoding": DecodingSettings,
    }
    return fields_of(kinds[section])


def every_model_field() -> dict[str, Field]:
    """The fields of all models, for when the preset is not chosen yet; of several types where models differ."""
    from regard.models import MODELS

    found: dict[str, Field] = {}
    for name, each in (item for preset in MODELS for item in model_fields(preset).items()):
        found[name] = replace(each, type=found[name].type | each.type) if name in found else each
    return found
