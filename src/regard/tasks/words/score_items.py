"""Score a classifier or a tagger item by item."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from regard.batch import UNKNOWN
from regard.metrics.gold_attention import GoldAttention
from regard.metrics.items import ItemCounts
from regard.metrics.significance import count_matches
from regard.tasks.item_scores import ItemScores
from regard.text.word_vocabulary import WordVocabulary


def build_word_scores(
    part: str,
    words: Sequence[Sequence[str]],
    predictions: Sequence[Collection[Hashable]],
    gold: Sequence[Collection[Hashable]],
    outputs: Sequence[str],
    vocabulary: WordVocabulary,
    *,
    single: bool,
    attention: GoldAttention | None,
) -> ItemScores:
    """Build the scores of texts with labels, or of sentences with spans.

    Args:
        part: The test data, in words.
        words: The words of each text.
        predictions: The predicted labels or spans of each text.
        gold: The gold labels or spans of each text.
        outputs: The predictions as text.
        vocabulary: The words that the model knows.
        single: Whether every text has exactly one label, so that F1 is the accuracy.
        attention: The attention on gold words, if the data and the model have any.
    """
    score, counts = count_matches(predictions, gold)
    items = ItemCounts(
        metric="accuracy" if single else "micro_f1",
        signature=score.signature,
        counts=counts[:, :2].astype(np.float64) if single else counts.astype(np.float64),
        lengths=np.array([len(text) for text in words]),
        length_unit="words",
        unknown=np.array([any(word.word_id == UNKNOWN for word in vocabulary.encode(text)) for text in words]),
    )
    return ItemScores(
        part=part,
        items=items,
        curve=items,
        inputs=[" ".join(text) for text in words],
        outputs=outputs,
        output_tokens=sum(map(len, words)),
        scores={} if attention is None else {"gold_attention": attention.weight},
    )
