"""Targets and the words of a text, explained by the source or by the text before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.alignment import as_array
from regard.attention.watch import watch
from regard.batch import BOS, PAD, Pair, collate, padded
from regard.decoding.forced import joined, stacked
from regard.decoding.generate import check_text
from regard.decoding.steps import target_log_probabilities
from regard.errors import RegardError
from regard.explaining.explanation import ATTENTION, ROLLOUT, rollout
from regard.explaining.methods import Look, Subject, chosen
from regard.layers.embedding import Call
from regard.predictor import Predictor
from regard.text.units import Unit, units_of
from regard.text_predictor import TextPredictor


def left_out(tokens: Sequence[int], units: Sequence[Unit], out: int | None) -> list[int]:
    """Tokens without those of a unit."""
    gone = () if out is None else (*units[out].spaces, *units[out].places)
    return [token for place, token in enumerate(tokens) if place not in gone]


class PairSubject(Subject):
    """The target of a source, or one word of it, explained by the words of the source."""

    def __init__(self, predictor: Predictor, text: str, target: str | None, word: int | None) -> None:
        found = predictor.predict(text) if target is None else predictor.force([text], [target])[0]
        source, written = predictor.tokenizers.source, predictor.tokenizers.target
        if not found.pair.source:
            raise RegardError("explain: the source has no words")
        self.units = units_of(source.kind, source.steps.apply(text), found.source_tokens[:-1], found.source_words)
        self.predictor, self.prediction, self.word = predictor, found, word
        self.words, self.size = tuple(unit.text for unit in self.units), len(found.pair.source) + 1
        own = found.target_tokens[: len(found.pair.target or ())]  # without <eos>
        self.targets = units_of(written.kind, found.written, own, found.target_words)
        self.places = list(range(len(found.target_tokens)))  # <eos> among them
        if word is not None:
            self.places = list(self.targets[chosen(word, self.targets, "of the target")].places)
        self.embedding = predictor.model.input_embedding
        self.without_attention = f"{predictor.name} has none from target to source"

    def log_probabilities(self, without: Sequence[int | None]) -> Float[Tensor, " texts"]:
        model = self.predictor.model
        source, target = self.prediction.pair
        pairs = [Pair(left_out(source, self.units, out), target) for out in without]
        batch = collate(pairs).to(self.predictor.device)
        assert batch.target_out is not None
        found = target_log_probabilities(model, model.features(batch), batch.target_out)
        return found[:, self.places].sum(-1)

    def looks(self) -> dict[str, Look]:
        model = self.predictor.model
        if not model.attended:
            return {}
        with watch(model) as seen:
            model.features(collate([self.prediction.pair]).to(self.predictor.device))
        across = as_array(stacked(model, seen, "explain")[0].double().mean((0, 1)))[self.places].mean(0)
        found = {ATTENTION: self._by_word(across)}
        if "encoder" in model.residual_attentions:
            layers = [as_array(joined(seen[path])[0].double().mean(0)) for path in model.attentions["encoder"]]
            found[ROLLOUT] = self._by_word(across @ rollout(layers))
        return found

    def merged(self, calls: Sequence[Call], numbers: Sequence[Float[Tensor, "..."]]) -> list[float]:
        own = next(place for place, call in enumerate(calls) if not bool((call.asked == BOS).any()))
        found = numbers[own][0, :-1]  # without <eos>; both sides may share an embedding, but no source has <bos>
        if self.predictor.model.reverses_source:
            found = found.flip(0)
        return self._by_word(as_array(found.double())).numbers.tolist()

    def described(self, log_probability: float) -> str:
        whole = f'the target "{self.prediction.text}"'
        named = whole if self.word is None else f'word {self.word}, "{self.targets[self.word].text}", of {whole}'
        return f"{named}, log-probability {log_probability:.2f}"

    def _by_word(self, numbers: Float[np.ndarray, " places"]) -> Look:
        return by_unit(numbers, self.units)


class TextSubject(Subject):
    """A word of a text, the last unless another is asked for, explained by those before it."""

    def __init__(self, predictor: TextPredictor, text: str, word: int | None) -> None:
        tokenizer, model = predictor.tokenizer, predictor.model
        encoded = tokenizer.encoded(text)
        units = units_of(tokenizer.kind, tokenizer.steps.apply(text), encoded.tokens, encoded.words)
        self.word = len(units) - 1 if word is None else chosen(word, units)
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
        model = self.predictor.model
        if not model.attended:
            return {}
        with watch(model) as seen:
            model.read(torch.tensor([[BOS, *self.before, *self.own[:-1]]], device=self.predictor.device))
        layers = list(as_array(stacked(model, seen, "explain")[0].double().mean(1)))
        rows = slice(len(self.before), None)  # the steps that write the word
        found = {ATTENTION: self._by_word(np.mean(layers, 0)[rows].mean(0))}
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


def by_unit(numbers: Float[np.ndarray, " places"], units: Sequence[Unit]) -> Look:
    """The sum of the numbers of each unit's tokens, and of all that belong to none."""
    found = np.array([numbers[list(unit.places)].sum() for unit in units])
    return Look(found, float(numbers.sum() - found.sum()))
