"""Models, and the table of presets that maps a name to a model and its settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.errors import unknown_name
from regard.models.attentive_classifier import AttentiveClassifier, ClassifierConfig
from regard.models.attentive_lm import AttentiveLm, AttentiveLmConfig
from regard.models.attentive_tagger import AttentiveTagger, TaggerConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.hard_attention import HardAttention, HardAttentionConfig
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
    "HardAttention",
    "HardAttentionConfig",
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
    source: str = ""  # where the model was published, and what differs from it besides sizes


def recurrent_preset(source: str, **settings: Any) -> Preset:
    """Return a preset of `RecurrentSeq2Seq`."""
    return Preset(RecurrentSeq2Seq, RecurrentConfig, settings, source=source)


def luong_preset(score: str, formula: str) -> Preset:
    """Return a preset of Luong et al. with one of their score functions."""
    source = (
        f"Luong et al. 2015 with the score {formula}: LSTM encoder and decoder, each one-way, states of the top layer, "
        "input feeding. Published with 4 layers of 1,000"
    )
    return recurrent_preset(source, score=score, cell="lstm")


def text_preset(model: type[LanguageModel], config: type, source: str, **settings: Any) -> Preset:
    """Return a preset of a language model."""
    return Preset(model, config, settings, "text", source)


MODELS: dict[str, Preset] = {
    "seq2seq": recurrent_preset(
        "Sutskever et al. 2014: LSTM encoder and decoder without attention. Published with 4 layers of 1,000 and "
        "reverse_source",
        attention="none",
        cell="lstm",
    ),
    "simple-attention": recurrent_preset(
        "a model for teaching: softmax(h·s) without parameters, after the decoder step, for the output alone",
        input_feeding=False,
        composition="join",
    ),
    "parameterized-attention": recurrent_preset(
        "a model for teaching: simple-attention with projections of query, keys and values",
        input_feeding=False,
        composition="join",
        project=("query", "keys", "values"),
    ),
    "bahdanau": recurrent_preset(
        "Bahdanau et al. 2015: bidirectional GRU encoder, additive score, attention before the decoder step, maxout "
        "output. Published 1,000 wide",
        attention="before",
        score="additive",
        bidirectional=True,
        composition="maxout",
    ),
    "luong-dot": luong_preset("dot", "s·h"),
    "luong-general": luong_preset("bilinear", "s·W h"),
    "luong-concat": luong_preset("concat", "v·tanh(W [s; h])"),
    "hard-attention": Preset(
        HardAttention,
        HardAttentionConfig,
        {"monotonic": False, "order": 0},
        source="Wu et al. 2018: each target token is written by one source position, summed over all alignments. "
        "Published with 2 encoder layers of 400",
    ),
    "hard-monotonic": Preset(
        HardAttention,
        HardAttentionConfig,
        {},
        source="Wu and Cotterell 2019: hard-attention whose alignment never moves back and depends on the position "
        "before. Published with 2 encoder layers of 400",
    ),
    "transformer": Preset(
        Transformer,
        TransformerConfig,
        {},
        source="Vaswani et al. 2017: post-norm, sinusoidal positions. Published with 6 layers of 512, 8 heads and one "
        'embedding for both sides (tied = "all")',
    ),
    "neural-lm": text_preset(
        NeuralLm,
        NeuralLmConfig,
        "Bengio et al. 2003: a window of tokens and a tanh layer. Published without dropout, and also with direct",
    ),
    "rnn-lm": text_preset(
        RecurrentLm,
        RecurrentLmConfig,
        "Mikolov et al. 2010: a plain recurrent layer, an output layer of its own. Published with the cell rnn-sigmoid "
        "and without dropout",
        cell="rnn",
        tied=False,
    ),
    "gru-lm": text_preset(
        RecurrentLm,
        RecurrentLmConfig,
        "rnn-lm with the cell of Cho et al. 2014, tied embeddings and variational dropout",
        cell="gru",
    ),
    "lstm-lm": text_preset(
        RecurrentLm,
        RecurrentLmConfig,
        "rnn-lm with the cell of Hochreiter and Schmidhuber 1997, tied embeddings and variational dropout",
        cell="lstm",
    ),
    "attentive-lm": text_preset(
        AttentiveLm,
        AttentiveLmConfig,
        'lstm-lm with attention over its own states so far; with memory = "words" close to Grave et al. 2017',
    ),
    "gpt": text_preset(
        Gpt,
        GptConfig,
        "Radford et al. 2018: post-norm. Published with 12 layers of 768, 12 heads and dropout on attention weights",
        norm="post",
    ),
    "gpt2": text_preset(
        Gpt,
        GptConfig,
        "Radford et al. 2019: pre-norm, residual layers initialized by depth. Published with 12 to 48 layers of 768 to "
        "1,600 and dropout on attention weights",
    ),
    "attentive-classifier": Preset(
        AttentiveClassifier,
        ClassifierConfig,
        {},
        "label",
        "a bidirectional LSTM over words and characters, attention from a learned query (Lin et al. 2017 has several)",
    ),
    "attentive-tagger": Preset(
        AttentiveTagger,
        TaggerConfig,
        {},
        "tag",
        "a bidirectional LSTM over words and characters with a CRF (Lample et al. 2016), and self-attention on top",
    ),
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
