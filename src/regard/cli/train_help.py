"""What `regard train --help` prints: every setting, from the dataclasses that have them."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from regard.attention.scores import SCORES
from regard.cli.train_options import known_fields, named_task, override, recipes_for
from regard.data.corpora import CORPORA
from regard.models import MODELS
from regard.recipe import model_fields, section_fields
from regard.settings import Field, fields_of
from regard.tasks import TASKS

WIDTH, COLUMN, TASK_COLUMN = 98, 32, 12

USAGE = """\
Usage: regard train DATA --out FOLDER [--model NAME] [--SETTING VALUE ...]

Train a model. What is not set is chosen to suit the data. The same command again goes on where
it stopped. What is learnt is told by the model, by --task, or by DATA:

{tasks}
  recipe    a file of settings (.toml), whatever it is for

The built-in corpora are {corpora}.
"""

OWN = {
    "--out FOLDER": "where the run goes",
    "--model NAME": "{models}; with --help, its settings alone",
    "--from RUN": "start from a trained run: its tokenizer, model and parameters",
    "--device NAME": "auto (a GPU if there is one), cpu, cuda, cuda:1",
    "--quiet": "say nothing; everything is in the run's log",
}

SECTIONS = """
Settings, as in a recipe, by their whole name or by the last part of it where no other has
it: --training.steps or --steps. Defaults are in brackets. What stands without a VALUE is
true or false, and true if nothing follows.
"""

SUITED = ("dropout", "embedding", "hidden", "width")
"""Settings of models whose default is chosen to suit the data."""


def print_help(words: Sequence[str]) -> None:
    """All options; of one task, one preset and one built-in corpus, if they are named."""
    corpus = next((word for word in words if word in CORPORA), None)
    own = [line for option, what in OWN.items() for line in row(option, what.format(models=", ".join(MODELS)))]
    table = override({}, [(name, value) for name in ("model", "task") if (value := named(name, words)) is not None])
    tasks = "\n".join(line for task in reversed(TASKS.values()) for line in row(task.name, task.reads, TASK_COLUMN))
    usage = USAGE.format(tasks=tasks, corpora=", ".join(CORPORA))
    example = f"Example: {TASKS[named_task(table) or next(reversed(TASKS))].example}"
    print("\n".join([usage, *own, SECTIONS.rstrip(), *settings_lines(table, corpus), "", example]))


def named(option: str, words: Sequence[str]) -> str | None:
    """The value that a command line gives to an option."""
    for word, after in pairwise([*words, "-"]):
        if word.startswith(f"--{option}="):
            return word.removeprefix(f"--{option}=")
        if word == f"--{option}" and not after.startswith("-"):
            return after
    return None


def settings_lines(table: Mapping[str, Any], corpus: str | None) -> Iterator[str]:
    """Every setting of the task and the model that a table names, section by section."""
    for name, each in section_fields(recipes_for(table)).items():
        if name == "model":
            for title, known in model_sections(table.get("model", {}).get("name"), named_task(table)):
                yield from section("model", known, title)
            continue
        known = known_fields(name, table)
        yield from section(name, known, each.help, without=("corpus",))
        if "corpus" in known and corpus is not None:
            yield from section("data.corpus", fields_of(CORPORA[corpus]), f"the built-in corpus {corpus}")
        elif "corpus" in known:
            what = "of a built-in corpus: regard train dates --help lists those of one"
            yield from row("--data.corpus.NAME VALUE", what)


def model_sections(model: str | None, task: str | None) -> Iterator[tuple[str, dict[str, Field]]]:
    """The settings of a preset with its own defaults, or of each kind of model, of one task if it is named."""
    if model is not None:
        known = model_fields(model, "--model")
        own = MODELS[model].settings
        yield (
            model,
            {name: dataclasses.replace(each, default=own.get(name, each.default)) for name, each in known.items()},
        )
        return
    kinds: dict[type, list[str]] = {}
    for name, preset in MODELS.items():
        if task in (None, preset.task):
            kinds.setdefault(preset.config, []).append(name)
    for names in kinds.values():
        yield ", ".join(names), model_fields(names[0])


def section(name: str, known: Mapping[str, Field], title: str, without: Sequence[str] = ()) -> Iterator[str]:
    """A section of settings under its title."""
    yield ""
    yield from textwrap.wrap(f"{name}: {title}", WIDTH)
    for key, each in known.items():
        if key not in without:
            suited = name == "model" and key in SUITED
            yield from row(f"--{name}.{key.replace('_', '-')}{value_of(each.type)}", described(each, suited))


def value_of(kind: Any) -> str:
    """What goes behind an option."""
    if kind is bool:
        return ""
    kinds = {int: " N", float: " X"}
    return next((kinds[each] for each in (kind, *get_args(kind)) if each in kinds), " VALUE")


def described(each: Field, suited: bool) -> str:
    """What a setting is, what it can be, and its default."""
    choices = choices_of(each)
    said = set(each.help.replace(",", " ").split())
    listed = f" ({', '.join(choices)})" if set(choices) - said else ""
    return f"{each.help}{listed}{'' if suited else default_of(each)}".strip()


def choices_of(each: Field) -> list[str]:
    """The words that a setting can be, where there are only some."""
    tables = {"score": SCORES, "task": TASKS}
    if each.name in tables:
        return list(tables[each.name])
    kinds = [kind for kind in (each.type, *get_args(each.type)) if get_origin(kind) is Literal]
    also = ["true", "false"] if bool in get_args(each.type) else []
    return [*also, *(str(choice) for kind in kinds for choice in get_args(kind))]


def default_of(each: Field) -> str:
    """The default in brackets, where there is one."""
    if each.default in (dataclasses.MISSING, None, (), {}, ""):
        return ""
    value = each.default
    if isinstance(value, tuple):
        return f" [{', '.join(map(str, value))}]"
    return f" [{str(value).lower() if isinstance(value, bool) else value}]"


def row(option: str, what: str, column: int = COLUMN) -> Iterator[str]:
    """An option, and what it is beside it."""
    lines = textwrap.wrap(what, WIDTH - column, break_long_words=False, break_on_hyphens=False)
    first = f"  {option}"
    if len(first) >= column:
        yield first
        first = ""
    for line in lines or [""]:
        yield f"{first:{column}}{line}".rstrip()
        first = ""
