"""Explain the label of a text by its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from regard.alignment import to_numpy
from regard.attention.watch import AttentionRecording, watch
from regard.attribution.explanation import ATTENTION, ROLLOUT, rollout
from regard.attribution.methods import AttentionShares, Subject, check_is_text
from regard.data.labeled import LabeledText
from regard.errors import RegardError, unknown_name
from regard.layers.embedding import EmbeddingCall
from regard.sentences import LabelBatch
from regard.tasks.label.options import LabelExplainOptions

if TYPE_CHECKING:
    from regard.tasks.label.predictor import LabelPredictor


class LabelSubject(Subject):
    """The label of a text. A second text and the context are not changed."""

    def __init__(self, predictor: LabelPredictor, text: Any, options: LabelExplainOptions) -> None:
        check_is_text(text)
        model, second, context = predictor.model, options.second, options.context
        labeling = predictor.predict(text, second=second, context=context)
        if not any(labeling.words):
            raise RegardError("explain: the text has no words")
        self.label = labeling.ranked[0].label if options.label is None else options.label
        if self.label not in predictor.labels:
            raise unknown_name("explain: label", self.label, predictor.labels)
        self.predictor, self.words, self.size = predictor, labeling.words, len(labeling.words)
        self.second = None if second is None else second.strip()
        self.context = tuple(earlier_text.strip() for earlier_text in context or ())
        self.embedding = model.input_embedding
        self.without_attention = f"{predictor.name} pools words by {model.config.pooling}"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model = self.predictor.model
        logits = model(self._build_batch(without)).float()
        log_probabilities = functional.logsigmoid(logits) if model.config.multi_label else logits.log_softmax(-1)
        return log_probabilities[:, self.predictor.labels.index(self.label)]

    def compute_attention(self) -> dict[str, AttentionShares]:
        model, batch = self.predictor.model, self._build_batch([None])
        with watch(model) as recorded:
            model(batch)
        group, row = locate_first_text(batch)
        layers = compute_layer_weights(recorded, model.attentions.get("self", ()), group, row, self.size)
        looks, pooled = dict[str, AttentionShares](), None
        if "pooling" in model.attentions:
            (path,) = model.attentions["pooling"]
            pooled = to_numpy(recorded[path][group].dense()[row].double().mean((0, 1)))[: self.size]
            looks[ATTENTION] = AttentionShares(pooled)
        elif model.config.pooling in ("mean", "sum"):
            pooled = np.full(self.size, 1 / self.size)
        if len(layers) and pooled is not None:
            looks[ROLLOUT] = AttentionShares(pooled @ rollout(layers))
        return looks

    def merge_by_word(self, calls: Sequence[EmbeddingCall], scores: Sequence[Float[Tensor, "..."]]) -> list[float]:
        group, row = locate_first_text(self._build_batch([None]))
        values: list[float] = scores[group][row, : self.size].tolist()
        return values

    def describe(self, log_probability: float) -> str:
        return f"label {self.label}, probability {np.exp(log_probability):.3g}"

    def _build_batch(self, without: Sequence[int | None]) -> LabelBatch:
        texts = [" ".join(word for index, word in enumerate(self.words) if index != omitted) for omitted in without]
        # a batch reads equal texts once; the line break keeps this text apart from equal ones
        return self.predictor.build_batch([LabeledText(f"{text}\n", (), self.second, self.context) for text in texts])


def locate_first_text(batch: LabelBatch) -> tuple[int, int]:
    """Return the group of the first example's text, and its row in the group."""
    locations = [(group_index, row) for group_index, group in enumerate(batch.groups) for row in range(len(group))]
    return locations[int(batch.texts[0])]


def compute_layer_weights(
    recorded: AttentionRecording, paths: Sequence[str], call: int, row: int, size: int
) -> Float[np.ndarray, "layers words words"]:
    """Return the self-attention of one text in each layer, averaged over heads."""
    layers = [to_numpy(recorded[path][call].dense()[row].double().mean(0))[:size, :size] for path in paths]
    return np.stack(layers) if layers else np.zeros((0, size, size))
