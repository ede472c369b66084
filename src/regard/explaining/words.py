"""Labels and tags, explained by the words of a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from regard.alignment import as_array
from regard.attention.watch import Seen, watch
from regard.batch import UNKNOWN
from regard.data.labelled import Labelled
from regard.errors import RegardError, unknown_name
from regard.explaining.explanation import ATTENTION, ROLLOUT, rollout
from regard.explaining.methods import Look, Subject, chosen
from regard.label_predictor import LabelPredictor, TagPredictor, words_to_tag
from regard.layers.embedding import Call
from regard.sentences import LabelBatch, TagBatch, Word, side_by_side

UNKNOWN_WORD = Word(UNKNOWN, (UNKNOWN,))
"""A word of which neither itself nor a letter is known."""

LEAST = torch.finfo(torch.float32).tiny
"""The least probability: of a tag that its scheme does not allow, the logarithm would be minus infinity."""

OUTSIDE = "O"
"""The tag of a word that no span has."""


class LabelSubject(Subject):
    """A label of a text. A second text, and the texts before, stay as they are."""

    def __init__(
        self, predictor: LabelPredictor, text: str, label: str | None, second: str | None, context: Sequence[str] | None
    ) -> None:
        model = predictor.model
        found = predictor.predict(text, second=second, context=context)
        if not any(found.words):
            raise RegardError("explain: the text has no words")
        self.label = found.ranked[0].label if label is None else label
        if self.label not in predictor.labels:
            raise unknown_name("explain: label", self.label, predictor.labels)
        self.predictor, self.words, self.size = predictor, found.words, len(found.words)
        self.second = None if second is None else second.strip()
        self.context = tuple(each.strip() for each in context or ())
        self.embedding = model.input_embedding
        self.without_attention = f"{predictor.name} pools words by {model.config.pooling}"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model = self.predictor.model
        logits = model(self._batch(without)).float()
        found = functional.logsigmoid(logits) if model.config.several else logits.log_softmax(-1)
        return found[:, self.predictor.labels.index(self.label)]

    def looks(self) -> dict[str, Look]:
        model, batch = self.predictor.model, self._batch([None])
        with watch(model) as seen:
            model(batch)
        group, row = place_of(batch)
        layers = layers_of(seen, model.attentions.get("self", ()), group, row, self.size)
        found, pooled = dict[str, Look](), None
        if "pooling" in model.attentions:
            (path,) = model.attentions["pooling"]
            pooled = as_array(seen[path][group].dense()[row].double().mean((0, 1)))[: self.size]
            found[ATTENTION] = Look(pooled)
        elif model.config.pooling in ("mean", "sum"):
            pooled = np.full(self.size, 1 / self.size)
        if layers and pooled is not None:
            found[ROLLOUT] = Look(pooled @ rollout(layers))
        return found

    def merged(self, calls: Sequence[Call], numbers: Sequence[Float[Tensor, "..."]]) -> list[float]:
        group, row = place_of(self._batch([None]))
        found: list[float] = numbers[group][row, : self.size].tolist()
        return found

    def described(self, log_probability: float) -> str:
        return f"label {self.label}, probability {np.exp(log_probability):.3g}"

    def _batch(self, without: Sequence[int | None]) -> LabelBatch:
        texts = [" ".join(word for place, word in enumerate(self.words) if place != out) for out in without]
        # a text is read once however often it stands in a batch; a line break makes this one another
        return self.predictor.batch([Labelled(f"{text}\n", (), self.second, self.context) for text in texts])


class TagSubject(Subject):
    """The tag of a word. When that word itself is to be left out, it is made unknown."""

    def __init__(self, predictor: TagPredictor, text: str | Sequence[str], word: int | None, label: str | None) -> None:
        self.words = words_to_tag(text)
        if not self.words:
            raise RegardError("explain: the text has no words")
        tags = predictor.predict([self.words])[0].tags
        marked = (place for place, tag in enumerate(tags) if tag != OUTSIDE)
        self.word = next(marked, 0) if word is None else chosen(word, self.words)
        self.label = tags[self.word] if label is None else label
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
        model = self.predictor.model
        with watch(model) as seen:
            model(self._batch([None]))
        layers = layers_of(seen, model.attended, 0, 0, self.size)
        if not layers:
            return {}
        return {ATTENTION: Look(np.mean(layers, 0)[self.word]), ROLLOUT: Look(rollout(layers)[self.word])}

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


def place_of(batch: LabelBatch) -> tuple[int, int]:
    """The group of the first example's text, and its row there."""
    places = [(number, row) for number, group in enumerate(batch.groups) for row in range(len(group))]
    return places[int(batch.texts[0])]


def layers_of(
    seen: Seen, paths: Sequence[str], call: int, row: int, size: int
) -> list[Float[np.ndarray, "words words"]]:
    """What the words of one text looked at in each layer, the mean over its heads."""
    return [as_array(seen[path][call].dense()[row].double().mean(0))[:size, :size] for path in paths]
