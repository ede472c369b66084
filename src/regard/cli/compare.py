"""`regard compare`: train several models under the same conditions and write one report."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.bounds import Bounds, check_bounds
from regard.cli.devices import resolve_device
from regard.cli.threads import set_threads
from regard.cli.train import (
    HELP,
    YES_OR_NO,
    TrainArguments,
    Words,
    is_option,
    parse_arguments,
    read_recipe_table,
    take_value,
)
from regard.cli.train_options import override
from regard.errors import RegardError
from regard.messages import print_message
from regard.recipe import resolve_paths
from regard.settings import Table, parse_value
from regard.tasks import find_task, get_recipes
from regard.tasks.built_in import is_built_in

if TYPE_CHECKING:
    from regard.compare.plan import Plan, Variant

COMPARE_HELP = """\
Usage: regard compare DATA --out FOLDER [OPTIONS] [SETTINGS]

Train several models on the same data under the same budget, test all of them, and write a report:
report.html (self-contained) and report.md, with scores and intervals, quality by length, learning
curves, time and memory, and the attention of every model for the same texts. Run the same command
again to resume; add models or seeds to extend it.

  DATA                    as for regard train: a file, a folder, a built-in corpus or a recipe
  --out FOLDER            the folder of the comparison

What to compare
  --models A,B,C          models, by their preset names
  --scores A,B            score functions of the attention, as --set model.score=A,B
  --set NAME=A,B          values of any setting, as in model.pooling=attention,mean; repeatable: all combinations

How
  --seeds N               train every model with seeds 0 to N-1 (default: 1)
  --steps N               budget: updates (default: what the first model would get by itself)
  --tokens N              budget: target tokens
  --minutes N             budget: minutes of training for each model, without validations
  --match-parameters      change the width of each model to match the parameters of the first
  --test FILE             test data (default: new examples of a built-in corpus, else the validation part)
  --texts FILE            texts whose attention to show, one per line (default: three test items)
  --jobs N                trainings at the same time (default: 1)
  --device auto           auto, cpu, cuda or cuda:1
  --threads N             CPU threads of each training (default: chosen by torch)
  --quiet                 print no progress

All settings of regard train can be given, too, and apply to every model: --hidden 128 --validation FILE.

Example: regard compare dates --models seq2seq,bahdanau --steps 1000 --out runs/story
"""

VALUE_OPTIONS = ("models", "scores", "set", "seeds", "tokens", "minutes", "test", "texts", "jobs")


@dataclass
class CompareArguments:
    """The options of the command itself; all others are those of `regard train`."""

    models: list[str] = field(default_factory=list)
    sets: list[tuple[str, list[str]]] = field(default_factory=list)  # setting, values
    typed: dict[str, str] = field(default_factory=dict)  # setting -> the option that was typed for it
    seeds: Annotated[int, Bounds(1, 1000)] = 1
    tokens: Annotated[int, Bounds(1, 10**15)] | None = None
    minutes: Annotated[float, Bounds(exclusive_minimum=0, maximum=100_000)] | None = None
    test: str | None = None
    texts: str | None = None
    jobs: Annotated[int, Bounds(1, 1000)] = 1
    match_parameters: bool = False
    threads: int | None = None


def compare(*words: Words) -> None:
    """Train and compare several models."""
    if not words or any(word in HELP for word in words):
        print(COMPARE_HELP, end="")
        return
    own, rest = split_arguments(words)
    line = parse_arguments(rest)
    if "out" not in line.options:
        raise RegardError("compare: --out is required: the folder of the comparison")
    if "from" in line.options:
        raise RegardError("compare: --from cannot be combined with compare; every model starts anew")
    if not line.data:
        raise RegardError("compare: DATA is required, as in: regard compare pairs.tsv --models seq2seq,bahdanau")
    if "threads" in line.options:
        own.threads = parse_value(line.options["threads"], int, "--threads")
        set_threads(own.threads)  # of every training, too
    table, _ = read_recipe_table(line)
    variants = build_variants(own, table, line.settings)
    run_comparison(own, variants, line, shlex.join(["regard", "compare", *words]))


def split_arguments(words: Sequence[str]) -> tuple[CompareArguments, list[str]]:
    """Split the words of the command line into the options of this command and those of `regard train`."""
    own, other, rest = CompareArguments(), list[str](), list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("_", "-")
        if not word.startswith("--") or (name not in VALUE_OPTIONS and name != "match-parameters"):
            other.append(word)
            if is_option(word) and not equals and (following := take_value(name, rest)) is not None:
                other.append(following)
        elif name == "match-parameters":
            own.match_parameters = True
        else:
            text = value if equals else (rest.pop(0) if rest and not rest[0].startswith("--") else "")
            store_option(own, name, text)
    check_bounds(own, "--")
    return own, other


def store_option(own: CompareArguments, name: str, text: str) -> None:
    """Store one option of the command; raise a `RegardError` for an invalid value."""
    if not text:
        raise RegardError(f"--{name} requires a value")
    if name == "models":
        own.models, own.typed["model"] = split_list(name, text), "--models"
    elif name == "scores":
        own.sets.append(("model.score", split_list(name, text)))
        own.typed["model.score"] = "--scores"
    elif name == "set":
        setting, equals, values = text.partition("=")
        if not equals:
            raise RegardError(f"--set: expected NAME=VALUE,VALUE, got {text}")
        own.sets.append((setting, split_list(name, values)))
        own.typed[setting] = f"--set {setting}"
    elif name in ("test", "texts"):
        setattr(own, name, text)
    else:
        setattr(own, name, parse_value(text, float if name == "minutes" else int, f"--{name}"))


def split_list(name: str, text: str) -> list[str]:
    """Split a list at commas."""
    values = [value.strip() for value in text.split(",")]
    if not all(values):
        raise RegardError(f"--{name}: expected values separated by commas, got {text}")
    return list(dict.fromkeys(values))


def build_variants(own: CompareArguments, table: Table, settings: Sequence[tuple[str, str | None]]) -> list[Variant]:
    """Return every combination of models and settings, with its recipe."""
    from regard.compare.plan import Variant

    axes = [[("model", model) for model in own.models]] if own.models else []
    axes += [[(setting, value) for value in values] for setting, values in own.sets]
    combinations = list(itertools.product(*axes))
    if len(combinations) < 2:
        raise RegardError("compare: expected at least two models; pass --models A,B, --scores A,B or --set NAME=A,B")
    variants = []
    for combination in combinations:
        with name_typed_options(own.typed):
            recipe = override(table, [*settings, *combination])
        resolve_paths(recipe, Path.cwd(), get_recipes().values())  # so that a training can be repeated from anywhere
        recipe.setdefault("data", {}).setdefault("split_seed", 0)  # the same validation part for all seeds
        variants.append(Variant(name_variant(combination, own), recipe))
    check_variants(variants)
    return variants


@contextmanager
def name_typed_options(typed: Mapping[str, str]) -> Iterator[None]:
    """Name in errors the options as they were typed, such as --models and --set, which `regard train` does not have."""
    try:
        yield
    except RegardError as error:
        text = str(error).replace("train: unknown option", "compare: unknown option", 1)
        for setting, option in typed.items():
            text = re.sub(rf"--{re.escape(setting)}(?![\w.-])", option, text, count=1)
        raise RegardError(text) from None


def check_variants(variants: Sequence[Variant]) -> None:
    """Raise a `RegardError` for an invalid setting, or models that cannot be compared, before anything is trained."""
    from regard.tasks import find_task, to_recipe

    tasks, metrics = {}, {}
    for variant in variants:
        recipe = to_recipe(variant.table, variant.name)
        tasks[find_task(variant.table, variant.name).name] = variant.name
        metrics[recipe.training.metric] = variant.name
    if len(tasks) > 1:
        described = " and ".join(f"{name} ({task})" for task, name in tasks.items())
        raise RegardError(f"compare: expected models of one task, got {described}")
    if len(metrics) > 1:
        raise RegardError(f"compare: expected one validation metric for all models, got {' and '.join(metrics)}")


def name_variant(combination: Sequence[tuple[str, str]], own: CompareArguments) -> str:
    """Name a variant by what differs: the model, then the settings that have several values."""
    several = {setting for setting, values in own.sets if len(values) > 1}
    parts = [value for setting, value in combination if setting == "model" and len(own.models) > 1]
    differing = [(setting, value) for setting, value in combination if setting in several]
    if len(differing) == 1 and not parts and differing[0][1].isidentifier() and differing[0][1] not in YES_OR_NO:
        return differing[0][1]  # a name, such as that of a score, which says enough
    return " ".join([*parts, *(f"{setting.rpartition('.')[2]}={value}" for setting, value in differing)])


def run_comparison(own: CompareArguments, variants: Sequence[Variant], line: TrainArguments, command: str) -> None:
    """Run all trainings and write the report."""
    from regard.compare.pages import build_rows, write_report
    from regard.compare.report import build_report
    from regard.compare.schedule import run_all
    from regard.views.figure import check_matplotlib

    check_matplotlib()
    folder = Path(line.options["out"])
    plan = build_plan(own, variants, folder, resolve_device(line.options.get("device", "auto")), command)
    plan.save(folder)
    try:
        trainings = run_all(plan, folder, jobs=own.jobs, quiet=line.quiet)
    except KeyboardInterrupt:
        print_message("stopped; run the same command again to resume")
        raise
    failures = {training.name: training.state for training in trainings if training.state != "done"}
    report = build_report(plan, folder, failures, jobs=own.jobs)
    files = write_report(report, folder)
    print_table(build_rows(report))
    if not line.quiet:
        print_message(f"report: {' and '.join(map(str, files))}")
    if failures:
        name, reason = next(iter(failures.items()))
        raise RegardError(f"{len(failures)} of {len(trainings)} trainings failed; {name}: {reason}")


def build_plan(own: CompareArguments, variants: Sequence[Variant], folder: Path, device: str, command: str) -> Plan:
    """Give all models the same budget and, if requested, about the same number of parameters."""
    from regard.compare.plan import Draft, Plan, get_plan_file, match_parameters, read_plan, set_budget

    test, texts = resolve_test(own.test, find_task(variants[0].table).name), read_texts(own.texts)
    drafts = [Draft(variant, device) for variant in variants]
    if own.match_parameters:
        drafts = [Draft(variant, device) for variant in match_parameters(drafts)]
    planned = set_budget(drafts, tokens=own.tokens, minutes=own.minutes)
    if own.minutes is not None and get_plan_file(folder).exists():  # a training that has begun keeps its updates
        saved = {variant.name: variant for variant in read_plan(folder).variants}
        planned = [saved.get(variant.name, variant) for variant in planned]
    return Plan(
        variants=tuple(planned),
        seeds=tuple(range(own.seeds)),
        test=test,
        texts=tuple(texts),
        device=device,
        threads=own.threads,
        command=command,
    )


def resolve_test(test: str | None, task: str) -> str | None:
    """Return the test data with its full path; raise a `RegardError` if it is missing, before anything is trained."""
    if test is None or is_built_in(test, task):
        return test
    if not os.path.exists(test):
        raise RegardError(f"--test: {test}: not found; expected a file or a built-in corpus")
    return os.path.abspath(test)


def read_texts(path: str | None) -> list[str]:
    """Read the texts to look at, one per line."""
    from regard.data.formats import read_lines

    return [] if path is None else [text for text in read_lines(Path(path)) if text.strip()]


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
