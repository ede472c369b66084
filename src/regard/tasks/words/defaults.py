"""Default settings of classifiers and taggers, chosen for the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from regard.tasks.words.settings import WordRecipe
from regard.training.defaults import check_metric, choose_training

EPOCHS, MIN_EPOCHS = 12, 4
"""Default number of epochs on small data, and on large data."""

STEPS = 600, 1500
"""Minimum number of steps, and the number from which on large data get only `MIN_EPOCHS` epochs."""

AnyRecipe = TypeVar("AnyRecipe", bound=WordRecipe)


def choose_word_settings(
    recipe: AnyRecipe,
    words: int,
    metrics: Sequence[str],
    model: Mapping[str, Any],
    *,
    learning_rate: float,
    label_smoothing: float = 0.0,
) -> AnyRecipe:
    """Return the recipe with all settings chosen; the first metric is the default."""
    check_metric(recipe.training, metrics)
    training = choose_training(
        recipe.training,
        words,
        batch_tokens=min(max(words // 100, 256), 2048),
        steps=lambda epoch: min(max(EPOCHS * epoch, STEPS[0]), max(MIN_EPOCHS * epoch, STEPS[1])),
        learning_rate=learning_rate,
        validate_every=lambda epoch, _: min(max(epoch // 2, 20), 500),
        label_smoothing=label_smoothing,
        metric=metrics[0],
        precision="float32",
    )
    chosen = {**model, **recipe.model}
    if recipe.text.tokenizer == "words":
        chosen.setdefault("char_encoder", "none")
    return replace(recipe, training=training, model=chosen)
