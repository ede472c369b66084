"""Explain the tag of a word by the words of its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attribution.explanation import ATTENTION, ROLLOUT, rollout
from regard.attribution.methods import AttentionShares, Subject, check_word_index, mean_weights
from regard.batch import UNKNOWN
from regard.errors import RegardError, unknown_name
from regard.layers.embedding import EmbeddingCall
from regard.sentences import EncodedWord, TagBatch, stack_texts
from regard.tasks.tag.options import TagExplainOptions
from regard.tasks.tag.predictor import to_words

if TYPE_CHECKING:
    from regard.tasks.tag.predictor import TagPredictor

UNKNOWN_WORD = EncodedWord(UNKNOWN, (UNKNOWN,))
"""An unknown word with unknown pieces."""

MIN_PROBABILITY = torch.finfo(torch.float32).tiny
"""Lower bound of probabilities, since a tag that the scheme forbids would have a log-probability of -inf."""

OUTSIDE = "O"
"""The tag of a word outside all spans."""


class TagSubject(Subject):
    """The tag of a word. Leave-one-out replaces this word by an unknown one instead of removing it."""

    def __init__(self, predictor: TagPredictor, text: str | Sequence[str], options: TagExplainOptions) -> None:
        self.words = to_words(text)
        if not self.words:
            raise RegardError("explain: the text has no words")
        tags = predictor.predict([self.words])[0].tags
        tagged_indices = (index for index, tag in enumerate(tags) if tag != OUTSIDE)
        self.word = next(tagged_indices, 0) if options.word is None else check_word_index(options.word, self.words)
        self.label = tags[self.word] if options.label is None else options.label
        if self.label not in predictor.tags:
            raise unknown_name("explain: label", self.label, predictor.tags)
        self.predictor, self.size = predictor, len(self.words)
        self.embedding = predictor.model.input_embedding
        self.without_attention = f"{predictor.name} has no self-attention; encoder both has"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model, batch = self.predictor.model, self._build_batch(without)
        probabilities = model.probabilities(model(batch), batch)[..., self.predictor.tags.index(self.label)]
        positions = [self.word - (omitted is not None and omitted < self.word) for omitted in without]
        return probabilities[range(len(without)), positions].clamp_min(MIN_PROBABILITY).log()

    def compute_attention(self) -> dict[str, AttentionShares]:
        predictor, batch = self.predictor, self._build_batch([None])
        _, weights = predictor.run_watched(lambda: predictor.model(batch))
        if "self" not in weights:
            return {}
        layers = mean_weights(weights["self"])
        return {
            ATTENTION: AttentionShares(layers.mean(0)[self.word]),
            ROLLOUT: AttentionShares(rollout(layers)[self.word]),
        }

    def merge_by_word(self, calls: Sequence[EmbeddingCall], scores: Sequence[Float[Tensor, "..."]]) -> list[float]:
        values: list[float] = scores[0][0].tolist()
        return values

    def describe(self, log_probability: float) -> str:
        word_label = f'word {self.word}, "{self.words[self.word]}"'
        return f"tag {self.label} of {word_label}, probability {np.exp(log_probability):.3g}"

    def _build_batch(self, without: Sequence[int | None]) -> TagBatch:
        whole = self.predictor.vocabulary.encode(self.words)
        with_unknown = (*whole[: self.word], UNKNOWN_WORD, *whole[self.word + 1 :])
        texts = [
            with_unknown
            if omitted == self.word
            else tuple(word for index, word in enumerate(whole) if index != omitted)
            for omitted in without
        ]
        return TagBatch(stack_texts(texts)).to(self.predictor.device)
