"""A word of a text, explained by those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.alignment import as_array
from regard.batch import BOS, PAD, padded
from regard.decoding.generate import check_text
from regard.decoding.steps import target_log_probabilities
from regard.errors import RegardError
from regard.explaining.explanation import ATTENTION, ROLLOUT, rollout
from regard.explaining.methods import Look, Subject, by_unit, check_is_text, chosen, left_out, mean_weights
from regard.layers.embedding import Call
from regard.tasks.text.options import WordOptions
from regard.text.units import units_of

if TYPE_CHECKING:
    from regard.tasks.text.predictor import TextPredictor


class TextSubject(Subject):
    """A word of a text, the last unless another is asked for, explained by those before it."""

    def __init__(self, predictor: TextPredictor, text: Any, options: WordOptions) -> None:
        check_is_text(text)
        tokenizer, model = predictor.tokenizer, predictor.model
        encoded = tokenizer.encoded(text)
        units = units_of(tokenizer.kind, tokenizer.steps.apply(text), encoded.tokens, encoded.words)
        self.word = len(units) - 1 if options.word is None else chosen(options.word, units)
        if self.word < 1:
            raise RegardError("explain: a word is explained by those before it; give a text of two or more")
        self.units, self.unit = units[: self.word], units[self.word]
        first, last = self.unit.places[0], self.unit.places[-1]
        self.before, self.own = encoded.ids[:first], encoded.ids[first : last + 1]
        self.predictor, self.size = predictor, len(self.before) + len(self.own)
        check_text(model, torch.zeros(1, self.size, dtype=torch.long), "explain")
        self.words = tuple(unit.text for unit in self.units)
        self.embedding = model.input_embedding
        self.without_attention = f"{predictor.name} has none"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model = self.predictor.model
        befores = [left_out(self.before, self.units, out) for out in without]
        tokens, _ = padded([[BOS, *before, *self.own[:-1]] for before in befores])
        targets, _ = padded([[*[PAD] * len(before), *self.own] for before in befores])
        device = self.predictor.device
        features, _ = model.read(tokens.to(device))
        return target_log_probabilities(model, features, targets.to(device)).sum(-1)

    def looks(self) -> dict[str, Look]:
        predictor, model = self.predictor, self.predictor.model
        if not model.attentions:
            return {}
        tokens = torch.tensor([[BOS, *self.before, *self.own[:-1]]], device=predictor.device)
        _, seen = predictor.watched(lambda: model.read(tokens))
        layers = mean_weights(seen["self"])
        rows = slice(len(self.before), None)  # the steps that write the word
        found = {ATTENTION: self._by_word(layers.mean(0)[rows].mean(0))}
        if "self" in model.residual_attentions:
            found[ROLLOUT] = self._by_word(rollout(layers)[rows].mean(0))
        return found

    def merged(self, calls: Sequence[Call], numbers: Sequence[Float[Tensor, "..."]]) -> list[float]:
        found = numbers[0][0, -self.size :]  # before the text, a model of a window reads padding
        return self._by_word(as_array(found.double())).numbers.tolist()

    def described(self, log_probability: float) -> str:
        return f'word {self.word}, "{self.unit.text}", probability {np.exp(log_probability):.3g}'

    def _by_word(self, numbers: Float[np.ndarray, " places"]) -> Look:
        """Of numbers for <bos> and the text, those of the words."""
        found = by_unit(numbers[1:], self.units)
        return found._replace(elsewhere=found.elsewhere + float(numbers[0]))
