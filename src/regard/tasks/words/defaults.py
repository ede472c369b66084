"""Settings that suit labelled texts and tagged sentences, for all that the user left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from regard.tasks.words.settings import WordRecipe
from regard.training.defaults import check_metric, choose_training

EPOCHS, LEAST_EPOCHS = 12, 4
"""How often few data are read, and how often many, unless steps are set."""

STEPS = 600, 1500
"""Updates that are made at the least, and from which on more data are not read more than `LEAST_EPOCHS` times."""

AnyRecipe = TypeVar("AnyRecipe", bound=WordRecipe)


def choose_settings(
    recipe: AnyRecipe,
    words: int,
    metrics: Sequence[str],
    model: Mapping[str, Any],
    *,
    rate: float,
    smoothing: float = 0.0,
) -> AnyRecipe:
    """The recipe with nothing left open; the first of the metrics is the default."""
    check_metric(recipe.training, metrics)
    training = choose_training(
        recipe.training,
        words,
        tokens=min(max(words // 100, 256), 2048),
        steps=lambda epoch: min(max(EPOCHS * epoch, STEPS[0]), max(LEAST_EPOCHS * epoch, STEPS[1])),
        rate=rate,
        validate_every=lambda epoch, _: min(max(epoch // 2, 20), 500),
        smoothing=smoothing,
        metric=metrics[0],
        precision="float32",
    )
    chosen = {**model, **recipe.model}
    if recipe.text.kind == "words":
        chosen.setdefault("spelling", "none")
    return replace(recipe, training=training, model=chosen)
