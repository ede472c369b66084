"""`regard inspect`: what a run is, without loading its parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.run import Run, checkpoints_of


def inspect(run: Path, /, *, as_json: bool = False) -> None:
    """Say what a model is, how it was trained and how good it was.

    Args:
        run: A run folder made by regard train.
        as_json: Print one JSON object.
    """
    found = Run(run)
    card = found.read_card()
    recipe, metrics = found.read_recipe(), found.metrics()
    if as_json:
        print(json.dumps({"card": card, "recipe": recipe, "metrics": metrics}, ensure_ascii=False))
        return
    for line in described(found, card, recipe, metrics):
        print(line)


def described(run: Run, card: dict[str, Any], recipe: dict[str, Any], metrics: list[dict[str, Any]]) -> Iterator[str]:
    """The card in plain words."""
    yield f"{run.path}: {card['model']}, {card['parameters']:,} parameters, made by regard {card['regard']}"
    model = ", ".join(f"{name} {value}" for name, value in recipe["model"].items() if name != "name")
    yield f"model: {model}"
    data, sizes = card["data"], card["vocabulary"]
    yield f"data: {data['origin']}; {data['train']:,} pairs to train on, {data['valid']:,} to validate with"
    yield f"tokens: {sizes['source']:,} of the source, {sizes['target']:,} of the target"
    training = recipe["training"]
    yield (
        f"training: up to {training['steps']:,} updates of {training['tokens']:,} tokens, "
        f"rate {training['rate']:g}, seed {training['seed']}"
    )
    if "from" in card:
        yield f"started from: {card['from']}"
    if metrics:
        last = metrics[-1]
        yield f"trained: {last['step']:,} updates, {last['tokens']:,} target tokens, {last['seconds']:.0f} s"
        yield "last validation: " + ", ".join(
            f"{name.removeprefix('valid_')} {value:.4g}" for name, value in last.items() if name.startswith("valid_")
        )
    best = card.get("best")
    yield f"best: {best['metric']} {best['value']:.4g} at update {best['step']:,}" if best else "best: none yet"
    kept = checkpoints_of(run)
    yield f"checkpoints: {', '.join(str(each.step) for each in kept) or 'none'}"
