"""Settings that suit a text, for all that the user left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import RegardError
from regard.models import MODELS, LanguageModel
from regard.recipe import MANY, fitting_models
from regard.tasks.text import TextTask
from regard.tasks.text.settings import TextRecipe
from regard.training.defaults import choose_training, fill_in


@dataclass(frozen=True)
class TextFacts:
    """What is known of a text once it is encoded."""

    tokens: int  # to train on
    spelt: bool  # tokens are single letters or bytes
    on_gpu: bool


def choose_model(on_gpu: bool, settings: Mapping[str, Any]) -> str:
    """The preset where none is named: on two cores a recurrent model learns more in an hour than a Transformer.

    If it does not have the settings that are given, the other.
    """
    wanted = "gpt" if on_gpu else "lstm-lm"
    fitting = fitting_models(settings, "recipe", TextTask.presets)
    return wanted if wanted in fitting else fitting[0]


def choose_settings(recipe: TextRecipe, facts: TextFacts) -> TextRecipe:
    """The recipe with nothing left open."""
    training = recipe.training
    if training.metric not in ("auto", "loss"):
        raise RegardError(f"training.metric: {training.metric} is for other tasks; a text is judged by its loss")
    if training.smoothing and recipe.model.get("mute"):
        raise RegardError("training.smoothing: gives tokens a share that model.mute leaves none; set one of them")
    carries = model_of(recipe).carries
    segment = segment_of(recipe, facts)
    training = choose_training(
        fill_in(training, segment=segment),
        facts.tokens,
        tokens=max(segment, min(max(facts.tokens // 200, 1024), 16_384 if facts.on_gpu else 4096)),
        steps=lambda epoch: min(max(20 * epoch, 1500), 20_000),
        rate=2e-3 if carries else 1e-3,
        smoothing=0.0,
        metric="loss",
        precision="bfloat16" if facts.on_gpu and not carries else "float32",
    )
    return replace(recipe, training=training, model={**model_defaults(carries, facts), **recipe.model})


def model_of(recipe: TextRecipe) -> type[LanguageModel]:
    """The class of the model that is named."""
    found = MODELS[recipe.model["name"]].model
    assert issubclass(found, LanguageModel)
    return found


def segment_of(recipe: TextRecipe, facts: TextFacts) -> int:
    """How many tokens are read at once: what a model without memory can look back over, else what learns well."""
    asked, tokens = recipe.training.segment, recipe.training.tokens
    if model_of(recipe).carries:
        return asked or min(128 if facts.spelt else 64, tokens or 128)
    preset = MODELS[recipe.model["name"]]
    config = preset.config(size=MANY, **{**preset.settings, **{k: v for k, v in recipe.model.items() if k != "name"}})
    longest: int = config.longest
    if asked not in (None, longest):
        raise RegardError(f"training.segment is {asked}; {recipe.model['name']} reads model.longest tokens, {longest}")
    return longest


def model_defaults(carries: bool, facts: TextFacts) -> dict[str, object]:
    """Sizes of a model for a text of a size: of one that carries a state on, or of a Transformer."""
    width = 128 if facts.tokens < 300_000 else 256 if facts.tokens < 20_000_000 else 512
    return {"hidden": width, "embedding": width} if carries else {"width": width}
