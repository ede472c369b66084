"""Default settings for the task text, chosen from the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import RegardError
from regard.models import MODELS, LanguageModel
from regard.recipe import PLACEHOLDER_SIZE, find_compatible_models
from regard.tasks.text import TextTask
from regard.tasks.text.settings import TextRecipe
from regard.training.defaults import choose_training, choose_width, fill_defaults


@dataclass(frozen=True)
class TextFacts:
    """Statistics of the encoded training text."""

    tokens: int  # training tokens
    bits: float  # tokens times their entropy
    character_level: bool  # tokens are single letters or bytes
    on_gpu: bool


def choose_text_model(on_gpu: bool, settings: Mapping[str, Any]) -> str:
    """Return the default preset: on a CPU, a recurrent model learns more in an hour than a Transformer.

    If it lacks one of the given settings, return the first preset that has all of them.
    """
    preferred = "gpt2" if on_gpu else "lstm-lm"
    compatible = find_compatible_models(settings, "recipe", TextTask.presets)
    return preferred if preferred in compatible else compatible[0]


def choose_text_settings(recipe: TextRecipe, facts: TextFacts) -> TextRecipe:
    """Return the recipe with every open setting filled in."""
    training = recipe.training
    if training.metric not in ("auto", "loss"):
        raise RegardError(f"training.metric must be loss for the task text, got {training.metric}")
    if training.label_smoothing and recipe.model.get("mute"):
        raise RegardError("training.label_smoothing cannot be combined with model.mute")
    carries = get_model_class(recipe).stateful
    segment = choose_segment(recipe, facts)
    training = choose_training(
        fill_defaults(training, segment_length=segment),
        facts.tokens,
        batch_tokens=max(segment, min(max(facts.tokens // 200, 1024), 16_384 if facts.on_gpu else 4096)),
        steps=lambda epoch: min(max(20 * epoch, 1500), 20_000),
        learning_rate=2e-3 if carries else 1e-3,
        label_smoothing=0.0,
        metric="loss",
        precision="bfloat16" if facts.on_gpu and not carries else "float32",
    )
    return replace(recipe, training=training, model={**choose_text_model_sizes(carries, facts), **recipe.model})


def get_model_class(recipe: TextRecipe) -> type[LanguageModel]:
    """Return the model class of a recipe."""
    model_class = MODELS[recipe.model["name"]].model
    assert issubclass(model_class, LanguageModel)
    return model_class


def choose_segment(recipe: TextRecipe, facts: TextFacts) -> int:
    """Return the segment length: the context length of a stateless model, otherwise a length that trains well."""
    requested, tokens = recipe.training.segment_length, recipe.training.batch_tokens
    if get_model_class(recipe).stateful:
        return requested or min(128 if facts.character_level else 64, tokens or 128)
    preset = MODELS[recipe.model["name"]]
    config = preset.config(
        vocab_size=PLACEHOLDER_SIZE, **{**preset.settings, **{k: v for k, v in recipe.model.items() if k != "name"}}
    )
    max_length: int = config.context_length
    if requested not in (None, max_length):
        raise RegardError(
            f"training.segment_length must equal model.context_length ({max_length}) for {recipe.model['name']}, "
            f"got {requested}"
        )
    return max_length


def choose_text_model_sizes(carries: bool, facts: TextFacts) -> dict[str, object]:
    """Return model sizes that fit the amount of text, for a recurrent model or a Transformer."""
    width = choose_width(facts.bits)
    return {"hidden": width, "embedding": width} if carries else {"width": width}
