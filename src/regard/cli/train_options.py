"""Parse the options of `regard train`: settings of a recipe by their full or short names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from regard import aliases
from regard.data.corpora import CORPORA
from regard.errors import RegardError, unknown_name
from regard.models import MODELS
from regard.recipe import (
    Recipe,
    build_other_task_error,
    find_other_tasks,
    find_preset,
    get_all_model_fields,
    get_model_fields,
    get_section_fields,
    get_setting_fields,
)
from regard.settings import Field, Table, accepts, get_fields, merge_fields, parse_value
from regard.tasks import TASKS, get_recipes
from regard.tasks.built_in import find_corpus_task

APPLIED_FIRST = ("model", "model.name", "task", "data.task", "train", "data.train")
"""Options that decide how the others are read."""

STEPS, EPOCHS = ("training", "steps"), ("training", "epochs")


def override(table: Table, options: Sequence[tuple[str, str | None]]) -> Table:
    """Return a table with the settings that the options name.

    Args:
        table: A recipe as plain values.
        options: Names and values as typed. A name is dotted (`training.steps`), short (`steps`) if only one section
            has it, or what another tool calls the setting (`lr`). The value of a flag is None.
    """
    changed = {name: dict(value) for name, value in table.items()}
    typed: set[tuple[str, str]] = set()
    for typed_name, text in sorted(options, key=lambda option: option[0] not in APPLIED_FIRST):
        for name in resolve_alias(typed_name, changed):
            with explain_alias(typed_name, name, changed):
                typed.add(set_option(changed, name, text))
    if typed >= {STEPS, EPOCHS}:
        raise RegardError("--epochs cannot be combined with --steps")
    for setting, replaced in ((STEPS, EPOCHS), (EPOCHS, STEPS)):
        if setting in typed:
            changed["training"].pop(replaced[1], None)
    return changed


@contextmanager
def explain_alias(typed_name: str, name: str, table: Mapping[str, Any]) -> Iterator[None]:
    """Add to errors which setting an option of another tool stands for, and what that setting means."""
    try:
        yield
    except RegardError as error:
        prefix, found = f"--{name}: ", str(error)
        if typed_name == name or not found.startswith((prefix, f"--{name} requires a value")):
            raise
        section, key = locate_option(name, table)
        meaning = find_known_fields(section, table)[key].help
        reason = found.removeprefix(prefix) if found.startswith(prefix) else "a value is required"
        raise RegardError(f"--{typed_name} is --{name} here ({meaning}): {reason}") from None


def set_option(changed: Table, name: str, text: str | None) -> tuple[str, str]:
    """Set one option in a table; return its section and key."""
    section, key = locate_option(name, changed)
    values = changed.setdefault(section, {})
    if section == "data" and key.startswith("corpus."):
        inside = key.removeprefix("corpus.")
        fields = get_corpus_fields(changed)
        if not fields:
            train = values.get("train") or "none"
            raise RegardError(f"--{name} requires a built-in corpus ({', '.join(CORPORA)}), got {train}")
        values["corpus"] = {**values.get("corpus", {}), inside: parse_option_value(name, inside, text, fields)}
    elif section == "model" and key == "name":
        values["name"] = parse_option_value(name, key, text, {"name": Field("name", str, "", "")})
        get_model_fields(values["name"], f"--{name}")
    else:
        values[key] = parse_option_value(name, key, text, find_known_fields(section, changed))
    if (section, key) == ("data", "task"):
        values[key] = aliases.TASKS.get(values[key], values[key])
        if values[key] not in TASKS:
            raise unknown_name(f"--{name}", values[key], TASKS)
    return section, key


def resolve_alias(name: str, table: Mapping[str, Any]) -> list[str]:
    """Return the settings that a typed name means: itself, or those that another tool calls so."""
    prefix, dot, last = name.rpartition(".")
    key = last.replace("-", "_")
    sections = {
        section: find_known_fields(section, table) for section in ([prefix] if dot else list_short_sections(table))
    }
    corpus = get_corpus_fields(table)
    section_of = {setting: section for section, fields in sections.items() for setting in fields}
    for candidate in () if key in {"model", *section_of, *corpus} else aliases.SETTINGS.get(key, ()):
        settings = candidate.split("+")
        if section_of.keys() >= set(settings):  # a corpus may have a setting of the same name
            names = [f"{section_of[each]}.{each}" if dot or each in corpus else each for each in settings]
            return [each.replace("_", "-") for each in names]
    return [name]


def find_named_task(table: Mapping[str, Any]) -> str | None:
    """Return the task that a table names, directly, by its model or by a built-in corpus."""
    model, data = table.get("model", {}).get("name"), table.get("data", {})
    task = data.get("task") or find_corpus_task(data)
    return task if model is None else find_preset(model, "recipe: [model] name").task


def find_recipes(table: Mapping[str, Any]) -> list[type[Recipe]]:
    """Return the recipe type of the task that a table names, or those of all tasks."""
    task = find_named_task(table)
    return list(reversed(get_recipes().values())) if task is None else [get_recipes()[task]]


def find_known_fields(section: str, table: Mapping[str, Any]) -> dict[str, Field]:
    """Return the fields of a section; those of [model] depend on the model, all others on the task."""
    if section == "model":
        model, task = table.get("model", {}).get("name"), find_named_task(table)
        if model is not None:
            return get_model_fields(model)
        names = [name for name, preset in MODELS.items() if preset.task == task]
        return merge_fields(map(get_model_fields, names)) if names else get_all_model_fields()
    return get_setting_fields(section, find_recipes(table))


def parse_option_value(option: str, key: str, text: str | None, fields: Mapping[str, Field]) -> Any:
    """Convert what was typed for a setting to its type."""
    if key not in fields:
        raise unknown_name(f"--{option}: setting", key, fields)
    if text is not None:
        return parse_value(text, fields[key].type, f"--{option}")
    if not accepts(fields[key].type, True):
        raise RegardError(f"--{option} requires a value")
    return True


def get_corpus_fields(table: Mapping[str, Any]) -> Mapping[str, Field]:
    """Return the settings of the built-in corpus that a table names; none if it names a file."""
    corpus = table.get("data", {}).get("train")
    return get_fields(CORPORA[corpus]) if corpus in CORPORA else {}


def locate_option(name: str, table: Mapping[str, Any]) -> tuple[str, str]:
    """Return the section and the key of an option."""
    if name == "model":
        return "model", "name"
    first, dot, rest = name.replace("-", "_").partition(".")
    if dot and first in get_section_fields(get_recipes().values()):
        reject_other_task_option(name, [first], rest, table)
        return first, rest
    matching_sections = [
        section for section in list_short_sections(table) if not dot and first in find_known_fields(section, table)
    ]
    if not dot and first in get_corpus_fields(table):
        matching_sections.append("data.corpus")
    if len(matching_sections) > 1:
        raise RegardError(
            f"--{name} is ambiguous; use {' or '.join(f'--{section}.{name}' for section in matching_sections)}"
        )
    if not matching_sections:
        reject_other_task_option(name, list_short_sections({}), first, table)
        raise build_unknown_option_error(name, table)
    return ("data", f"corpus.{first}") if matching_sections == ["data.corpus"] else (matching_sections[0], first)


def list_short_sections(table: Mapping[str, Any]) -> list[str]:
    """List the sections whose settings can be typed without the name of the section."""
    return [name for name, field in get_section_fields(find_recipes(table)).items() if "whole_name" not in field.marks]


def reject_other_task_option(option: str, sections: Sequence[str], key: str, table: Mapping[str, Any]) -> None:
    """Raise a `RegardError` for an option that only other tasks have."""
    task = find_named_task(table)
    if task is None:
        return
    for section in sections:
        if tasks := find_other_tasks(get_recipes(), task, section, key):
            raise build_other_task_error(f"--{option}", tasks, task)


def build_unknown_option_error(name: str, table: Mapping[str, Any], dashes: str = "--") -> RegardError:
    """Return the error for an unknown option, with what to use instead."""
    key = name.rpartition(".")[2].replace("-", "_")
    model = table.get("model", {}).get("name")
    if model is not None and key in get_all_model_fields():
        setting_names = ", ".join(setting_name.replace("_", "-") for setting_name in get_model_fields(model))
        return RegardError(f"--{name}: {model} has no such setting; it has {setting_names}")
    if key in aliases.SETTINGS and (model or find_named_task(table)):
        settings = aliases.SETTINGS[key][0].replace("_", "-").split("+")
        owner = model or f"the task {find_named_task(table)}"
        return RegardError(
            f"--{name} is {' and '.join(f'--{each}' for each in settings)} here, which {owner} does not have"
        )
    if key in aliases.HINTS:
        return RegardError(f"train: unknown option {dashes}{name}; {aliases.HINTS[key]}")
    short = list_short_sections(table)
    for section in get_section_fields(find_recipes(table)):
        if section not in short and key in find_known_fields(section, table):
            return RegardError(f"train: unknown option {dashes}{name}; did you mean --{section}.{name}?")
    option_names = [key.replace("_", "-") for section in short for key in find_known_fields(section, table)]
    option_names += ["model", "out", "from", "device", "threads", "seeds", "jobs", "quiet"]
    close_matches = get_close_matches(name, option_names, n=1, cutoff=0.7)
    hint = f"did you mean --{close_matches[0]}?" if close_matches else "see regard train --help-all"
    return RegardError(f"train: unknown option {dashes}{name}; {hint}")
