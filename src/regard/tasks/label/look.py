"""The attention map of a classifier: of the pooling, or of its self-attention layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.tasks.label.options import LabelLookOptions
from regard.tasks.words.look import look_at_words
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.tasks.label.predictor import LabelPredictor


def look_at_label(predictor: LabelPredictor, text: str, options: LabelLookOptions) -> AttentionMap:
    """Return the attention map of a text, as `regard.look` describes."""
    if "self" not in predictor.model.attentions:
        predictor.check_attention()
    if options.resolve_kind(predictor.name, predictor.model.attentions) == "self":
        return look_at_words(predictor, predictor.split_words(text), text, options)
    attention_map = predictor.attention_map(
        predictor.predict(text, second=options.second, context=options.context, return_weights=True)
    )
    return attention_map if options.top is None else attention_map.keep_top(options.top)
