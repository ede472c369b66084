"""`regard train`: from data to a run folder."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.cli.devices import chosen_device
from regard.cli.names import as_typed
from regard.errors import RegardError

USAGE = """\
Usage: regard train DATA --out FOLDER [--model NAME] [--SETTING VALUE ...]

Train a model on pairs of texts. DATA is a file of pairs (.tsv, .csv, .jsonl, .tmx, .po,
.mo, also .gz, or - for stdin), a built-in corpus ({corpora}),
or a recipe (.toml). Two files, line by line, are given by --source and --target. What is
not set is chosen to suit the data. The same command again goes on where it stopped.

  --out FOLDER     where the run goes
  --from RUN       start from a trained run: its tokenizer, model and parameters
  --device NAME    auto (the default), cpu, cuda, cuda:1
  --quiet          say nothing; everything is in the run's log

Settings, by their whole name or by the last part of it where no other has it:
"""

Words = Annotated[str, Parameter(allow_leading_hyphen=True)]


@dataclass
class Line:
    """What stands on a command line: data, the command's own options, and settings of the recipe."""

    data: list[str] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    settings: list[tuple[str, str]] = field(default_factory=list)


OWN = ("out", "from", "device", "quiet", "help")


def train(*words: Words) -> None:
    """Train a model on pairs of texts."""
    if not words or "--help" in words or "-h" in words:
        print_help(words)
        return
    from regard.recipe import override
    from regard.training.train import train as train_run

    line = parsed(words)
    table, where = recipe_of(line)
    table = override(table, line.settings)
    if "out" not in line.own:
        raise RegardError("train: --out is missing; give the folder where the run shall go")
    out = Path(line.own["out"])
    base = Path(line.own["from"]) if "from" in line.own else None
    quiet = "quiet" in line.own
    device = chosen_device(line.own.get("device", "auto"))
    counters = train_run(table, out, device=device, base=base, quiet=quiet, where=where)
    if not quiet:
        print(f"trained {counters.step} steps in {counters.seconds:.0f} s; the run is {out}", file=sys.stderr)
        print(f"go on: {as_typed()} predict {out} < in.txt > out.txt", file=sys.stderr)


def parsed(words: Sequence[str]) -> Line:
    """The words of a command line in their places."""
    line = Line()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            line.data.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if name == "quiet":
            line.own["quiet"] = "true"
            continue
        if not equals:
            value = next_value(name, rest)
        if name in OWN:
            line.own[name] = value
        else:
            line.settings.append((name, value))
    if len(line.data) > 1:
        raise RegardError(f"train: found {' and '.join(line.data)}; one file of pairs, corpus or recipe is needed")
    return line


def next_value(name: str, rest: list[str]) -> str:
    """The value behind an option; a setting that is true or false may go without."""
    if is_flag(name) and not (rest and rest[0].lower() in ("true", "false", "yes", "no")):
        return "true"
    if not rest or rest[0].startswith("--"):
        raise RegardError(f"--{name}: a value is missing")
    return rest.pop(0)


def is_flag(name: str) -> bool:
    """Whether a setting is true or false."""
    from regard.recipe import known_fields

    key = name.rpartition(".")[2].replace("-", "_")
    sections = ("data", "text", "model", "training", "decoding")
    found = [known_fields(section, {}, "")[key] for section in sections if key in known_fields(section, {}, "")]
    return bool(found) and all(each.type is bool for each in found)


def recipe_of(line: Line) -> tuple[dict[str, Any], str]:
    """The recipe that a command line begins with, and what it is called."""
    from regard.recipe import read_recipe

    if not line.data:
        return {}, "command line"
    if line.data[0].endswith(".toml"):
        return read_recipe(Path(line.data[0])), line.data[0]
    return {"data": {"train": line.data[0]}}, "command line"


def print_help(words: Sequence[str]) -> None:
    """All options, those of one preset if it is named."""
    from regard.data.corpora import CORPORA

    print(USAGE.format(corpora=", ".join(CORPORA)))
    chosen = words[words.index("--model") + 1] if "--model" in words[:-1] else None
    for line in settings_help(chosen):
        print(line)
    print("\nExample: regard train dates --model bahdanau --out runs/dates")


def settings_help(model: str | None) -> Iterator[str]:
    """Every setting with its default and what it is."""
    from regard.models import MODELS
    from regard.recipe import known_fields
    from regard.settings import shown

    table = {"model": {"name": model}} if model else {}
    yield f"  --model NAME  {', '.join(MODELS)}"
    for section in ("data", "text", "model", "training", "decoding"):
        yield ""
        for name, each in known_fields(section, table, "--model").items():
            default = "" if each.default is dataclasses.MISSING else f" [{shown(each.default)}]"
            yield f"  --{section}.{name}{default}  {each.help}".rstrip()
