"""`regard inspect`: what a run is, without loading its parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.options import Flag
from regard.run import READING, Checkpoint, Run, checkpoints_of
from regard.settings import from_table, shown

if TYPE_CHECKING:
    from regard.recipe import Recipe


UNITS = {"text": "token", "label": "text", "tag": "sentence"}
"""What the data of a task are counted in, where that is not pairs."""

LEARNT_FROM = {"label": "text", "tag": "word"}
"""What training counts, where that is not target tokens."""


@dataclass(frozen=True)
class Data:
    """What it was trained on."""

    origin: str
    train: int
    valid: int


@dataclass(frozen=True)
class Vocabulary:
    """How many tokens there are."""

    source: int
    target: int


@dataclass(frozen=True)
class Words:
    """How many words, pieces of words and labels or tags there are; vectors and words from elsewhere among them."""

    words: int
    pieces: int
    labels: int
    vectors: int = 0
    unlabelled: int = 0


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
    from regard.recipe import to_recipe

    found = Run(run)
    card, table, metrics = found.read_card(), found.read_recipe(), found.metrics()
    recipe = to_recipe(table, str(found.recipe_file))
    if as_json:
        print(json.dumps({"card": card, "recipe": table, "metrics": metrics}, ensure_ascii=False))
        return
    print("\n".join(described(found, card, recipe, metrics)))


def described(run: Run, card: Mapping[str, Any], recipe: Recipe, metrics: list[dict[str, Any]]) -> Iterator[str]:
    """The run in plain words."""
    where, told = str(run.card_file), of_table(Card, card, str(run.card_file))
    data = of_table(Data, card.get("data"), f"{where}: [data]")
    training = recipe.training
    yield f"{run.path}: {told.model}, {counted(told.parameters, 'parameter')}, made by regard {told.regard}"
    yield f"model: {', '.join(f'{name} {shown(value)}' for name, value in recipe.model.items() if name != 'name')}"
    task = str(card.get("task"))
    unit, size = UNITS.get(task, "pair"), "word" if task in LEARNT_FROM else "token"
    yield f"data: {data.origin}; {counted(data.train, unit)} to train on, {data.valid:,} to validate with"
    yield vocabulary_of(run, card.get("vocabulary"), unit)
    yield (
        f"training: up to {counted(training.steps, 'update')} of {counted(training.tokens, size)}, "
        f"rate {shown(training.rate)}, seed {training.seed}"
    )
    if "from" in card:
        yield f"started from: {card['from']}"
    if metrics:
        yield from last_validation(metrics[-1], str(run.metrics_file), LEARNT_FROM.get(task, "target token"))
    yield best_validation(card.get("best"), f"{where}: [best]")
    checkpoints = checkpoints_of(run)
    yield f"checkpoints: {', '.join(str(each.step) for each in checkpoints) or 'none'}"
    yield state_of(checkpoints, checkpoints_of(Run(run.path / READING)))


def vocabulary_of(run: Run, table: Any, unit: str) -> str:
    """How much there is of all that texts are made of."""
    where = f"{run.card_file}: [vocabulary]"
    if unit in ("text", "sentence"):
        told = of_table(Words, table, where)
        what = "labels" if unit == "text" else "tags"
        vectors = f", vectors of {told.vectors:,} from elsewhere" if told.vectors else ""
        unlabelled = f" ({told.unlabelled:,} from unlabelled text)" if told.unlabelled else ""
        return f"words: {told.words:,}{unlabelled}, spelt with {told.pieces:,} pieces{vectors}; {told.labels:,} {what}"
    return f"tokens: {tokens_of(run, of_table(Vocabulary, table, where), unit)}"


def tokens_of(run: Run, sizes: Vocabulary, unit: str) -> str:
    """How many tokens there are, of a text or of either side, and of what kind."""
    from regard.text import Tokenizers

    if unit == "token":
        return f"{sizes.target:,} ({Tokenizers.load(run.tokenizer_file).target.kind})"
    if not run.tokenizer_file.exists():
        return f"{sizes.source:,} of the source, {sizes.target:,} of the target"
    found = Tokenizers.load(run.tokenizer_file)
    return f"{sizes.source:,} of the source ({found.source.kind}), {sizes.target:,} of the target ({found.target.kind})"


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


def counted(count: int | None, what: str) -> str:
    """How many there are, in words: 1 pair, 1,000 pairs."""
    return f"{shown(count) if count is None else f'{count:,}'} {what}{'' if count == 1 else 's'}"


def last_validation(line: Mapping[str, Any], where: str, unit: str) -> Iterator[str]:
    """How far training came, and what the last validation found."""
    told = of_table(Validation, line, where)
    yield f"trained: {counted(told.step, 'update')}, {counted(told.tokens, unit)}, {told.seconds:.0f} s"
    found = {name.removeprefix("valid_"): value for name, value in line.items() if name.startswith("valid_")}
    yield f"last validation: {', '.join(f'{name} {rounded(value)}' for name, value in found.items())}"


def best_validation(best: Any, where: str) -> str:
    """What the parameters are worth that were kept."""
    if best is None:
        return "best: none yet"
    told = of_table(Best, best, where)
    return f"best: {told.metric} {rounded(told.value)} at update {told.step:,}"


def rounded(value: Any) -> str:
    """A number in four digits, or whatever else stands in its place."""
    return f"{value:.4g}" if isinstance(value, (int, float)) else shown(value)


def of_table(kind: type[Any], table: Any, where: str) -> Any:
    """What is told of a table, of the right types; what else it has is passed over."""
    known = {field.name for field in fields(kind)}
    found = table if isinstance(table, dict) else {}
    return from_table(kind, {name: value for name, value in found.items() if name in known}, where)
