"""Print the help of `regard train`, from the dataclasses that hold the settings."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from regard import aliases
from regard.attention.scores import SCORES
from regard.cli.train_options import find_known_fields, find_named_task, find_recipes, override
from regard.data.corpora import CORPORA
from regard.models import MODELS
from regard.recipe import get_model_fields, get_section_fields
from regard.settings import Field, get_fields
from regard.tasks import TASKS
from regard.tasks.built_in import list_corpora

WIDTH, COLUMN, TASK_COLUMN = 98, 32, 10

USAGE = """\
Usage: regard train DATA --out FOLDER [OPTIONS]

Train a model. Defaults are chosen to suit the data. Run the same command again to resume.

DATA is one of:
{tasks}
  recipe  a file of settings (.toml)
{corpora}
"""

COMMON = {
    "--out FOLDER": "folder for the run (required)",
    "--model NAME": "{models}",
    "--task NAME": "pairs, text, label or tag; required if neither the model nor DATA implies it",
    "--validation FILE": "validation data; by default 5 % of the training data",
    "--steps N, --epochs N": "how long to train; training stops early after --patience validations without progress",
    "--learning-rate X, --lr X": "peak learning rate",
    "--batch-tokens N": "batch size in tokens, padding included",
    "--layers N, --hidden N": "size of the model; --width N for transformer, gpt and gpt2",
    "--dropout X": "dropout rate",
    "--from RUN": "fine-tune: start from the tokenizer, model and parameters of a trained run",
    "--device NAME": "auto (a GPU if there is one), cpu, cuda, cuda:1",
    "--threads N": "number of CPU threads; chosen by torch by default",
    "--seeds N, --jobs N": "train with seeds 0 to N-1 (or --seeds 1,5,7) into one folder, some at the same time",
    "--quiet": "print nothing; everything is in the run's log",
}
"""The options that most people need."""

MORE = """\
All settings:          regard train --help-all
Settings of a model:   regard train --model bahdanau --help
"""

SECTIONS = """
Settings have full names (--training.steps) and short ones (--steps) where only one section has
the name. Defaults are in brackets; without brackets, the default depends on the data. Flags
(options without N, X or VALUE) can be set to true or false.
"""

DATA_DEPENDENT = ("dropout", "embedding", "hidden", "width")
"""Settings of models whose default depends on the data."""


def print_help(words: Sequence[str]) -> None:
    """Print the common options; all settings for --help-all, and those of a named model, task or corpus."""
    corpus = next((word for word in words if word in CORPORA), None)
    task = find_option_value("task", words) or (CORPORA[corpus].task if corpus is not None else None)
    named = {"model": find_option_value("model", words), "task": aliases.TASKS.get(task or "", task)}
    table = override({}, [(name, value) for name, value in named.items() if value is not None])
    example = f"Example: {TASKS[find_named_task(table) or next(reversed(TASKS))].example}"
    if "--help-all" in words or table or corpus is not None:
        print("\n".join([USAGE.splitlines()[0], SECTIONS.rstrip(), *iter_settings(table, corpus), "", example]))
        return
    tasks = "\n".join(
        line for task in reversed(TASKS.values()) for line in iter_row(task.name, task.data_help, TASK_COLUMN)
    )
    options = [
        line for option, text in COMMON.items() for line in iter_row(option, text.format(models=", ".join(MODELS)))
    ]
    built_in = "; ".join(f"{', '.join(list_corpora(name))} ({name})" for name in reversed(TASKS))
    corpora = "\n".join(iter_row("corpus", f"built-in: {built_in}", TASK_COLUMN))
    print("\n".join([USAGE.format(tasks=tasks, corpora=corpora), *options, "", MORE, example]))


def find_option_value(option: str, words: Sequence[str]) -> str | None:
    """Return the value that a command line gives to an option, or None."""
    for word, after in pairwise([*words, "-"]):
        if word.startswith(f"--{option}="):
            return word.removeprefix(f"--{option}=")
        if word == f"--{option}" and not after.startswith("-"):
            return after
    return None


def iter_settings(table: Mapping[str, Any], corpus: str | None) -> Iterator[str]:
    """Yield the help of every setting of the task and the model that a table names, section by section."""
    for name, section in get_section_fields(find_recipes(table)).items():
        if name == "model":
            for title, fields in iter_model_sections(table.get("model", {}).get("name"), find_named_task(table)):
                yield from iter_section("model", fields, title)
            continue
        fields = find_known_fields(name, table)
        yield from iter_section(name, fields, section.help, skip=("corpus",))
        if "corpus" in fields and corpus is not None:
            yield from iter_section("data.corpus", get_fields(CORPORA[corpus]), f"the built-in corpus {corpus}")
        elif "corpus" in fields:
            text = "setting of a built-in corpus, listed by: regard train dates --help"
            yield from iter_row("--data.corpus.NAME VALUE", text)


def iter_model_sections(model: str | None, task: str | None) -> Iterator[tuple[str, dict[str, Field]]]:
    """Yield a title and the settings of a preset with its defaults, or of each kind of model, of one task if named."""
    if model is not None:
        fields = get_model_fields(model, "--model")
        preset = MODELS[model].settings
        yield (
            ", ".join(filter(None, [model, MODELS[model].source])),
            {
                name: dataclasses.replace(field, default=preset.get(name, field.default))
                for name, field in fields.items()
            },
        )
        return
    names_by_config: dict[type, list[str]] = {}
    for name, preset_of_name in MODELS.items():
        if task in (None, preset_of_name.task):
            names_by_config.setdefault(preset_of_name.config, []).append(name)
    for names in names_by_config.values():
        yield ", ".join(names), get_model_fields(names[0])


def iter_section(name: str, fields: Mapping[str, Field], title: str, skip: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of a section of settings."""
    yield ""
    yield from textwrap.wrap(f"{name}: {title}", WIDTH)
    for key, field in fields.items():
        if key not in skip:
            depends = name == "model" and key in DATA_DEPENDENT
            yield from iter_row(
                f"--{name}.{key.replace('_', '-')}{get_placeholder(field.type)}", describe(field, depends)
            )


def get_placeholder(kind: Any) -> str:
    """Return what stands for the value of an option."""
    if kind is bool:
        return ""
    kinds = {int: " N", float: " X"}
    return next((kinds[each] for each in (kind, *get_args(kind)) if each in kinds), " VALUE")


def describe(field: Field, data_dependent: bool) -> str:
    """Describe a setting: what it is, its values and its default."""
    choices = get_choices(field)
    mentioned = set(field.help.replace(",", " ").split())
    listed = f" ({', '.join(choices)})" if set(choices) - mentioned else ""
    return f"{field.help}{listed}{'' if data_dependent else format_default(field)}".strip()


def get_choices(field: Field) -> list[str]:
    """Return the values that a setting can have, if there are only some."""
    tables = {"score": SCORES, "task": TASKS}
    if field.name in tables:
        return list(tables[field.name])
    kinds = [kind for kind in (field.type, *get_args(field.type)) if get_origin(kind) is Literal]
    flags = ["true", "false"] if bool in get_args(field.type) else []
    return [*flags, *(str(choice) for kind in kinds for choice in get_args(kind))]


def format_default(field: Field) -> str:
    """Format the default in brackets, or return nothing if there is none."""
    if field.default in (dataclasses.MISSING, None, (), {}, ""):
        return ""
    value = field.default
    if isinstance(value, tuple):
        return f" [{', '.join(map(str, value))}]"
    return f" [{str(value).lower() if isinstance(value, bool) else value}]"


def iter_row(option: str, text: str, column: int = COLUMN) -> Iterator[str]:
    """Yield the lines of an option and its help."""
    lines = textwrap.wrap(text, WIDTH - column, break_long_words=False, break_on_hyphens=False)
    first = f"  {option}"
    if len(first) >= column:
        yield first
        first = ""
    for line in lines or [""]:
        yield f"{first:{column}}{line}".rstrip()
        first = ""
