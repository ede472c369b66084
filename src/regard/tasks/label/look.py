"""What a classifier looks at: all of the text at once, or the words at each other in the layers before that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.tasks.label.options import LabelLookOptions
from regard.tasks.words.look import look_at_words
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.tasks.label.predictor import LabelPredictor


def look_at_label(predictor: LabelPredictor, text: str, options: LabelLookOptions) -> AttentionMap:
    """As `regard.look` describes it."""
    if "self" not in predictor.model.attentions:
        predictor.check_attention()
    if options.kind_of(predictor.name, predictor.model.attentions) == "self":
        return look_at_words(predictor, predictor.words(text), text, options)
    whole = predictor.attention_map(
        predictor.predict(text, second=options.second, context=options.context, return_weights=True)
    )
    return whole if options.top is None else whole.keep_top(options.top)
