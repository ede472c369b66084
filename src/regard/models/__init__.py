"""Models, and the one table where they meet the names of their presets."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.errors import unknown_name
from regard.models.attentive_classifier import AttentiveClassifier, ClassifierConfig
from regard.models.attentive_lm import AttentiveLm, AttentiveLmConfig
from regard.models.attentive_tagger import AttentiveTagger, TaggerConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.language import LanguageModel
from regard.models.model import Model
from regard.models.neural_lm import NeuralLm, NeuralLmConfig
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.recurrent_lm import RecurrentLm, RecurrentLmConfig
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.models.transformer import Transformer, TransformerConfig
from regard.settings import from_table

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
    """A model, its config, and the settings in which the preset differs from the config's defaults."""

    model: type[Model]
    config: type
    settings: dict[str, Any]
    task: str = "pairs"  # what it learns, one of `regard.tasks.TASKS`


def recurrent(**settings: Any) -> Preset:
    """A preset of the recurrent model."""
    return Preset(RecurrentSeq2Seq, RecurrentConfig, settings)


def text(model: type[LanguageModel], config: type, **settings: Any) -> Preset:
    """A preset of a language model."""
    return Preset(model, config, settings, "text")


MODELS: dict[str, Preset] = {
    "seq2seq": recurrent(attention="none"),
    "simple-attention": recurrent(input_feeding=False, composition="join"),
    "parameterized-attention": recurrent(input_feeding=False, composition="join", project=("query", "keys", "values")),
    "bahdanau": recurrent(attention="before", score="additive", bidirectional=True, composition="maxout"),
    # Luong's encoder reads one way; read both ways, a state knows the words around it, and attention aligns better.
    "luong-dot": recurrent(score="dot", cell="lstm", bidirectional=True),
    "luong-general": recurrent(score="bilinear", cell="lstm", bidirectional=True),
    "luong-concat": recurrent(score="concat", cell="lstm", bidirectional=True),
    "transformer": Preset(Transformer, TransformerConfig, {}),
    "neural-lm": text(NeuralLm, NeuralLmConfig),
    "rnn-lm": text(RecurrentLm, RecurrentLmConfig, cell="rnn"),
    "gru-lm": text(RecurrentLm, RecurrentLmConfig, cell="gru"),
    "lstm-lm": text(RecurrentLm, RecurrentLmConfig, cell="lstm"),
    "attentive-lm": text(AttentiveLm, AttentiveLmConfig),
    "gpt": text(Gpt, GptConfig),
    "attentive-classifier": Preset(AttentiveClassifier, ClassifierConfig, {}, "label"),
    "attentive-tagger": Preset(AttentiveTagger, TaggerConfig, {}, "tag"),
}


def build(name: str, **settings: Any) -> Model:
    """A new model by the name of its preset, with random parameters.

    Example:
        >>> model = build("bahdanau", source_size=100, target_size=50, hidden=64)
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    preset = MODELS[name]
    return preset.model(from_table(preset.config, {**preset.settings, **settings}, f"model {name}"))
