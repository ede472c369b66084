"""Train one recipe with several seeds in one folder, each in a process of its own.

python -m regard.compare.seeds FOLDER SEED
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from regard.api import train
from regard.bounds import SEED_BOUNDS
from regard.compare.schedule import Training, run_trainings
from regard.data.pair_check import pluralize
from regard.errors import RegardError
from regard.files import read_json_table, write_text
from regard.messages import print_message
from regard.run import SEEDS_FILE, Run, get_member
from regard.settings import Table, format_value, parse_settings
from regard.training.reporter import FRACTION_METRICS, format_metric
from regard.training.resume import flatten_table

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class SeedPlan:
    """The recipe of all trainings, their seeds, and the run that they start from, if any."""

    recipe: Table
    seeds: tuple[int, ...]
    device: str = "cpu"
    base: str | None = None

    def save(self, folder: Path) -> SeedPlan:
        """Write the plan to a folder, together with the seeds that are there already, and return it.

        Raises:
            RegardError: The folder holds something else, or trainings with other settings.
        """
        plan = self
        if (folder / SEEDS_FILE).exists():
            saved = read_plan(folder)
            if difference := self.describe_difference(saved):
                raise RegardError(
                    f"{folder}: cannot resume: trainings were started {difference}; choose another --out, or run the "
                    "same command to resume them"
                )
            plan = replace(self, seeds=tuple(dict.fromkeys((*saved.seeds, *self.seeds))))
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RegardError(f"{folder} is not empty and holds no trainings with several seeds; choose another --out")
        content = json.dumps({"format": FORMAT, **asdict(plan)}, indent=2, ensure_ascii=False)
        write_text(folder / SEEDS_FILE, content + "\n")
        return plan

    def describe_difference(self, saved: SeedPlan) -> str | None:
        """Describe the first setting in which a saved plan differs, with both values; None if no setting does."""
        if saved.base != self.base:
            starts = ["without --from" if base is None else f"with --from {base}" for base in (saved.base, self.base)]
            return f"{starts[0]}, now {starts[1]}"
        before, now = flatten_table(saved.recipe), flatten_table(self.recipe)
        names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if not names:
            return None
        values = [format_value(table[names[0]]) if names[0] in table else "the default" for table in (before, now)]
        more = f"; {pluralize(len(names) - 1, 'more setting')} changed" if len(names) > 1 else ""
        return f"with {names[0]} = {values[0]}, got {values[1]}{more}"


@dataclass(frozen=True)
class SeedResult:
    """The best validation of one training."""

    seed: int
    metric: str
    value: float
    step: int

    def __str__(self) -> str:
        return f"seed {self.seed}: {format_metric(self.metric, self.value)} at step {self.step:,}"


def read_plan(folder: Path) -> SeedPlan:
    """Read the plan of a folder."""
    path = folder / SEEDS_FILE
    record = read_json_table(path)
    if record.pop("format", None) != FORMAT:
        raise RegardError(f"{path}: expected a plan of format {FORMAT}")
    plan = parse_settings(SeedPlan, record, f"{path} is corrupt: plan")
    for seed in plan.seeds:
        SEED_BOUNDS.check(f"{path} is corrupt: seeds", seed)
    return plan


def get_seed_result_file(folder: Path, seed: int) -> Path:
    """Return the file of the result of a seed."""
    return folder / "results" / f"seed-{seed}.json"


def run_seeds(plan: SeedPlan, folder: Path, *, jobs: int, quiet: bool) -> list[Training]:
    """Run all trainings that have no result yet; return all with their state."""
    trainings = [
        Training(
            seed=seed,
            command=[sys.executable, "-m", "regard.compare.seeds", str(folder), str(seed)],
            run=get_member(folder, seed),
            result=get_seed_result_file(folder, seed),
            log=get_seed_result_file(folder, seed).with_suffix(".log"),
        )
        for seed in plan.seeds
    ]
    run_trainings(trainings, jobs=jobs, quiet=quiet)
    return trainings


def run_seed(plan: SeedPlan, folder: Path, seed: int) -> None:
    """Train with a seed, or resume its training, and write the result."""
    recipe = {**plan.recipe, "training": {**plan.recipe.get("training", {}), "seed": seed}}
    run = get_member(folder, seed)
    train(recipe, run, device=plan.device, base=plan.base, quiet=True, recipe_name=f"seed {seed}")
    best: dict[str, Any] = Run(run).read_card()["best"]
    result = SeedResult(seed, best["metric"], best["value"], best["step"])
    write_text(get_seed_result_file(folder, seed), json.dumps(asdict(result)) + "\n")


def read_seed_results(plan: SeedPlan, folder: Path) -> list[SeedResult]:
    """Read the results of all seeds that have one."""
    files = [get_seed_result_file(folder, seed) for seed in plan.seeds]
    return [SeedResult(**read_json_table(file)) for file in files if file.exists()]


def summarize_results(results: Sequence[SeedResult]) -> str:
    """Return the mean and the spread of the best validations in one line."""
    metric, values = results[0].metric, [result.value for result in results]
    line = f"mean of {pluralize(len(results), 'seed')}: {format_metric(metric, mean(values))}"
    if len(values) == 1:
        return line
    scale, digits = (100, 1) if metric.removeprefix("valid_") in FRACTION_METRICS else (1, 3)
    numbers = {"standard deviation": stdev(values), "lowest": min(values), "highest": max(values)}
    return f"{line} ({', '.join(f'{name} {scale * value:.{digits}f}' for name, value in numbers.items())})"


def main(arguments: Sequence[str]) -> int:
    """Run the training that the arguments name; errors of the user are one line on stderr and status 2."""
    folder, seed = Path(arguments[0]), int(arguments[1])
    try:
        run_seed(read_plan(folder), folder, seed)
    except RegardError as error:
        print_message(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
