"""`regard train`: from data to a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.cli.command_name import get_command_name
from regard.cli.devices import resolve_device
from regard.cli.threads import set_threads
from regard.cli.train_options import build_unknown_option_error, find_known_fields, override
from regard.cli.train_seeds import is_seeds_folder, train_seeds
from regard.data.corpora import CORPORA
from regard.data.pair_check import pluralize
from regard.errors import RegardError
from regard.messages import print_message
from regard.recipe import get_section_fields
from regard.run import Run
from regard.settings import get_fields, parse_value
from regard.tasks import get_recipes, read_recipe_file

Words = Annotated[str, Parameter(allow_leading_hyphen=True)]

COMMAND_OPTIONS = {
    "out": "out",
    "output": "out",
    "output-dir": "out",
    "save-dir": "out",
    "from": "from",
    "device": "device",
    "threads": "threads",
    "seeds": "seeds",
    "jobs": "jobs",
}
"""Options of the command itself -> the name we give them."""

SHORT_OPTIONS = {"-o": "--out", "-q": "--quiet"}
HELP = ("--help", "-h", "--help-all")

YES_OR_NO = ("true", "false", "yes", "no")


@dataclass
class TrainArguments:
    """The parsed command line: data, options of the command, and settings of the recipe."""

    data: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    settings: list[tuple[str, str | None]] = field(default_factory=list)
    quiet: bool = False


def train(*words: Words) -> None:
    """Train a model on the data of a task."""
    if not words:
        raise RegardError("train: DATA and --out are required, as in: regard train pairs.tsv --out runs/mine")
    if any(word in HELP for word in words):
        from regard.cli.train_help import print_help

        print_help(words)
        return
    from regard.api import train as train_run
    from regard.tasks.loading import get_run_task

    line = parse_arguments(words)
    table, recipe_name = read_recipe_table(line)
    table = override(table, line.settings)
    if "out" not in line.options:
        if line.data and Run(Path(line.data[0])).card_file.is_file():
            raise RegardError(f"{line.data[0]} is a run; to resume it, use regard train --out {line.data[0]}")
        raise RegardError("train: --out is required: the folder for the run")
    out, base = Path(line.options["out"]), Path(line.options["from"]) if "from" in line.options else None
    if base is not None:
        Run(base).read_card()
    device = resolve_device(line.options.get("device", "auto"))
    if "threads" in line.options:
        set_threads(parse_value(line.options["threads"], int, "--threads"))
    if "seeds" in line.options or is_seeds_folder(line.options["out"]):
        train_seeds(table, line.options, device, recipe_name=recipe_name, quiet=line.quiet)
        return
    if "jobs" in line.options:
        raise RegardError("--jobs requires --seeds")
    counters = train_run(table, out, device=device, base=base, quiet=line.quiet, recipe_name=recipe_name)
    if not line.quiet:
        steps = pluralize(counters.step, "step")
        print_message(f"trained {steps} in {counters.seconds:.0f} s; run saved in {out}")
        next_command = get_run_task(out).next_command.format(run=out)
        print_message(f"next: {get_command_name()} {next_command}")


def parse_arguments(words: Sequence[str]) -> TrainArguments:
    """Parse a command line."""
    line = TrainArguments()
    rest = list(words)
    flag = ""
    while rest:
        word = rest.pop(0)
        word = SHORT_OPTIONS.get(word, word)
        if word == "--quiet":
            line.quiet = True
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option_value = value if equals else take_value(name, rest)
            store_option(line, name, option_value)
            if option_value is None and rest and not is_option(rest[0]):
                flag = f" (--{name} takes no value but true or false)"
        elif word.startswith("-") and word != "-":
            raise build_unknown_option_error(word[1:].partition("=")[0], {}, dashes="-")
        else:
            line.data.append(word)
    if len(line.data) > 1:
        names = ", ".join(line.data)
        raise RegardError(f"train: expected one file, folder, corpus or recipe, got {names}{flag}")
    return line


def store_option(line: TrainArguments, name: str, value: str | None) -> None:
    """Store an option of the command or a setting."""
    if name == "quiet":
        raise RegardError("--quiet takes no value")
    option = COMMAND_OPTIONS.get(name.replace("_", "-"))
    if option is None:
        line.settings.append((name, value))
    elif not value:
        raise RegardError(f"--{name} requires a value")
    else:
        line.options[option] = value


def take_value(name: str, rest: list[str]) -> str | None:
    """Remove and return the value after an option, or None; a flag takes no value but true or false."""
    if not rest or is_option(rest[0]) or (is_flag(name) and rest[0].lower() not in YES_OR_NO):
        return None
    return rest.pop(0)


def is_option(word: str) -> bool:
    """Return whether a word is an option of the command line, and no value; negative numbers are values."""
    return word.startswith("--") or word in SHORT_OPTIONS


def is_flag(name: str) -> bool:
    """Return whether a setting is a flag in all sections, models and corpora that have it."""
    key = name.rpartition(".")[2].replace("-", "_")
    sections = get_section_fields(get_recipes().values())
    tables = [*(find_known_fields(section, {}) for section in sections), *map(get_fields, CORPORA.values())]
    settings = [fields[key] for fields in tables if key in fields]
    return bool(settings) and all(setting.type is bool for setting in settings)


def read_recipe_table(line: TrainArguments) -> tuple[dict[str, Any], str]:
    """Read the recipe that a command line names; return it with a name for error messages."""
    if not line.data:
        return {}, "command line"
    if line.data[0].endswith(".toml"):
        path = Path(line.data[0])
        return read_recipe_file(path), f"{path} and command line" if line.settings else str(path)
    return {"data": {"train": line.data[0]}}, "command line"
