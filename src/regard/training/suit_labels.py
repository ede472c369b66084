"""Settings that suit labelled texts and tagged sentences, for all that the user left open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from regard.errors import RegardError
from regard.recipe import Recipe
from regard.schemes import Scheme
from regard.settings import shown

EPOCHS, LEAST_EPOCHS = 12, 4
"""How often few data are read, and how often many, unless steps are set."""

STEPS = 600, 1500
"""Updates that are made at the least, and from which on more data are not read more than `LEAST_EPOCHS` times."""

SMOOTHING = 0.1
"""Of a single label: few texts are soon known by heart, and a model that is less sure of them does better on others."""

Metric = Literal["accuracy", "f1", "macro_f1", "loss"]


def suited_to_labels(recipe: Recipe, words: int, *, several: bool, pairs: bool) -> Recipe:
    """The recipe of a classifier with nothing left open."""
    metrics: tuple[Metric, ...] = ("f1", "loss") if several else ("accuracy", "macro_f1", "loss")
    sizes = {"several": several, "pairs": pairs, "before": recipe.data.context}
    for name in ("several", "pairs", "before"):
        if recipe.model.get(name, sizes[name]) != sizes[name]:
            raise RegardError(
                f"model.{name} is {shown(recipe.model[name])}, but by the data it is {shown(sizes[name])}; "
                f"{'give the same --context' if name == 'before' else 'data of the same form are needed'}"
            )
    return suited(
        recipe, "attentive-classifier", words, sizes, metrics, rate=4e-3, smoothing=0.0 if several else SMOOTHING
    )


def suited_to_tags(recipe: Recipe, words: int, scheme: Scheme) -> Recipe:
    """The recipe of a tagger with nothing left open."""
    metrics: tuple[Metric, ...] = ("accuracy", "loss") if scheme == "plain" else ("f1", "accuracy", "loss")
    return suited(recipe, "attentive-tagger", words, {"scheme": scheme}, metrics, rate=2e-3)


def suited(
    recipe: Recipe,
    model: str,
    words: int,
    sizes: dict[str, Any],
    metrics: tuple[Metric, ...],
    *,
    rate: float,
    smoothing: float = 0.0,
) -> Recipe:
    """The recipe with nothing left open; the first of the metrics is the default."""
    training = recipe.training
    if training.metric not in ("auto", *metrics):
        raise RegardError(f"training.metric: {training.metric} is not found here; there are {', '.join(metrics)}")
    tokens = training.tokens or min(max(words // 100, 256), 2048)
    epoch = max(1, words // (tokens * training.accumulate))
    steps = training.steps or min(max(EPOCHS * epoch, STEPS[0]), max(LEAST_EPOCHS * epoch, STEPS[1]))
    training = replace(
        training,
        steps=steps,
        tokens=tokens,
        rate=training.rate or rate,
        warmup=training.warmup if training.warmup is not None else min(100, steps // 10),
        validate_every=training.validate_every or min(max(epoch // 2, 20), 500),
        smoothing=smoothing if training.smoothing is None else training.smoothing,
        metric=metrics[0] if training.metric == "auto" else training.metric,
        precision="float32" if training.precision == "auto" else training.precision,
    )
    chosen = {"name": model, **sizes, **recipe.model}
    if recipe.text.kind == "words":
        chosen.setdefault("spelling", "none")
    return replace(recipe, training=training, model=chosen)
