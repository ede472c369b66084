"""Score the self-attention of a tagger against the words that decide the tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.data.example import Links
from regard.data.tagged import TaggedSentence
from regard.metrics.gold_attention import GoldAttention, score_gold_attention
from regard.tasks.tag.predictor import TagPredictor


def score_tag_attention(predictor: TagPredictor, sentences: Sequence[TaggedSentence]) -> GoldAttention | None:
    """Return the self-attention from each linked word to the words that decide its tag.

    Returns:
        The scores of the best head, or None if the model has no self-attention or no sentence has links.
    """
    linked = [sentence for sentence in sentences if sentence.links]
    if not predictor.has_word_weights or not linked:
        return None
    taggings = predictor.predict([sentence.words for sentence in linked], return_weights=True)
    rows = [
        row
        for sentence, tagging in zip(linked, taggings, strict=True)
        if tagging.weights is not None
        for row in iter_gold_rows(tagging.weights, sentence.links or frozenset())
    ]
    return score_gold_attention(np.stack([on_gold for on_gold, _ in rows]), np.array([share for _, share in rows]))


def iter_gold_rows(
    weights: Float[Tensor, "layers heads words words"], links: Links
) -> Iterator[tuple[Float[np.ndarray, "layers heads"], float]]:
    """Yield the attention of each linked word on its gold words, and the share of these among all words."""
    for word in sorted({word for _, word in links}):
        gold = [cue for cue, row in links if row == word]
        yield weights[:, :, word, gold].sum(-1).double().numpy(), len(gold) / weights.shape[-1]
