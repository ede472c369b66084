"""The options of `regard train`: settings of a recipe, by their whole names or by short ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from regard.data.corpora import CORPORA
from regard.errors import RegardError, unknown_name
from regard.recipe import (
    Recipe,
    every_model_field,
    find_preset,
    model_fields,
    of_other_task,
    others_with,
    section_fields,
    setting_fields,
)
from regard.settings import Field, Table, accepts, fields_of, read_value
from regard.tasks import TASKS, recipes

FIRST = ("model", "model.name", "task", "data.task", "train", "data.train")
"""What other settings of a command line are read by."""

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
            known = corpus_fields(changed)
            if not known:
                train = values.get("train") or "none"
                raise RegardError(f"--{name}: is for a built-in corpus ({', '.join(CORPORA)}); found {train}")
            values["corpus"] = {**values.get("corpus", {}), inside: typed(name, inside, text, known)}
        elif section == "model" and key == "name":
            values["name"] = typed(name, key, text, {"name": Field("name", str, "", "")})
            model_fields(values["name"], f"--{name}")
        else:
            values[key] = typed(name, key, text, known_fields(section, changed))
        if (section, key) == ("data", "task") and values[key] not in TASKS:
            raise unknown_name(f"--{name}", values[key], TASKS)
    return changed


def named_task(table: Mapping[str, Any]) -> str | None:
    """The task that a table names, itself or by its model."""
    model, task = table.get("model", {}).get("name"), table.get("data", {}).get("task")
    return task if model is None else find_preset(model, "recipe: [model] name").task


def recipes_for(table: Mapping[str, Any]) -> list[type[Recipe]]:
    """The recipe of the task that a table names; of all tasks where it names none."""
    task = named_task(table)
    return list(reversed(recipes().values())) if task is None else [recipes()[task]]


def known_fields(section: str, table: Mapping[str, Any]) -> dict[str, Field]:
    """The fields of a section; those of the model depend on its name, all others on the task."""
    if section == "model":
        chosen = table.get("model", {}).get("name")
        return every_model_field() if chosen is None else model_fields(chosen)
    return setting_fields(section, recipes_for(table))


def typed(option: str, key: str, text: str | None, known: Mapping[str, Field]) -> Any:
    """What was typed for a setting, in its type."""
    if key not in known:
        raise unknown_name(f"--{option}", key, known)
    if text is not None:
        return read_value(text, known[key].type, f"--{option}")
    if not accepts(known[key].type, True):
        raise RegardError(f"--{option}: a value is missing")
    return True


def corpus_fields(table: Mapping[str, Any]) -> dict[str, Field]:
    """The settings of the built-in corpus that a table names; none where it names a file."""
    corpus = table.get("data", {}).get("train")
    return fields_of(CORPORA[corpus]) if corpus in CORPORA else {}


def place_of(name: str, table: Mapping[str, Any]) -> tuple[str, str]:
    """The section and the key of an option's name."""
    if name == "model":
        return "model", "name"
    first, dot, rest = name.replace("-", "_").partition(".")
    if dot and first in section_fields(recipes().values()):
        refuse_of_other_task(name, [first], rest, table)
        return first, rest
    holding = [section for section in short_sections(table) if not dot and first in known_fields(section, table)]
    if not dot and first in corpus_fields(table):
        holding.append("data.corpus")
    if len(holding) > 1:
        raise RegardError(f"--{name}: may be {' or '.join(f'--{section}.{name}' for section in holding)}; say which")
    if not holding:
        refuse_of_other_task(name, short_sections({}), first, table)
        raise no_option(name, table)
    return ("data", f"corpus.{first}") if holding == ["data.corpus"] else (holding[0], first)


def short_sections(table: Mapping[str, Any]) -> list[str]:
    """The sections whose settings can be called by the last part of their names."""
    return [name for name, each in section_fields(recipes_for(table)).items() if "whole_name" not in each.marks]


def refuse_of_other_task(option: str, sections: Sequence[str], key: str, table: Mapping[str, Any]) -> None:
    """Raise a `RegardError` for an option that only other tasks have than the one that a table names."""
    task = named_task(table)
    if task is None:
        return
    for section in sections:
        if tasks := others_with(recipes(), task, section, key):
            raise of_other_task(f"--{option}", tasks, task)


def no_option(name: str, table: Mapping[str, Any], dashes: str = "--") -> RegardError:
    """The error for an option that there is not, with the one that may be meant."""
    key = name.replace("-", "_")
    model = table.get("model", {}).get("name")
    if model is not None and key in every_model_field():
        own = ", ".join(each.replace("_", "-") for each in model_fields(model))
        return RegardError(f"--{name}: {model} has no such setting; it has {own}")
    if key in SYNONYMS:
        return RegardError(f"train: there is no option {dashes}{name}; here it is {SYNONYMS[key]}")
    short = short_sections(table)
    for section in section_fields(recipes_for(table)):
        if section not in short and key in known_fields(section, table):
            return RegardError(f"train: there is no option {dashes}{name}; it may be --{section}.{name}")
    known = [key.replace("_", "-") for section in short for key in known_fields(section, table)]
    known += ["model", "out", "from", "device", "quiet"]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean --{near[0]}?" if near else "regard train --help lists all"
    return RegardError(f"train: there is no option {dashes}{name}; {hint}")
