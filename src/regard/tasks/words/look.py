"""The self-attention map between the words of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.maps.build import TITLE
from regard.maps.options import LookOptions
from regard.maps.sides import build_token_side
from regard.maps.weights import build_map_weights
from regard.sentences import stack_texts
from regard.tasks.predictor import Predictor
from regard.views.attention_map import AttentionMap
from regard.views.display import truncate


def look_at_words(predictor: Predictor[Any], words: Sequence[str], text: str, options: LookOptions) -> AttentionMap:
    """Return the self-attention map of a classifier or tagger."""
    sentences = stack_texts([predictor.tokenizers.encode(words)]).to(predictor.device)
    _, recorded = predictor.run_watched(lambda: predictor.model.reader(sentences))
    side = build_token_side(words)
    weights = build_map_weights(recorded["self"], side, side, options.top)
    return AttentionMap(side.names, side.names, weights, f"{predictor.name}: {truncate(text, TITLE)}", "words")
