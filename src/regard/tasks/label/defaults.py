"""Default settings of classifiers, chosen for the data."""

from __future__ import annotations

from regard.errors import RegardError
from regard.settings import format_value
from regard.tasks.label.settings import LabelRecipe
from regard.tasks.words.defaults import choose_word_settings

SMOOTHING = 0.1
"""Label smoothing with one label per text: it reduces overfitting to small data."""


def choose_label_settings(recipe: LabelRecipe, words: int, *, multi_label: bool, pairs: bool) -> LabelRecipe:
    """Return the recipe of a classifier with all settings chosen."""
    sizes = {"multi_label": multi_label, "text_pairs": pairs, "context_size": recipe.data.context}
    for name, size in sizes.items():
        if recipe.model.get(name, size) != size:
            advice = "; pass the same --context" if name == "context_size" else ""
            raise RegardError(
                f"model.{name} is {format_value(recipe.model[name])}, but for these data it must be "
                f"{format_value(size)}{advice}"
            )
    metrics = ("f1", "loss") if multi_label else ("accuracy", "macro_f1", "loss")
    model = {"name": "attentive-classifier", **sizes}
    return choose_word_settings(
        recipe, words, metrics, model, learning_rate=4e-3, label_smoothing=0.0 if multi_label else SMOOTHING
    )
