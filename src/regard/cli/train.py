"""`regard train`: from data to a run folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.cli.devices import chosen_device
from regard.cli.names import as_typed
from regard.cli.train_options import known_fields, no_option, override
from regard.data.corpora import CORPORA
from regard.errors import RegardError
from regard.recipe import section_fields
from regard.run import Run
from regard.settings import fields_of
from regard.tasks import TASKS, read_recipe, recipes

Words = Annotated[str, Parameter(allow_leading_hyphen=True)]

OWN = ("out", "from", "device")
YES_OR_NO = ("true", "false", "yes", "no")


@dataclass
class Line:
    """What stands on a command line: data, the command's own options, and settings of the recipe."""

    data: list[str] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    settings: list[tuple[str, str | None]] = field(default_factory=list)
    quiet: bool = False


def train(*words: Words) -> None:
    """Train a model on the data of a task."""
    if not words:
        raise RegardError("train: nothing is given; regard train DATA --out FOLDER is enough, --help lists all")
    if "--help" in words or "-h" in words:
        from regard.cli.train_help import print_help

        print_help(words)
        return
    from regard.api import train as train_run

    line = parsed(words)
    table, where = recipe_of(line)
    table = override(table, line.settings)
    if "out" not in line.own:
        raise RegardError("train: --out is missing; give the folder where the run shall go")
    out, base = Path(line.own["out"]), Path(line.own["from"]) if "from" in line.own else None
    if base is not None:
        Run(base).read_card()
    device = chosen_device(line.own.get("device", "auto"))
    counters = train_run(table, out, device=device, base=base, quiet=line.quiet, where=where)
    if not line.quiet:
        print(f"trained {counters.step} steps in {counters.seconds:.0f} s; the run is {out}", file=sys.stderr)
        then = TASKS[Run(out).read_card()["task"]].next_step.format(run=out)
        print(f"go on: {as_typed()} {then}", file=sys.stderr)


def parsed(words: Sequence[str]) -> Line:
    """The words of a command line in their places."""
    line = Line()
    rest = list(words)
    flag = ""
    while rest:
        word = rest.pop(0)
        if word == "--quiet":
            line.quiet = True
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            given = value if equals else next_value(name, rest)
            take(line, name, given)
            if given is None and rest and not rest[0].startswith("--"):
                flag = f" (--{name} is true or false)"
        elif word.startswith("-") and word != "-":
            raise no_option(word[1:].partition("=")[0], {}, dashes="-")
        else:
            line.data.append(word)
    if len(line.data) > 1:
        raise RegardError(f"train: found {' and '.join(line.data)}; one file, folder, corpus or recipe is needed{flag}")
    return line


def take(line: Line, name: str, value: str | None) -> None:
    """Put an option in its place."""
    if name == "quiet":
        raise RegardError("--quiet: takes no value")
    if name not in OWN:
        line.settings.append((name, value))
    elif not value:
        raise RegardError(f"--{name}: a value is missing")
    else:
        line.own[name] = value


def next_value(name: str, rest: list[str]) -> str | None:
    """The value behind an option, if there is one; a setting that is true or false takes no other word for it."""
    if not rest or rest[0].startswith("--") or (is_flag(name) and rest[0].lower() not in YES_OR_NO):
        return None
    return rest.pop(0)


def is_flag(name: str) -> bool:
    """Whether a setting is true or false, in all sections, models and corpora that have it."""
    key = name.rpartition(".")[2].replace("-", "_")
    sections = section_fields(recipes().values())
    tables = [*(known_fields(section, {}) for section in sections), *map(fields_of, CORPORA.values())]
    found = [known[key] for known in tables if key in known]
    return bool(found) and all(each.type is bool for each in found)


def recipe_of(line: Line) -> tuple[dict[str, Any], str]:
    """The recipe that a command line begins with, and what it is called together with the rest of the line."""
    if not line.data:
        return {}, "command line"
    if line.data[0].endswith(".toml"):
        path = Path(line.data[0])
        return read_recipe(path), f"{path} and command line" if line.settings else str(path)
    return {"data": {"train": line.data[0]}}, "command line"
