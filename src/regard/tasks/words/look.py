"""How the words of one text look at each other while it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.looking.maps import TITLE
from regard.looking.options import LookOptions
from regard.looking.sides import token_side
from regard.looking.weights import map_weights
from regard.sentences import side_by_side
from regard.tasks.predictor import Predictor
from regard.views.attention_map import AttentionMap
from regard.views.display import cut


def look_at_words(predictor: Predictor[Any], words: Sequence[str], text: str, options: LookOptions) -> AttentionMap:
    """The self-attention of a model that reads words by a lexicon."""
    sentences = side_by_side([predictor.tokenizers.encode(words)]).to(predictor.device)
    _, seen = predictor.watched(lambda: predictor.model.reader(sentences))
    side = token_side(words)
    weights = map_weights(seen["self"], side, side, options.top)
    return AttentionMap(side.names, side.names, weights, f"{predictor.name}: {cut(text, TITLE)}", "words")
