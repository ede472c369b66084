"""Default settings of taggers, chosen for the data."""

from __future__ import annotations

from typing import Any

from regard.errors import RegardError
from regard.models.attentive_tagger import TaggerConfig
from regard.schemes import Scheme
from regard.tasks.tag.settings import TagRecipe
from regard.tasks.words.defaults import choose_word_settings

RARE_WORD_DROPOUT = 0.5
"""Share of rare words hidden in training: names to find are mostly words that were never seen."""

CHAR_NGRAMS = 20_000
"""Number of vectors of character n-grams, which unknown words share with known ones."""


def choose_tag_settings(recipe: TagRecipe, words: int, scheme: Scheme) -> TagRecipe:
    """Return the recipe of a tagger with all settings chosen."""
    metrics = ("accuracy", "loss") if scheme == "plain" else ("f1", "accuracy", "loss")
    model: dict[str, Any] = {"name": "attentive-tagger", "scheme": scheme, "rare_word_dropout": RARE_WORD_DROPOUT}
    if recipe.text.tokenizer != "words":
        model["char_ngrams"] = CHAR_NGRAMS
    recipe = choose_word_settings(recipe, words, metrics, model, learning_rate=2e-3)
    for name in ("class_weights", "label_smoothing"):
        if getattr(recipe.training, name) and recipe.model.get("crf", TaggerConfig.crf):
            raise RegardError(f"training.{name} requires a tagger without a CRF; pass --crf false")
    return recipe
