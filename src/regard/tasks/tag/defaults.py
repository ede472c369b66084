"""Settings that suit tagged sentences, for all that the user left open."""

from __future__ import annotations

from regard.errors import RegardError
from regard.models.attentive_tagger import TaggerConfig
from regard.schemes import Scheme
from regard.tasks.tag.settings import TagRecipe
from regard.tasks.words.defaults import choose_settings


def choose_tag_settings(recipe: TagRecipe, words: int, scheme: Scheme) -> TagRecipe:
    """The recipe of a tagger with nothing left open."""
    metrics = ("accuracy", "loss") if scheme == "plain" else ("f1", "accuracy", "loss")
    model = {"name": "attentive-tagger", "scheme": scheme}
    recipe = choose_settings(recipe, words, metrics, model, rate=2e-3)
    for name in ("class_weights", "smoothing"):
        if getattr(recipe.training, name) and recipe.model.get("crf", TaggerConfig.crf):
            raise RegardError(f"training.{name}: is for tags that are chosen each for itself; set --crf false")
    return recipe
