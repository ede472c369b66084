"""Settings that suit labelled texts, for all that the user left open."""

from __future__ import annotations

from regard.errors import RegardError
from regard.settings import shown
from regard.tasks.label.settings import LabelRecipe
from regard.tasks.words.defaults import choose_settings

SMOOTHING = 0.1
"""Of a single label: few texts are soon known by heart, and a model that is less sure of them does better on others."""


def choose_label_settings(recipe: LabelRecipe, words: int, *, several: bool, pairs: bool) -> LabelRecipe:
    """The recipe of a classifier with nothing left open."""
    sizes = {"several": several, "pairs": pairs, "before": recipe.data.context}
    for name, size in sizes.items():
        if recipe.model.get(name, size) != size:
            raise RegardError(
                f"model.{name} is {shown(recipe.model[name])}, but by the data it is {shown(size)}; "
                f"{'give the same --context' if name == 'before' else 'data of the same form are needed'}"
            )
    metrics = ("f1", "loss") if several else ("accuracy", "macro_f1", "loss")
    model = {"name": "attentive-classifier", **sizes}
    return choose_settings(recipe, words, metrics, model, rate=4e-3, smoothing=0.0 if several else SMOOTHING)
