"""A label of a text, explained by the words of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from regard.alignment import as_array
from regard.attention.watch import Seen, watch
from regard.data.labelled import Labelled
from regard.errors import RegardError, unknown_name
from regard.explaining.explanation import ATTENTION, ROLLOUT, rollout
from regard.explaining.methods import Look, Subject, check_is_text
from regard.layers.embedding import Call
from regard.sentences import LabelBatch
from regard.tasks.label.options import LabelExplainOptions

if TYPE_CHECKING:
    from regard.tasks.label.predictor import LabelPredictor


class LabelSubject(Subject):
    """A label of a text. A second text, and the texts before, stay as they are."""

    def __init__(self, predictor: LabelPredictor, text: Any, options: LabelExplainOptions) -> None:
        check_is_text(text)
        model, second, context = predictor.model, options.second, options.context
        found = predictor.predict(text, second=second, context=context)
        if not any(found.words):
            raise RegardError("explain: the text has no words")
        self.label = found.ranked[0].label if options.label is None else options.label
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
        if len(layers) and pooled is not None:
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


def place_of(batch: LabelBatch) -> tuple[int, int]:
    """The group of the first example's text, and its row there."""
    places = [(number, row) for number, group in enumerate(batch.groups) for row in range(len(group))]
    return places[int(batch.texts[0])]


def layers_of(
    seen: Seen, paths: Sequence[str], call: int, row: int, size: int
) -> Float[np.ndarray, "layers words words"]:
    """What the words of one text looked at in each layer, the mean over its heads."""
    layers = [as_array(seen[path][call].dense()[row].double().mean(0))[:size, :size] for path in paths]
    return np.stack(layers) if layers else np.zeros((0, size, size))
