"""Models, and the table of presets that maps a name to a model and its settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.errors import unknown_name
from regard.models.attentive_classifier import AttentiveClassifier, ClassifierConfig
from regard.models.attentive_lm import AttentiveLm, AttentiveLmConfig
from regard.models.attentive_tagger import AttentiveTagger, TaggerConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.language_model import LanguageModel
from regard.models.model import Model
from regard.models.neural_lm import NeuralLm, NeuralLmConfig
from regard.models.recurrent_lm import RecurrentLm, RecurrentLmConfig
from regard.models.recurrent_seq2seq import RecurrentConfig, RecurrentSeq2Seq
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.models.transformer import Transformer, TransformerConfig
from regard.settings import parse_settings

__all__ = [
    "MODELS",
    "AttentiveClassifier",
    "AttentiveLm",
    "AttentiveLmConfig",
    "AttentiveTagger",
    "ClassifierConfig",
    "Gpt",
    "GptConfig",
    "LanguageModel",
    "Model",
    "NeuralLm",
    "NeuralLmConfig",
    "Preset",
    "RecurrentConfig",
    "RecurrentLm",
    "RecurrentLmConfig",
    "RecurrentSeq2Seq",
    "Seq2Seq",
    "State",
    "TaggerConfig",
    "Transformer",
    "TransformerConfig",
    "build",
]


class Preset(NamedTuple):
    """A model class, its config class, and the settings that differ from the config's defaults."""

    model: type[Model]
    config: type
    settings: dict[str, Any]
    task: str = "pairs"  # one of `regard.tasks.TASKS`


def recurrent_preset(**settings: Any) -> Preset:
    """Return a preset of `RecurrentSeq2Seq`."""
    return Preset(RecurrentSeq2Seq, RecurrentConfig, settings)


def text_preset(model: type[LanguageModel], config: type, **settings: Any) -> Preset:
    """Return a preset of a language model."""
    return Preset(model, config, settings, "text")


MODELS: dict[str, Preset] = {
    "seq2seq": recurrent_preset(attention="none"),
    "simple-attention": recurrent_preset(input_feeding=False, composition="join"),
    "parameterized-attention": recurrent_preset(
        input_feeding=False, composition="join", project=("query", "keys", "values")
    ),
    "bahdanau": recurrent_preset(attention="before", score="additive", bidirectional=True, composition="maxout"),
    # Luong's encoder is unidirectional; a bidirectional one sees both neighbors of a word, which aligns better.
    "luong-dot": recurrent_preset(score="dot", cell="lstm", bidirectional=True),
    "luong-general": recurrent_preset(score="bilinear", cell="lstm", bidirectional=True),
    "luong-concat": recurrent_preset(score="concat", cell="lstm", bidirectional=True),
    "transformer": Preset(Transformer, TransformerConfig, {}),
    "neural-lm": text_preset(NeuralLm, NeuralLmConfig),
    "rnn-lm": text_preset(RecurrentLm, RecurrentLmConfig, cell="rnn"),
    "gru-lm": text_preset(RecurrentLm, RecurrentLmConfig, cell="gru"),
    "lstm-lm": text_preset(RecurrentLm, RecurrentLmConfig, cell="lstm"),
    "attentive-lm": text_preset(AttentiveLm, AttentiveLmConfig),
    "gpt": text_preset(Gpt, GptConfig),
    "attentive-classifier": Preset(AttentiveClassifier, ClassifierConfig, {}, "label"),
    "attentive-tagger": Preset(AttentiveTagger, TaggerConfig, {}, "tag"),
}


def build(name: str, **settings: Any) -> Model:
    """Build a model from a preset, with random parameters.

    Args:
        name: A name in `MODELS`.
        settings: Fields of the model's config; they override the preset and the config's defaults.

    Returns:
        The model, in training mode on the CPU.

    Raises:
        RegardError: The preset or a setting is unknown, or a value is out of range.

    Example:
        >>> model = build("bahdanau", source_vocab_size=100, target_vocab_size=50, hidden=64)
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    preset = MODELS[name]
    return preset.model(parse_settings(preset.config, {**preset.settings, **settings}, f"model {name}"))
