"""`regard inspect`: what a run is, without loading its parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.run import READING, Checkpoint, Run, checkpoints_of
from regard.settings import from_part, shown
from regard.tasks import task_of, to_recipe
from regard.tasks.actions import Flag
from regard.tasks.base import count_of

if TYPE_CHECKING:
    from regard.recipe import Recipe


@dataclass(frozen=True)
class Best:
    """The best validation."""

    metric: str
    value: float
    step: int


@dataclass(frozen=True)
class Card:
    """What is told of a run's card."""

    model: str
    parameters: int
    regard: str


@dataclass(frozen=True)
class Validation:
    """What is told of a line of metrics, besides what it found."""

    step: int
    tokens: int
    seconds: float


def inspect(run: Path, /, *, as_json: Annotated[Flag, Parameter("--json")] = False) -> None:
    """Say what a model is, how it was trained and how good it was.

    Args:
        run: A run folder made by regard train.
        as_json: Print one JSON object: the card, the recipe and what each validation found.
    """
    found = Run(run)
    card, table, metrics = found.read_card(), found.read_recipe(), found.metrics()
    recipe = to_recipe(table, str(found.recipe_file))
    if as_json:
        print(json.dumps({"card": card, "recipe": table, "metrics": metrics}, ensure_ascii=False))
        return
    print("\n".join(described(found, card, recipe, metrics)))


def described(run: Run, card: dict[str, Any], recipe: Recipe, metrics: list[dict[str, Any]]) -> Iterator[str]:
    """The run in plain words."""
    where, told = str(run.card_file), from_part(Card, card, str(run.card_file))
    task, training = task_of(recipe.table()), recipe.training
    yield f"{run.path}: {told.model}, {count_of(told.parameters, 'parameter')}, made by regard {told.regard}"
    yield f"model: {', '.join(f'{name} {shown(value)}' for name, value in recipe.model.items() if name != 'name')}"
    yield from task.describe(card, run)
    yield (
        f"training: up to {count_of(training.steps, 'update')} of {count_of(training.tokens, task.batch_unit)}, "
        f"rate {shown(training.rate)}, seed {training.seed}"
    )
    if "from" in card:
        yield f"started from: {card['from']}"
    if metrics:
        yield from last_validation(metrics[-1], str(run.metrics_file), task.learnt_unit)
    yield best_validation(card.get("best"), f"{where}: [best]")
    checkpoints = checkpoints_of(run)
    yield f"checkpoints: {', '.join(str(each.step) for each in checkpoints) or 'none'}"
    yield state_of(checkpoints, checkpoints_of(Run(run.path / READING)))


def state_of(checkpoints: Sequence[Checkpoint], reading: Sequence[Checkpoint]) -> str:
    """Whether training is over, or the reading of unlabelled text before it."""
    if not checkpoints and reading:
        done = reading[-1].state().get("finished")
        where = "the labels" if done else f"update {reading[-1].step:,} of the reading"
        return f"state: not finished; training would go on with {where}"
    if not checkpoints:
        return "state: no checkpoint, so training would begin anew"
    newest = checkpoints[-1]
    if newest.state().get("finished"):
        return f"state: finished at update {newest.step:,}"
    return f"state: not finished; training would go on from update {newest.step:,}"


def last_validation(line: Mapping[str, Any], where: str, unit: str) -> Iterator[str]:
    """How far training came, and what the last validation found."""
    told = from_part(Validation, line, where)
    yield f"trained: {count_of(told.step, 'update')}, {count_of(told.tokens, unit)}, {told.seconds:.0f} s"
    found = {name.removeprefix("valid_"): value for name, value in line.items() if name.startswith("valid_")}
    yield f"last validation: {', '.join(f'{name} {rounded(value)}' for name, value in found.items())}"


def best_validation(best: Any, where: str) -> str:
    """What the parameters are worth that were kept."""
    if best is None:
        return "best: none yet"
    told = from_part(Best, best, where)
    return f"best: {told.metric} {rounded(told.value)} at update {told.step:,}"


def rounded(value: Any) -> str:
    """A number in four digits, or whatever else stands in its place."""
    return f"{value:.4g}" if isinstance(value, (int, float)) else shown(value)
