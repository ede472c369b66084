"""Models, and the one table where they meet the names of their presets."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.errors import unknown_name
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.seq2seq import Seq2Seq, State
from regard.models.transformer import Transformer, TransformerConfig
from regard.settings import from_table

__all__ = [
    "MODELS",
    "Preset",
    "RecurrentConfig",
    "RecurrentSeq2Seq",
    "Seq2Seq",
    "State",
    "Transformer",
    "TransformerConfig",
    "build",
]


class Preset(NamedTuple):
    """A model, its config, and the settings in which the preset differs from the config's defaults."""

    model: type[Seq2Seq]
    config: type
    settings: dict[str, Any]


def recurrent(**settings: Any) -> Preset:
    """A preset of the recurrent model."""
    return Preset(RecurrentSeq2Seq, RecurrentConfig, settings)


MODELS: dict[str, Preset] = {
    "seq2seq": recurrent(attention="none"),
    "simple-attention": recurrent(input_feeding=False, composition="join"),
    "parameterized-attention": recurrent(input_feeding=False, composition="join", project=("query", "keys", "values")),
    "bahdanau": recurrent(attention="before", score="additive", bidirectional=True, composition="maxout"),
    # Luong's encoder reads one way; read both ways, a state knows the words around it, and attention aligns better.
    "luong-dot": recurrent(score="dot", bidirectional=True),
    "luong-general": recurrent(score="bilinear", bidirectional=True),
    "luong-concat": recurrent(score="concat", bidirectional=True),
    "transformer": Preset(Transformer, TransformerConfig, {}),
}


def build(name: str, **settings: Any) -> Seq2Seq:
    """A new model by the name of its preset, with random parameters.

    Example:
        >>> model = build("bahdanau", source_size=100, target_size=50, hidden=64)
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    preset = MODELS[name]
    return preset.model(from_table(preset.config, {**preset.settings, **settings}, f"model {name}"))
