"""Attention maps of language models: where each token looks to predict the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from regard.batch import BOS
from regard.decoding.generate import check_text_length
from regard.maps.alternatives import compute_alternatives
from regard.maps.build import TITLE, build_map
from regard.maps.options import LookOptions
from regard.maps.sides import build_word_side
from regard.text.tokenizer import BEGIN
from regard.views.attention_map import AttentionMap
from regard.views.display import truncate

if TYPE_CHECKING:
    from regard.tasks.text.predictor import TextPredictor


def look_at_language_model(predictor: TextPredictor, text: str, options: LookOptions) -> AttentionMap:
    """Return the attention map for `regard.look`."""
    predictor.check_attention()
    tokenizer, model = predictor.tokenizer, predictor.model
    kind = options.resolve_kind(predictor.name, model.attentions)
    encoded = tokenizer.encode_with_words(text)
    tokens = torch.tensor([[BOS, *encoded.ids]], device=predictor.device)
    check_text_length(model, tokens, "look")
    (features, _), weights = predictor.run_watched(lambda: model.read(tokens))
    prepared_text = tokenizer.steps.prepare(text)
    side = build_word_side(
        tokenizer, prepared_text, encoded.tokens, encoded.word_indices, before=(BEGIN,), merge=options.words
    )
    alternatives = None
    if not side.merged:
        alternatives = compute_alternatives(model, features[0], tokens[0, 1:], tokenizer)
    title = f"{predictor.name}: {truncate(text, TITLE)}"
    return build_map(weights[kind], side, side, title, options.top, alternatives, "next")
