"""`regard train --seeds`: train one recipe with several seeds, and report mean and spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.bounds import SEED_BOUNDS, Bounds
from regard.cli.command_name import get_command_name
from regard.errors import RegardError
from regard.messages import print_message
from regard.recipe import resolve_paths
from regard.run import SEEDS_FILE
from regard.settings import Table, parse_value
from regard.tasks import find_task, get_recipes, to_recipe
from regard.training import stop

if TYPE_CHECKING:
    from regard.compare.seeds import SeedPlan

SEED_COUNT = Bounds(1, 1000)


def is_seeds_folder(out: str | None) -> bool:
    """Return whether a folder holds trainings with several seeds."""
    return out is not None and (Path(out) / SEEDS_FILE).is_file()


def train_seeds(table: Table, options: Mapping[str, str], device: str, *, recipe_name: str, quiet: bool) -> None:
    """Train with all seeds, or resume the trainings of a folder, and report the results.

    Args:
        table: The recipe; empty to take that of the folder.
        options: The options of the command: out, seeds, jobs and from.
        device: The device to train on.
        recipe_name: The name of the recipe in error messages.
        quiet: Print only results.
    """
    from regard.compare.seeds import read_seed_results, run_seeds, summarize_results

    folder = Path(options["out"])
    jobs: int = parse_value(options.get("jobs", "1"), int, "--jobs")
    SEED_COUNT.check("--jobs", jobs)
    plan = build_seed_plan(table, options, device, recipe_name).save(folder)
    stop.training_reports = True
    try:
        trainings = run_seeds(plan, folder, jobs=jobs, quiet=quiet)
    except KeyboardInterrupt:
        print_message("stopped; run the same command again to resume")
        raise
    results = read_seed_results(plan, folder)
    print("\n".join([*map(str, results), summarize_results(results)]))
    failures = [training for training in trainings if training.state != "done"]
    if failures:
        reason = f"{failures[0].name}: {failures[0].state}"
        raise RegardError(f"{len(failures)} of {len(trainings)} trainings failed; {reason}")
    if not quiet:
        next_command = find_task(plan.recipe).next_command.format(run=folder)
        print_message(f"next: {get_command_name()} {next_command}  (predicts with all {len(results)})")


def build_seed_plan(table: Table, options: Mapping[str, str], device: str, recipe_name: str) -> SeedPlan:
    """Return the plan of the trainings that a command line asks for."""
    from dataclasses import replace

    from regard.compare.seeds import SeedPlan, read_plan

    folder = Path(options["out"])
    saved = read_plan(folder) if is_seeds_folder(options["out"]) else None
    seeds = parse_seeds(options["seeds"]) if "seeds" in options else (saved.seeds if saved is not None else ())
    if saved is not None and not table:
        return replace(saved, seeds=tuple(seeds), device=device)
    check_seed_recipe(table, recipe_name)
    recipe = {section: dict(settings) for section, settings in table.items()}
    resolve_paths(recipe, Path.cwd(), get_recipes().values())  # each training may start in another folder
    recipe.setdefault("data", {}).setdefault("split_seed", 0)  # the same data and tokens for all seeds
    base = None if "from" not in options else str(Path(options["from"]).resolve())
    return SeedPlan(recipe=recipe, seeds=tuple(seeds), device=device, base=base)


def check_seed_recipe(table: Mapping[str, Any], recipe_name: str) -> None:
    """Raise a `RegardError` for a recipe that cannot be trained with several seeds."""
    to_recipe(table, recipe_name)
    find_task(table, recipe_name)
    if "seed" in table.get("training", {}):
        raise RegardError("--seed cannot be combined with --seeds")
    if "-" in table.get("data", {}).values():
        raise RegardError("--seeds: data cannot be read from stdin (-); save it to a file")


def parse_seeds(text: str) -> Sequence[int]:
    """Return the seeds of `--seeds`: a number of seeds, from 0 on, or the seeds themselves, separated by commas."""
    if "," not in text:
        count: int = parse_value(text, int, "--seeds")
        SEED_COUNT.check("--seeds", count)
        return range(count)
    seeds = [parse_value(part, int, "--seeds") for part in text.split(",")]
    for seed in seeds:
        SEED_BOUNDS.check("--seeds", seed)
    if len(set(seeds)) < len(seeds):
        raise RegardError(f"--seeds: a seed is given twice: {text}")
    return seeds
