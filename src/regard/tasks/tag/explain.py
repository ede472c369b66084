"""The tag of a word, explained by the words of its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import UNKNOWN
from regard.errors import RegardError, unknown_name
from regard.explaining.explanation import ATTENTION, ROLLOUT, rollout
from regard.explaining.methods import Look, Subject, chosen, mean_weights
from regard.layers.embedding import Call
from regard.sentences import TagBatch, Word, side_by_side
from regard.tasks.tag.options import TagExplainOptions
from regard.tasks.tag.predictor import words_to_tag

if TYPE_CHECKING:
    from regard.tasks.tag.predictor import TagPredictor

UNKNOWN_WORD = Word(UNKNOWN, (UNKNOWN,))
"""A word of which neither itself nor a letter is known."""

LEAST = torch.finfo(torch.float32).tiny
"""The least probability: of a tag that its scheme does not allow, the logarithm would be minus infinity."""

OUTSIDE = "O"
"""The tag of a word that no span has."""


class TagSubject(Subject):
    """The tag of a word. When that word itself is to be left out, it is made unknown."""

    def __init__(self, predictor: TagPredictor, text: str | Sequence[str], options: TagExplainOptions) -> None:
        self.words = words_to_tag(text)
        if not self.words:
            raise RegardError("explain: the text has no words")
        tags = predictor.predict([self.words])[0].tags
        marked = (place for place, tag in enumerate(tags) if tag != OUTSIDE)
        self.word = next(marked, 0) if options.word is None else chosen(options.word, self.words)
        self.label = tags[self.word] if options.label is None else options.label
        if self.label not in predictor.tags:
            raise unknown_name("explain: label", self.label, predictor.tags)
        self.predictor, self.size = predictor, len(self.words)
        self.embedding = predictor.model.input_embedding
        self.without_attention = f"{predictor.name} has no self-attention; encoder both has"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model, batch = self.predictor.model, self._batch(without)
        probable = model.probabilities(model(batch), batch)[..., self.predictor.tags.index(self.label)]
        places = [self.word - (out is not None and out < self.word) for out in without]
        return probable[range(len(without)), places].clamp_min(LEAST).log()

    def looks(self) -> dict[str, Look]:
        predictor, batch = self.predictor, self._batch([None])
        _, seen = predictor.watched(lambda: predictor.model(batch))
        if "self" not in seen:
            return {}
        layers = mean_weights(seen["self"])
        return {ATTENTION: Look(layers.mean(0)[self.word]), ROLLOUT: Look(rollout(layers)[self.word])}

    def merged(self, calls: Sequence[Call], numbers: Sequence[Float[Tensor, "..."]]) -> list[float]:
        found: list[float] = numbers[0][0].tolist()
        return found

    def described(self, log_probability: float) -> str:
        named = f'word {self.word}, "{self.words[self.word]}"'
        return f"tag {self.label} of {named}, probability {np.exp(log_probability):.3g}"

    def _batch(self, without: Sequence[int | None]) -> TagBatch:
        whole = self.predictor.lexicon.encode(self.words)
        own = (*whole[: self.word], UNKNOWN_WORD, *whole[self.word + 1 :])
        texts = [
            own if out == self.word else tuple(word for place, word in enumerate(whole) if place != out)
            for out in without
        ]
        return TagBatch(side_by_side(texts)).to(self.predictor.device)
