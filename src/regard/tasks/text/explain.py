"""Explain a word of a text by the words before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.alignment import to_numpy
from regard.attribution.explanation import ATTENTION, ROLLOUT, rollout
from regard.attribution.methods import (
    AttentionShares,
    Subject,
    check_is_text,
    check_word_index,
    drop_unit,
    mean_weights,
    sum_by_unit,
)
from regard.batch import BOS, PAD, pad_rows
from regard.decoding.generate import check_text_length
from regard.decoding.steps import target_log_probabilities
from regard.errors import RegardError
from regard.layers.embedding import EmbeddingCall
from regard.tasks.text.options import TextExplainOptions
from regard.text.units import get_unit_name, split_into_units

if TYPE_CHECKING:
    from regard.tasks.text.predictor import TextPredictor


class TextSubject(Subject):
    """A word of a text, by default the last, to explain by the words before it."""

    def __init__(self, predictor: TextPredictor, text: Any, options: TextExplainOptions) -> None:
        check_is_text(text)
        tokenizer, model = predictor.tokenizer, predictor.model
        encoded = tokenizer.encode_with_words(text)
        units = split_into_units(tokenizer, tokenizer.steps.prepare(text), encoded.tokens, encoded.word_indices)
        self.unit = get_unit_name(tokenizer.kind)
        self.word = len(units) - 1 if options.word is None else check_word_index(options.word, units, self.unit)
        if self.word < 1:
            raise RegardError(f"explain: the {self.unit} to explain must have at least one {self.unit} before it")
        self.units, self.target = units[: self.word], units[self.word]
        first, last = self.target.token_indices[0], self.target.token_indices[-1]
        self.context_ids, self.target_ids = encoded.ids[:first], encoded.ids[first : last + 1]
        self.predictor, self.size = predictor, len(self.context_ids) + len(self.target_ids)
        check_text_length(model, torch.zeros(1, self.size, dtype=torch.long), "explain")
        self.words = tuple(unit.text for unit in self.units)
        self.embedding = model.input_embedding
        self.without_attention = f"{predictor.name} has no attention"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model = self.predictor.model
        contexts = [drop_unit(self.context_ids, self.units, out) for out in without]
        tokens, _ = pad_rows([[BOS, *before, *self.target_ids[:-1]] for before in contexts])
        targets, _ = pad_rows([[*[PAD] * len(before), *self.target_ids] for before in contexts])
        device = self.predictor.device
        features, _ = model.read(tokens.to(device))
        return target_log_probabilities(model, features, targets.to(device)).sum(-1)

    def compute_attention(self) -> dict[str, AttentionShares]:
        predictor, model = self.predictor, self.predictor.model
        if not model.attentions:
            return {}
        tokens = torch.tensor([[BOS, *self.context_ids, *self.target_ids[:-1]]], device=predictor.device)
        _, weights = predictor.run_watched(lambda: model.read(tokens))
        layers = mean_weights(weights["self"])
        rows = slice(len(self.context_ids), None)  # the steps that write the word
        looks = {ATTENTION: self._sum_by_word(layers.mean(0)[rows].mean(0))}
        if "self" in model.residual_attentions:
            looks[ROLLOUT] = self._sum_by_word(rollout(layers)[rows].mean(0))
        return looks

    def merge_by_word(self, calls: Sequence[EmbeddingCall], numbers: Sequence[Float[Tensor, "..."]]) -> list[float]:
        values = numbers[0][0, -self.size :]  # a window model reads padding before the text
        return self._sum_by_word(to_numpy(values.double())).shares.tolist()

    def describe(self, log_probability: float) -> str:
        return f'{self.unit} {self.word}, "{self.target.text}", probability {np.exp(log_probability):.3g}'

    def _sum_by_word(self, values: Float[np.ndarray, " positions"]) -> AttentionShares:
        """Sum values of <bos> and the text by word; <bos> counts as elsewhere."""
        look = sum_by_unit(values[1:], self.units)
        return look._replace(elsewhere=look.elsewhere + float(values[0]))
