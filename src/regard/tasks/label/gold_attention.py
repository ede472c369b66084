"""Score the attention of a classifier against the words that decide the labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.data.labeled import LabeledText
from regard.metrics.gold_attention import GoldAttention, score_gold_attention
from regard.tasks.label.predictor import LabelPredictor


def score_label_attention(predictor: LabelPredictor, examples: Sequence[LabeledText]) -> GoldAttention | None:
    """Return the weight of the attention pooling on the linked words of each text.

    Returns:
        The scores, or None if the model does not pool by attention or no text has links.
    """
    linked = [example for example in examples if example.links]
    if "pooling" not in predictor.model.attentions or not linked:
        return None
    labelings = predictor.predict(
        [example.text for example in linked],
        second=None if linked[0].second is None else [example.second or "" for example in linked],
        context=[example.context for example in linked] if predictor.model.config.context_size else None,
        return_weights=True,
    )
    on_gold, uniform = [], []
    for example, labeling in zip(linked, labelings, strict=True):
        assert labeling.weights is not None
        words = {word for word, _ in example.links or ()}
        on_gold.append([[sum(weight for word, weight in enumerate(labeling.weights) if word in words)]])
        uniform.append(sum(word < len(labeling.weights) for word in words) / len(labeling.weights))
    return score_gold_attention(np.array(on_gold), np.array(uniform))
