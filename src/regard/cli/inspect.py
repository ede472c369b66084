"""`regard inspect`: describe a run without loading its parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.checkpoint import Checkpoint, list_checkpoints
from regard.messages import escape_lines
from regard.recipe import find_preset
from regard.run import PRETRAINING, Run
from regard.settings import format_value, parse_known_settings
from regard.tasks import find_task, to_recipe
from regard.tasks.actions import Flag
from regard.tasks.base import format_count

if TYPE_CHECKING:
    from regard.recipe import Recipe


@dataclass(frozen=True)
class BestMetric:
    """The best validation."""

    metric: str
    value: float
    step: int


@dataclass(frozen=True)
class CardSummary:
    """The fields of a run's card that are shown."""

    model: str
    parameters: int
    regard: str


@dataclass(frozen=True)
class Validation:
    """The fields of a line of metrics that are shown besides the metrics."""

    step: int
    tokens: int
    seconds: float


def inspect(run: Path, /, *, as_json: Annotated[Flag, Parameter("--json")] = False) -> None:
    """Show the model, training and validation scores of a run.

    Args:
        run: Run folder made by regard train.
        as_json: Print one JSON object with the card, the recipe and the metrics of all validations.
    """
    run_folder = Run(run)
    card, table, metrics = run_folder.read_card(), run_folder.read_recipe(), run_folder.read_metrics()
    recipe = to_recipe(table, str(run_folder.recipe_file))
    if as_json:
        print(json.dumps({"card": card, "recipe": table, "metrics": metrics}, ensure_ascii=False))
    else:
        print(escape_lines("\n".join(describe_run(run_folder, card, recipe, metrics))))
    run_folder.check_files()  # after the description, which helps to find out what is left


def describe_run(run: Run, card: dict[str, Any], recipe: Recipe, metrics: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the description of a run."""
    location, card_fields = str(run.card_file), parse_known_settings(CardSummary, card, str(run.card_file))
    task, training = find_task(recipe.to_table()), recipe.training
    parameters = format_count(card_fields.parameters, "parameter")
    yield f"{run.path}: {card_fields.model}, {parameters}, made by regard {card_fields.regard}"
    if source := find_preset(card_fields.model, location).source:
        yield f"preset: {source}"
    sizes = (f"{name} {format_value(value)}" for name, value in recipe.model.items() if name != "name")
    yield f"model: {', '.join(sizes)}"
    yield from task.describe(card, run)
    steps, batch = format_count(training.steps, "step"), format_count(training.batch_tokens, task.batch_unit)
    yield (
        f"training: up to {steps}, batches of {batch}, "
        f"learning rate {format_value(training.learning_rate)}, seed {training.seed}"
    )
    if "from" in card:
        yield f"started from: {card['from']}"
    if metrics:
        yield from describe_last_validation(metrics[-1], str(run.metrics_file), task.learned_unit)
    yield describe_best_validation(card, location)
    checkpoints = list_checkpoints(run)
    yield f"checkpoints: {', '.join(str(checkpoint.step) for checkpoint in checkpoints) or 'none'}"
    yield describe_state(checkpoints, list_checkpoints(Run(run.path / PRETRAINING)))


def describe_state(checkpoints: Sequence[Checkpoint], pretraining: Sequence[Checkpoint]) -> str:
    """Describe how far training, or pretraining, has come."""
    if not checkpoints and pretraining:
        done = pretraining[-1].load_state().get("finished")
        next_stage = "after pretraining" if done else f"at step {pretraining[-1].step:,} of pretraining"
        return f"state: not finished; training would resume {next_stage}"
    if not checkpoints:
        return "state: no checkpoint to resume from"
    newest = checkpoints[-1]
    if newest.load_state().get("finished"):
        return f"state: finished at step {newest.step:,}"
    return f"state: not finished; training would resume at step {newest.step:,}"


def describe_last_validation(line: Mapping[str, Any], location: str, unit: str) -> Iterator[str]:
    """Yield how far training came and the metrics of the last validation."""
    progress = parse_known_settings(Validation, line, location)
    steps, tokens = format_count(progress.step, "step"), format_count(progress.tokens, unit)
    yield f"trained: {steps}, {tokens}, {progress.seconds:.0f} s"
    metrics = {name.removeprefix("valid_"): value for name, value in line.items() if name.startswith("valid_")}
    yield f"last validation: {', '.join(f'{name} {format_number(value)}' for name, value in metrics.items())}"


def describe_best_validation(card: Mapping[str, Any], location: str) -> str:
    """Describe the validation at which the saved parameters were best."""
    if isinstance(unvalidated := card.get("unvalidated"), dict):
        return f"best: none yet; the model is that of step {format_value(unvalidated.get('step'))}, not validated"
    if card.get("best") is None:
        return "best: none yet"
    best_metric = parse_known_settings(BestMetric, card["best"], f"{location}: [best]")
    return f"best: {best_metric.metric} {format_number(best_metric.value)} at step {best_metric.step:,}"


def format_number(value: Any) -> str:
    """Format a fraction with four digits, or any other value as it is."""
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)
